package traffic

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// actions are the changes of the traffic. Each makes what is not made yet and returns a sentence that says how it is now.
var actions = map[rollout.RouteAction]func(ctx context.Context, t *routeJob) (string, error){
	rollout.RoutePin:          pinServices,
	rollout.RouteEnsure:       ensureRoutes,
	rollout.RouteUnpin:        unpinServices,
	rollout.RouteToStable:     routeToStable,
	rollout.RouteToNew:        ensureRoutes,
	rollout.RouteRemoveCanary: removeCanary,
}

// eachService does something once for each Service, since two routings may lead to the same, and says what came of it.
func (t *routeJob) eachService(do func(j job) (string, error)) (string, error) {
	if t.req.NoCanary {
		return "the Services are left alone: this rollout has no canary Service", nil
	}
	var once []job
	for _, j := range jobs(t.req) {
		if !slices.ContainsFunc(once, func(o job) bool { return o.pair.Stable == j.pair.Stable }) {
			once = append(once, j)
		}
	}
	return each(once, do)
}

// each does something with one job after the other, and says what came of it.
func each(list []job, do func(j job) (string, error)) (string, error) {
	var said []string
	for _, j := range list {
		one, err := do(j)
		if err != nil {
			return "", err
		}
		said = append(said, one)
	}
	return strings.Join(said, "; "), nil
}

func pinServices(ctx context.Context, t *routeJob) (string, error) {
	return t.eachService(func(j job) (string, error) {
		j.version.Hash, j.version.Labels = t.req.StableHash, nil
		if err := t.wrote(t.a.pin(ctx, j)); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s selects the stable version only (%s)", j.stable(), t.req.StableHash), t.served(ctx, j.stable())
	})
}

func unpinServices(ctx context.Context, t *routeJob) (string, error) {
	return t.eachService(func(j job) (string, error) {
		p := j.stable()
		if err := t.wrote(t.a.giveBack(ctx, p, j.hand)); err != nil {
			return "", err
		}
		live, err := t.a.get(ctx, p)
		if err := t.wrote(false, err); err != nil {
			return "", err
		}
		if live == nil {
			return fmt.Sprintf("%s is gone: there is nothing to give back", p), nil
		}
		return fmt.Sprintf("%s has its own selector", p), t.servedUnlessGone(ctx, p)
	})
}

// served waits until a Service has an endpoint that is ready.
func (t *routeJob) served(ctx context.Context, service place) error {
	reason, err := t.a.unserved(ctx, service)
	if err := t.wrote(false, err); err != nil {
		return err
	}
	if reason != "" {
		return notYet("%s", reason)
	}
	return nil
}

// servedUnlessGone is served, but waits for nobody once the workload itself was deleted.
func (t *routeJob) servedUnlessGone(ctx context.Context, service place) error {
	waits := t.served(ctx, service)
	if waits == nil {
		return nil
	}
	workload, err := t.a.workload(ctx, t.req.Subject)
	if err := t.wrote(false, err); err != nil || workload == nil {
		return err
	}
	return waits
}

// ensureRoutes is EnsureRoutes, and RouteTrafficToNew, whose jobs ask for everything.
func ensureRoutes(ctx context.Context, t *routeJob) (string, error) {
	if _, err := t.eachService(func(j job) (string, error) {
		if err := t.wrote(t.a.canaryService(ctx, j)); err != nil || !routesAnything(j.asks) {
			return "", err
		}
		return "", t.served(ctx, j.canary())
	}); err != nil {
		return "", err
	}
	return each(jobs(t.req), func(j job) (string, error) {
		wrote, err := providerOf(j.routing).ensure(ctx, t.a, j)
		if err := t.wrote(wrote, err); err != nil {
			return "", err
		}
		if wrote {
			return "", errLookAgain // verified by another round, which finds nothing left to write
		}
		return routed(j), nil
	})
}

// routed says what a routing does.
func routed(j job) string {
	through := target(j.routing)
	switch {
	case len(j.asks.Matches) > 0:
		return fmt.Sprintf("%s sends requests that meet the matches to %s", through, j.pair.Canary)
	case j.asks.Weight != nil:
		return fmt.Sprintf("%s sends %d %% of the requests to %s", through, *j.asks.Weight, j.pair.Canary)
	default:
		return fmt.Sprintf("%s is prepared", through)
	}
}

// target names what a routing goes through.
func target(r strategy.Routing) string {
	switch {
	case r.Ingress != nil:
		return "Ingress " + r.Ingress.Name
	case r.HTTPRoute != "":
		return "HTTPRoute " + r.HTTPRoute
	default:
		var names []string
		for _, c := range r.Custom {
			names = append(names, c.Kind+" "+c.Name)
		}
		return strings.Join(names, ", ")
	}
}

func routeToStable(ctx context.Context, t *routeJob) (string, error) {
	return each(jobs(t.req), func(j job) (string, error) {
		return target(j.routing) + " is what it was", t.wrote(providerOf(j.routing).finalise(ctx, t.a, j))
	})
}

func removeCanary(ctx context.Context, t *routeJob) (string, error) {
	return t.eachService(func(j job) (string, error) {
		return fmt.Sprintf("%s is removed", j.canary()), t.wrote(t.a.clear(ctx, j.canary(), j.hand))
	})
}
