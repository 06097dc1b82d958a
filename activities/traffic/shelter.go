package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
)

// mostTries is how often a write that came too late is decided anew at once.
const mostTries = 5

// shelter keeps requests to what a rollout releases from meeting nobody. A Service that is pinned to one version gets its own selector back
// when none of that version's pods is ready while others are, or when the workload's own controller has been let loose on them; routes to a
// canary Service of which no pod is ready are given back. The worker does so by itself, whatever the rollout is doing. That is told before,
// which shows whether it runs in this engine, and afterwards: it pins and routes again when there are pods to do so.
func (d *DriftDetector) shelter(ctx context.Context, claim string) error {
	if err := d.tellOwed(ctx, claim); err != nil {
		return err
	}
	h, _ := d.holdings.Held(claim)
	if err := d.wantRoutesOf(h); err != nil {
		return err
	}
	for _, service := range d.servicesOf(claim) {
		at := services.at(service.Namespace, service.Name)
		if !drift.MayHold(d.a.options.Parties, claim, at.Namespace) {
			continue
		}
		if err := d.missed(ctx, service, h); err != nil {
			return err
		}
		loose := service.borrowed && h.Loose
		if !loose && d.served(at) {
			continue
		}
		err := errLookAgain
		for try := 0; try < mostTries && errors.Is(err, errLookAgain); try++ {
			if service.borrowed {
				err = d.unpin(ctx, at, claim, loose)
			} else {
				err = d.unroute(ctx, at, claim, h)
			}
		}
		var f *failure.Error
		if errors.As(err, &f) { // the rollout meets it as well, and says so
			d.a.options.Logger.WarnContext(ctx, "a Service selects no ready pod, and could not be helped", "service", at.String(), "error", f)
		} else if err != nil {
			return err
		}
	}
	return d.tellOwed(ctx, claim)
}

// missed looks once for the canary Service beside a Service that was pinned when the watch began: if somebody has deleted it while nobody
// watched, no event tells.
func (d *DriftDetector) missed(ctx context.Context, stable *lent, h drift.Holding) error {
	d.mu.Lock()
	look := d.found[stable.place()]
	d.mu.Unlock()
	if !look || h.Claim == "" { // not until it is known what the rollout holds
		return nil
	}
	for _, r := range h.Routings {
		if r.Service != stable.Name || !h.Services {
			continue
		}
		at := services.at(stable.Namespace, r.CanaryService())
		live, err := d.a.get(ctx, at)
		if err != nil {
			return err
		}
		if live == nil {
			left := &lent{kind: stable.kind, claim: stable.claim}
			left.Namespace, left.Name = at.Namespace, at.Name
			d.mu.Lock()
			d.gone[at] = &departed{lent: left, since: time.Now()}
			d.mu.Unlock()
			d.teller.Look(at)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.found, stable.place())
	return nil
}

// wantRoutesOf has the kinds watched that a rollout routes by beyond those that are watched anyway.
func (d *DriftDetector) wantRoutesOf(h drift.Holding) error {
	for _, r := range h.Routings {
		if r.HTTPRoute != "" {
			if err := d.wantKind(d.a.kinds.httpRoutes()); err != nil {
				return err
			}
		}
		for _, ref := range r.Custom {
			if err := d.wantKind(d.a.kinds.of(ref.APIVersion, ref.Kind)); err != nil {
				return err
			}
		}
	}
	return nil
}

// wantKind has a kind watched that was looked for. One that the cluster does not have is not waited for.
func (d *DriftDetector) wantKind(k kind, err error) error {
	var f *failure.Error
	if err == nil {
		d.want(routing(k))
	}
	if errors.As(err, &f) {
		return nil
	}
	return err
}

// unpin gives a Service its own selector back, if that takes ready pods and the one that it is pinned to does not, or soon may not.
func (d *DriftDetector) unpin(ctx context.Context, at place, claim string, loose bool) error {
	live, err := d.a.get(ctx, at)
	if err != nil || live == nil || d.a.repaired(at, live) != nil {
		return err
	}
	b, err := traffic.Look(at.String(), live, at.borrows)
	if err != nil {
		return err
	}
	if b.Holder() != claim {
		return nil
	}
	pinned, err := d.a.readyPods(ctx, at.Namespace, traffic.SelectorOf(live))
	if err != nil || len(pinned) > 0 && !loose {
		return err
	}
	all, err := d.a.readyPods(ctx, at.Namespace, traffic.SelectorOf(b.Original()))
	if err != nil || len(all) == 0 {
		return err
	}
	why := "none of the pods that it was pinned to is ready"
	if loose {
		why = "somebody else has let the workload's own controller move pods"
	}
	done := rollout.Observed{What: rollout.ObservedUnpinned, Claim: claim, Object: at.String(),
		Message: fmt.Sprintf("%s has its own selector again, since %s", at, why)}
	w, err := b.Return(traffic.Hand{Claim: claim, Overwrite: true})
	if err != nil || w == nil || !d.mayAct(ctx, claim, done) {
		return err
	}
	if err := d.a.sendBack(ctx, at, live, w); err != nil {
		return err
	}
	d.owe(claim, done)
	return nil
}

// unroute gives the routes back that lead to a canary Service of which no pod is ready, if the Service beside it has some.
func (d *DriftDetector) unroute(ctx context.Context, canary place, claim string, h drift.Holding) error {
	live, err := d.a.get(ctx, canary)
	if err != nil || live == nil || traffic.HolderOf(live) != claim || d.a.repaired(canary, live) != nil {
		return err
	}
	ready, err := d.a.readyPods(ctx, canary.Namespace, traffic.SelectorOf(live))
	if err != nil || len(ready) > 0 {
		return err
	}
	request := rollout.RouteRequest{Subject: rollout.Subject{Workload: catalog.Workload{Namespace: canary.Namespace,
		WorkloadRef: h.Workload.WorkloadRef}, Claim: claim}, Action: rollout.RouteToStable, Routings: h.Routings, Overwrite: true}
	for _, j := range jobs(request) {
		if j.pair.Canary != canary.Name {
			continue
		}
		if beside, err := d.selected(ctx, j.stable()); err != nil || beside == 0 {
			return err
		}
		done := rollout.Observed{What: rollout.ObservedUnrouted, Claim: claim, Object: canary.String(),
			Message: fmt.Sprintf("%s leads to %s alone, since no pod of the new version is ready", target(j.routing), j.stable())}
		routed, err := d.routed(ctx, j)
		if err != nil || !routed || !d.mayAct(ctx, claim, done) {
			return err
		}
		wrote, err := providerOf(j.routing).finalise(ctx, d.a, j)
		if err != nil {
			return err
		}
		if wrote {
			d.owe(claim, done)
		}
	}
	return nil
}

// mayAct says whether something is this worker's to do for a claim: its rollout runs in this engine, or nobody's does, as after a stop to
// frozen, when no workload carries the claim any more. Another engine would do the same to that.
func (d *DriftDetector) mayAct(ctx context.Context, claim string, done rollout.Observed) bool {
	_, held := d.holdings.Held(claim)
	return !held || drift.Ours(ctx, d.temporal, claim, done)
}

// routed says whether there is anything that finalise would give back, or remove.
func (d *DriftDetector) routed(ctx context.Context, j job) (bool, error) {
	all, err := providerOf(j.routing).places(ctx, d.a, j)
	if err != nil {
		return false, err
	}
	for _, at := range all {
		live, err := d.a.get(ctx, at)
		if err != nil || traffic.HolderOf(live) == j.hand.Claim {
			return err == nil, err
		}
	}
	return false, nil
}

// selected is how many ready pods a Service selects.
func (d *DriftDetector) selected(ctx context.Context, at place) (int, error) {
	live, err := d.a.get(ctx, at)
	if err != nil || live == nil {
		return 0, err
	}
	ready, err := d.a.readyPods(ctx, at.Namespace, traffic.SelectorOf(live))
	return len(ready), err
}

// owe notes what a rollout is to be told.
func (d *DriftDetector) owe(claim string, done rollout.Observed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed[claim] = append(d.owed[claim], done)
}

// tellOwed tells a rollout what was done for it, in order.
func (d *DriftDetector) tellOwed(ctx context.Context, claim string) error {
	for {
		d.mu.Lock()
		owed := slices.Clone(d.owed[claim])
		d.mu.Unlock()
		if len(owed) == 0 {
			return nil
		}
		if err := drift.Signal(ctx, d.temporal, claim, owed[0]); err != nil {
			return err
		}
		d.a.options.Logger.InfoContext(ctx, "requests were kept from meeting nobody", "change", owed[0].Message)
		d.mu.Lock()
		if d.owed[claim] = d.owed[claim][1:]; len(d.owed[claim]) == 0 {
			delete(d.owed, claim)
		}
		d.mu.Unlock()
	}
}
