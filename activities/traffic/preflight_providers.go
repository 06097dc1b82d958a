package traffic

import (
	"context"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// missing is the refusal of an object that should be there.
func missing(p place) error {
	return failure.New(failure.Refused, "%s does not exist: create it, or name another", p)
}

// looking is the hand of a preflight: it reads what is there, whoever holds it. Who does is told apart from this.
func looking(holder string) traffic.Hand { return traffic.Hand{Claim: "preflight", TakeOver: holder} }

// attemptBorrow decides what borrow would write, without writing it.
func (a *Activities) attemptBorrow(ctx context.Context, p place, derive func(traffic.Object) (traffic.Object, []string, error)) error {
	b, err := a.borrowed(ctx, p, missing)
	if err != nil {
		return err
	}
	_, err = b.Want(looking(b.Holder()), derive)
	return err
}

func (p ingressProvider) initialise(ctx context.Context, a *Activities, j job) error {
	stable, canary := p.place(j)
	live, err := a.existing(ctx, stable, missing)
	if err != nil {
		return err
	}
	if traffic.IsCanaryIngress(live) {
		return failure.New(failure.Refused, "%s is itself a canary by its annotations: name the Ingress that it stands beside", stable)
	}
	if _, err := traffic.CanaryIngress(live, j.pair, nil, j.version); err != nil {
		return err
	}
	if _, _, err := a.source(ctx, j.namespace, traffic.IngressScript(j.routing.Ingress.Class)); err != nil {
		return err
	}
	return a.ours(ctx, canary)
}

func (p ingressProvider) try(ctx context.Context, a *Activities, j job) error {
	stable, _ := p.place(j)
	live, err := a.existing(ctx, stable, missing)
	if err != nil {
		return err
	}
	_, err = p.desired(ctx, a, j, live)
	return err
}

// ours refuses an object under the name of one that a release makes, when no release has made it.
func (a *Activities) ours(ctx context.Context, p place) error {
	live, err := a.get(ctx, p.kind, p.namespace, p.name)
	if err != nil || live == nil {
		return err
	}
	return traffic.LookCreated(p.String(), live).Mine(looking(traffic.HolderOf(live)))
}

func (p httpRouteProvider) initialise(ctx context.Context, a *Activities, j job) error {
	if _, err := a.kinds.of(httpRoutes.gvr.GroupVersion().String(), httpRoutes.name); err != nil {
		return err
	}
	j.asks = strategy.Traffic{}
	return p.try(ctx, a, j)
}

func (p httpRouteProvider) try(ctx context.Context, a *Activities, j job) error {
	return a.attemptBorrow(ctx, p.place(j), traffic.HTTPRoute(j.pair, j.asks))
}

func (p customProvider) initialise(ctx context.Context, a *Activities, j job) error {
	all, err := p.places(a, j)
	if err != nil {
		return err
	}
	for i, at := range all {
		if _, err := a.existing(ctx, at, missing); err != nil {
			return err
		}
		if _, _, err := a.source(ctx, j.namespace, traffic.CustomScript(j.routing.Custom[i])); err != nil {
			return err
		}
	}
	return nil
}

func (p customProvider) try(ctx context.Context, a *Activities, j job) error {
	all, err := p.places(a, j)
	if err != nil {
		return err
	}
	for i, at := range all {
		if err := a.attemptBorrow(ctx, at, p.derive(ctx, a, j, j.routing.Custom[i])); err != nil {
			return err
		}
	}
	return nil
}
