package traffic

import (
	"context"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// checkReach refuses a routing by objects of kinds that this worker's releases may not change. It reads no such object.
func (a *Activities) checkReach(ctx context.Context, j job) error {
	switch {
	case j.routing.Ingress != nil:
		return a.reachError(ingresses.identity(), a.options.Reach.Refuses(ingresses.identity(), false))
	case j.routing.HTTPRoute != "":
		return a.reachError(httpRoutes.identity(), a.options.Reach.Refuses(httpRoutes.identity(), false))
	}
	for _, ref := range j.routing.Custom {
		if err := a.checkReachOf(ctx, j.namespace, ref); err != nil {
			return err
		}
	}
	return nil
}

// checkReachOf is checkReach for one custom object. The refusal also names a script from the namespace of the workload
// that is not used.
func (a *Activities) checkReachOf(ctx context.Context, namespace string, ref strategy.ObjectRef) error {
	found, err := a.kinds.lookup(ref.APIVersion, ref.Kind)
	if err != nil {
		return err
	}
	key := traffic.CustomScript(ref).Key
	_, scripted, err := a.administratorsScript(ctx, key, a.administratorsConfigMaps()...)
	if err != nil {
		return err
	}
	refused := a.reachError(found.identity(), a.options.Reach.Refuses(found.identity(), scripted))
	if refused == nil || found.identity().Forbidden() != "" {
		return refused
	}
	own, there, err := a.tenantScript(ctx, namespace, key)
	switch {
	case err != nil:
		return err
	case !there:
		return failure.New(failure.Refused, "%v, or for a script %s in %s", refused, key, a.whereToWrite())
	case a.options.Reach.ReadsScriptsOf(namespace):
		return refused
	}
	return failure.New(failure.Refused, "%v; %s", refused, a.unusedScript(namespace, own.Name))
}

// reachError is the refusal of a kind for a reason, with what to ask for; nil for the reason "".
func (a *Activities) reachError(kind traffic.Kind, reason string) error {
	switch {
	case reason == "":
		return nil
	case kind.Forbidden() != "":
		return failure.New(failure.Refused, "%s", reason)
	}
	return failure.New(failure.Refused, "%s: ask its administrator for %s with %s", reason, traffic.FlagKinds,
		kind.Name())
}

// checkRestorable refuses to restore an object of a kind that no release changes. The original is an annotation of the
// object: for workloads, it may be written by users who may not change the object's spec, or whose changes the gate
// holds. Objects of other kinds are restored even if this worker's releases no longer change them, since the original
// replaces nothing but what its author could write himself.
func checkRestorable(p place, live traffic.Object, h traffic.Claimant) (restorable bool, err error) {
	if p.borrows != traffic.BorrowsByScript {
		return true, nil
	}
	reason := p.identity().Forbidden()
	switch {
	case reason == "":
		return true, nil
	case h.CheckClaim(p.String(), traffic.HolderOf(live)) != nil || traffic.HolderOf(live) == "":
		return false, nil
	}
	return false, failure.New(failure.Refused, "%s is not restored, since %s: apply the JSON Patch in its annotation "+
		"%s with kubectl, then retry", p, reason, rollout.AnnotationRestore)
}

// identity returns the kind as a list of kinds names it.
func (k kind) identity() traffic.Kind { return traffic.CustomKind(k.gvr.Group, k.gvr.Resource) }

// identity is kind.identity.
func (p place) identity() traffic.Kind {
	return traffic.CustomKind(p.Resource.Group, p.Resource.Resource)
}

// tryScripts refuses, before the first write, what the scripts of a request return and may not change. A request that
// may leave routes out tries all of them.
func (t *routeJob) tryScripts(ctx context.Context) error {
	if t.tried {
		return nil
	}
	if t.req.LeaveOut {
		omitted, err := t.a.omitted(ctx, jobs(t.req), job.atStep)
		if err := t.noteWrite(false, err); err != nil {
			return err
		}
		t.omitted, t.tried = omitted, true
		return nil
	}
	for _, j := range jobs(t.req) {
		if j.routing.HTTPRoute != "" {
			continue
		}
		_, err := t.a.eachRoute(ctx, j, func(r route) (bool, error) { return false, r.try(j.atStep()) })
		if err := t.noteWrite(false, err); err != nil {
			return err
		}
	}
	t.tried = true
	return nil
}
