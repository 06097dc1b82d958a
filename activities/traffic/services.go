package traffic

import (
	"context"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// pin narrows the stable Service to the stable pods. It is not written before one of them is ready: no request may meet an empty Service.
func (a *Activities) pin(ctx context.Context, j job) (bool, error) {
	p := place{services, j.namespace, j.pair.Stable}
	live, err := a.get(ctx, services, p.namespace, p.name)
	if err != nil {
		return false, err
	}
	if live == nil {
		return false, vanished(p)
	}
	b, err := traffic.Look(p.String(), live)
	if err != nil {
		return false, err
	}
	derive := traffic.Pinned(j.version)
	w, err := b.Want(j.hand, derive)
	if err != nil || w == nil {
		return false, err
	}
	narrowed := jsonpatch.Apply(live, w.Changes)
	ready, err := a.readyPods(ctx, p.namespace, traffic.SelectorOf(narrowed))
	if err != nil {
		return false, err
	}
	if len(ready) == 0 {
		return false, notYet("%s is not pinned yet: no pod with %s=%s is ready", p, j.version.Label, j.version.Hash)
	}
	return a.write(ctx, p, live, w)
}

// canaryService sees to <service>-canary.
func (a *Activities) canaryService(ctx context.Context, j job) (bool, error) {
	stable := place{services, j.namespace, j.pair.Stable}
	live, err := a.get(ctx, services, stable.namespace, stable.name)
	if err != nil {
		return false, err
	}
	if live == nil {
		return false, vanished(stable)
	}
	b, err := traffic.Look(stable.String(), live)
	if err != nil {
		return false, err
	}
	desired := traffic.CanaryService(b.Original(), j.pair.Canary, j.version)
	return a.keep(ctx, place{services, j.namespace, j.pair.Canary}, j.hand, desired, traffic.CanarySelectorPaths)
}

// unserved are reasons why requests to a Service would meet nothing, "" when one of its pods is ready to take them.
func (a *Activities) unserved(ctx context.Context, namespace, service string) (string, error) {
	p := place{services, namespace, service}
	live, err := a.get(ctx, services, namespace, service)
	if err != nil {
		return "", err
	}
	if live == nil {
		return p.String() + " is not there", nil
	}
	pods, err := a.readyPods(ctx, namespace, traffic.SelectorOf(live))
	if err != nil {
		return "", err
	}
	if len(pods) == 0 {
		return p.String() + " has no ready pod", nil
	}
	endpoints, err := a.endpoints(ctx, namespace, service)
	if err != nil {
		return "", err
	}
	for _, e := range endpoints {
		if pods[e] {
			return "", nil
		}
	}
	return p.String() + " has ready pods, and no endpoint for any of them yet", nil
}

// routesAnything says whether requests go to the new version.
func routesAnything(t strategy.Traffic) bool {
	return len(t.Matches) > 0 || t.Weight != nil && *t.Weight > 0
}

// notYet is a failure.NotReady.
func notYet(format string, args ...any) error {
	return failure.New(failure.NotReady, format, args...)
}
