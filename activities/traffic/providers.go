package traffic

import (
	"context"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// ingressProvider routes by <ingress>-canary beside the user's Ingress, which is not touched.
type ingressProvider struct{}

func (ingressProvider) place(j job) (stable, canary place) {
	name := j.routing.Ingress.Name
	return place{ingresses, j.namespace, name}, place{ingresses, j.namespace, name + strategy.CanarySuffix}
}

func (p ingressProvider) places(_ *Activities, j job) ([]place, error) {
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

// httpRouteProvider changes the rules of the user's HTTPRoute.
type httpRouteProvider struct{}

func (httpRouteProvider) place(j job) place {
	return place{httpRoutes, j.namespace, j.routing.HTTPRoute}
}

func (p httpRouteProvider) places(_ *Activities, j job) ([]place, error) {
	return []place{p.place(j)}, nil
}

func (p httpRouteProvider) ensure(ctx context.Context, a *Activities, j job) (bool, error) {
	return a.borrow(ctx, p.place(j), j.hand, traffic.HTTPRoute(j.pair, j.asks))
}

func (p httpRouteProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	return a.giveBack(ctx, p.place(j), j.hand)
}

// customProvider changes custom objects as their scripts say.
type customProvider struct{}

func (customProvider) places(a *Activities, j job) ([]place, error) {
	var out []place
	for _, ref := range j.routing.Custom {
		k, err := a.kinds.of(ref.APIVersion, ref.Kind)
		if err != nil {
			return nil, err
		}
		out = append(out, place{k, j.namespace, ref.Name})
	}
	return out, nil
}

// derive is what the script makes of the original of one object.
func (customProvider) derive(ctx context.Context, a *Activities, j job,
	ref strategy.ObjectRef) func(traffic.Object) (traffic.Object, []string, error) {
	return func(original traffic.Object) (traffic.Object, []string, error) {
		raw, name, err := a.evaluate(ctx, j, traffic.CustomScript(ref), traffic.CustomInput(original, j.pair, j.asks))
		if err != nil {
			return nil, nil, err
		}
		return traffic.Custom(name, raw)(original)
	}
}

func (p customProvider) ensure(ctx context.Context, a *Activities, j job) (bool, error) {
	return p.each(a, j, false, func(i int, at place) (bool, error) {
		return a.borrow(ctx, at, j.hand, p.derive(ctx, a, j, j.routing.Custom[i]))
	})
}

// finalise goes through the objects in the opposite order: who refers to another is given back first.
func (p customProvider) finalise(ctx context.Context, a *Activities, j job) (bool, error) {
	return p.each(a, j, true, func(_ int, at place) (bool, error) { return a.giveBack(ctx, at, j.hand) })
}

// each writes one object after the other, and says whether it wrote any.
func (p customProvider) each(a *Activities, j job, backwards bool, write func(i int, at place) (bool, error)) (wrote bool, err error) {
	all, err := p.places(a, j)
	for i := range all {
		if backwards {
			i = len(all) - 1 - i
		}
		w, err := write(i, all[i])
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
