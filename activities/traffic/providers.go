package traffic

import (
	"context"

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
