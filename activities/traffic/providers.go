package traffic

import (
	"context"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// ingressProvider routes by <ingress>-canary beside the user's Ingress, which is not touched.
type ingressProvider struct{}

func (ingressProvider) place(j job) (stable, canary place) {
	name := j.routing.Ingress.Name
	return ingresses.at(j.namespace, name), ingresses.at(j.namespace, name+strategy.CanarySuffix)
}

func (p ingressProvider) places(_ context.Context, _ *Activities, j job) ([]place, error) {
	stable, canary := p.place(j)
	return []place{stable, canary}, nil
}

// desired is the canary Ingress as it should be.
func (p ingressProvider) desired(ctx context.Context, a *Activities, j job, live traffic.Object) (traffic.Object, error) {
	class := j.routing.Ingress.Class
	script := traffic.IngressScript(class)
	raw, name, err := a.evaluate(ctx, j, script, traffic.IngressInput(live, class, j.pair, j.asks))
	if err != nil {
		return nil, err
	}
	annotations, err := traffic.IngressOutput(name, raw)
	if err != nil {
		return nil, err
	}
	return traffic.CanaryIngress(live, j.pair, annotations, j.version)
}

func (p ingressProvider) ensure(ctx context.Context, a *Activities, j job) (bool, error) {
	stable, canary := p.place(j)
	live, err := a.existing(ctx, stable, vanished)
	if err != nil {
		return false, err
	}
	desired, err := p.desired(ctx, a, j, live)
	if err != nil {
		return false, err
	}
	return a.keep(ctx, canary, j.hand, desired, traffic.IngressPaths(desired))
}

func (p ingressProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	_, canary := p.place(j)
	return a.clear(ctx, canary, j.hand)
}

func (p ingressProvider) initialise(ctx context.Context, a *Activities, j job) error {
	stable, canary := p.place(j)
	live, err := a.existing(ctx, stable, missing)
	if err != nil {
		return err
	}
	if _, is := traffic.CanaryAnnotations(live); is {
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

// borrowingProvider changes objects of the user's: the rules of an HTTPRoute, or custom objects as their scripts say.
type borrowingProvider struct{}

// route is one object that requests go through.
type route struct {
	place
	// initialise is provider.initialise for this object.
	initialise func() error
	derive     derivation
}

func (p borrowingProvider) routes(ctx context.Context, a *Activities, j job) ([]route, error) {
	if j.routing.HTTPRoute != "" {
		at := httpRoutes.at(j.namespace, j.routing.HTTPRoute)
		return []route{{place: at, derive: traffic.HTTPRoute(j.pair, j.asks), initialise: func() error {
			if _, err := a.kinds.of(httpRoutes.gvr.GroupVersion().String(), httpRoutes.name); err != nil {
				return err
			}
			return a.attemptBorrow(ctx, at, traffic.HTTPRoute(j.pair, strategy.Traffic{}))
		}}}, nil
	}
	var out []route
	for _, ref := range j.routing.Custom {
		k, err := a.kinds.of(ref.APIVersion, ref.Kind)
		if err != nil {
			return nil, err
		}
		at, script := k.at(j.namespace, ref.Name), traffic.CustomScript(ref)
		out = append(out, route{place: at, initialise: func() error {
			if _, err := a.existing(ctx, at, missing); err != nil {
				return err
			}
			_, _, err := a.source(ctx, j.namespace, script)
			return err
		}, derive: func(original traffic.Object) (traffic.Object, []string, error) {
			raw, name, err := a.evaluate(ctx, j, script, traffic.CustomInput(original, j.pair, j.asks))
			if err != nil {
				return nil, nil, err
			}
			return traffic.Custom(name, raw)(original)
		}})
	}
	return out, nil
}

func (p borrowingProvider) places(ctx context.Context, a *Activities, j job) ([]place, error) {
	var out []place
	_, err := p.each(ctx, a, j, func(r route) (bool, error) {
		out = append(out, r.place)
		return false, nil
	})
	return out, err
}

func (p borrowingProvider) initialise(ctx context.Context, a *Activities, j job) error {
	_, err := p.each(ctx, a, j, func(r route) (bool, error) { return false, r.initialise() })
	return err
}

func (p borrowingProvider) try(ctx context.Context, a *Activities, j job) error {
	_, err := p.each(ctx, a, j, func(r route) (bool, error) { return false, a.attemptBorrow(ctx, r.place, r.derive) })
	return err
}

func (p borrowingProvider) ensure(ctx context.Context, a *Activities, j job) (bool, error) {
	return p.each(ctx, a, j, func(r route) (bool, error) { return a.borrow(ctx, r.place, j.hand, r.derive) })
}

// finalise goes through the objects in the opposite order: who refers to another is given back first.
func (p borrowingProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	j.routing.Custom = slices.Clone(j.routing.Custom)
	slices.Reverse(j.routing.Custom)
	return p.each(ctx, a, j, func(r route) (bool, error) { return a.giveBack(ctx, r.place, j.hand) })
}

// each does something with one object after the other, and says whether it wrote any.
func (p borrowingProvider) each(ctx context.Context, a *Activities, j job, do func(route) (bool, error)) (wrote bool, err error) {
	all, err := p.routes(ctx, a, j)
	for _, r := range all {
		w, err := do(r)
		wrote = wrote || w
		if err != nil {
			return wrote, err
		}
	}
	return wrote, err
}

// missing is the refusal of an object that should be there.
func missing(p place) error {
	return failure.New(failure.Refused, "%s does not exist: create it, or name another", p)
}

// looking is the hand of a preflight: it reads what is there, whoever holds it. Who does is told apart from this.
func looking(holder string) traffic.Hand { return traffic.Hand{Claim: "preflight", TakeOver: holder} }

// attemptBorrow decides what borrow would write, without writing it.
func (a *Activities) attemptBorrow(ctx context.Context, p place, derive derivation) error {
	b, err := a.borrowed(ctx, p, missing)
	if err != nil {
		return err
	}
	_, err = b.Want(looking(b.Holder()), derive)
	return err
}

// ours refuses an object under the name of one that a release makes, when no release has made it.
func (a *Activities) ours(ctx context.Context, p place) error {
	live, err := a.get(ctx, p)
	if err != nil || live == nil {
		return err
	}
	return traffic.LookCreated(p.String(), live).Mine(looking(traffic.HolderOf(live)))
}
