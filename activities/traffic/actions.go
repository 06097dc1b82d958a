package traffic

import (
	"context"
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

// perService are the jobs with each Service once: two routings may lead to the same.
func perService(t *routeJob) []job {
	var out []job
	seen := map[string]bool{}
	for _, j := range jobs(t.req) {
		if !seen[j.pair.Stable] {
			seen[j.pair.Stable] = true
			out = append(out, j)
		}
	}
	return out
}

const leftAlone = "the Services are left alone: this rollout has no canary Service"

func pinServices(ctx context.Context, t *routeJob) (string, error) {
	if t.req.NoCanary {
		return leftAlone, nil
	}
	var said []string
	for _, j := range perService(t) {
		j.version.Hash, j.version.Labels = t.req.StableHash, nil
		if err := t.wrote(t.a.pin(ctx, j)); err != nil {
			return "", err
		}
		if err := t.served(ctx, j.namespace, j.pair.Stable); err != nil {
			return "", err
		}
		said = append(said,
			sentence("%s selects the stable version only (%s)", place{services, j.namespace, j.pair.Stable}, t.req.StableHash))
	}
	return joined(said), nil
}

func unpinServices(ctx context.Context, t *routeJob) (string, error) {
	if t.req.NoCanary {
		return leftAlone, nil
	}
	var said []string
	for _, j := range perService(t) {
		p := place{services, j.namespace, j.pair.Stable}
		if err := t.wrote(t.a.giveBack(ctx, p, j.hand)); err != nil {
			return "", err
		}
		live, err := t.a.get(ctx, services, p.namespace, p.name)
		if err := t.wrote(false, err); err != nil {
			return "", err
		}
		if live == nil {
			said = append(said, sentence("%s is gone: there is nothing to give back", p))
			continue
		}
		if err := t.servedUnlessGone(ctx, j); err != nil {
			return "", err
		}
		said = append(said, sentence("%s has its own selector", p))
	}
	return joined(said), nil
}

// served waits until a Service has an endpoint that is ready.
func (t *routeJob) served(ctx context.Context, namespace, service string) error {
	reason, err := t.a.unserved(ctx, namespace, service)
	if err := t.wrote(false, err); err != nil {
		return err
	}
	if reason != "" {
		return notYet("%s", reason)
	}
	return nil
}

// servedUnlessGone is served, but waits for nobody once the workload itself was deleted.
func (t *routeJob) servedUnlessGone(ctx context.Context, j job) error {
	waits := t.served(ctx, j.namespace, j.pair.Stable)
	if waits == nil {
		return nil
	}
	gone, err := t.a.workloadGone(ctx, t.req.Subject)
	if err := t.wrote(false, err); err != nil {
		return err
	}
	if gone {
		return nil
	}
	return waits
}

// ensureRoutes is EnsureRoutes, and RouteTrafficToNew, whose jobs ask for everything.
func ensureRoutes(ctx context.Context, t *routeJob) (string, error) {
	if !t.req.NoCanary {
		for _, j := range perService(t) {
			if err := t.wrote(t.a.canaryService(ctx, j)); err != nil {
				return "", err
			}
			if !routesAnything(j.asks) {
				continue
			}
			if err := t.served(ctx, j.namespace, j.pair.Canary); err != nil {
				return "", err
			}
		}
	}
	var said []string
	for _, j := range jobs(t.req) {
		wrote, err := providerOf(j.routing).ensure(ctx, t.a, j)
		if err := t.wrote(wrote, err); err != nil {
			return "", err
		}
		if wrote {
			return "", errLookAgain // verified by another round, which finds nothing left to write
		}
		said = append(said, routed(j))
	}
	return joined(said), nil
}

// routed says what a routing does.
func routed(j job) string {
	through := target(j.routing)
	switch {
	case len(j.asks.Matches) > 0:
		return sentence("%s sends requests that meet the matches to %s", through, j.pair.Canary)
	case j.asks.Weight != nil:
		return sentence("%s sends %d %% of the requests to %s", through, *j.asks.Weight, j.pair.Canary)
	default:
		return sentence("%s is prepared", through)
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
	var said []string
	for _, j := range jobs(t.req) {
		if err := t.wrote(providerOf(j.routing).finalise(ctx, t.a, j)); err != nil {
			return "", err
		}
		said = append(said, sentence("%s is what it was", target(j.routing)))
	}
	return joined(said), nil
}

func removeCanary(ctx context.Context, t *routeJob) (string, error) {
	if t.req.NoCanary {
		return leftAlone, nil
	}
	var said []string
	for _, j := range perService(t) {
		p := place{services, j.namespace, j.pair.Canary}
		if err := t.wrote(t.a.clear(ctx, p, j.hand)); err != nil {
			return "", err
		}
		said = append(said, sentence("%s is removed", p))
	}
	return joined(said), nil
}
