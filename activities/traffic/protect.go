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

// maxAttempts is how often a write that hit a conflict is decided again immediately.
const maxAttempts = 5

// protectTraffic makes sure that Services and routes of a rollout never select zero ready pods. A pinned Service gets
// its original selector back if none of that version's pods is ready while others are, or if the workload's own
// controller may move the pods. Routes to a canary Service without ready pods are restored, and those to one that stays
// deleted. The worker acts by itself, in every state of the rollout. It signals the rollout before, which shows whether
// the rollout runs in this engine, and afterwards; the rollout pins and routes again when it has ready pods. again is
// when to look again; 0: at the next change.
func (d *DriftDetector) protectTraffic(ctx context.Context, claim string) (again time.Duration, err error) {
	if err := d.sendReports(ctx, claim); err != nil {
		return 0, err
	}
	h, _ := d.holdings.Held(claim)
	if err := d.watchRoutesOf(h); err != nil {
		return 0, err
	}
	for _, service := range d.servicesOf(claim) {
		at := services.at(service.Namespace, service.Name)
		if !drift.MayHold(d.a.options.Parties, claim, at.Namespace) {
			continue
		}
		if err := d.checkCanaryService(ctx, service, h); err != nil {
			return 0, err
		}
		loose := service.borrowed && h.Unsettled
		if !loose && d.hasReadyEndpoint(at) {
			continue
		}
		if err := d.protect(ctx, at, func() error {
			if service.borrowed {
				return d.unpin(ctx, at, claim, loose)
			}
			return d.unroute(ctx, at, claim, h)
		}); err != nil {
			return 0, err
		}
	}
	if again, err = d.unrouteLost(ctx, claim, h); err != nil {
		return 0, err
	}
	return again, d.sendReports(ctx, claim)
}

// protect makes a change for a Service, which it decides again after a conflict.
func (d *DriftDetector) protect(ctx context.Context, service place, change func() error) error {
	err := errRetry
	for try := 0; try < maxAttempts && errors.Is(err, errRetry); try++ {
		err = change()
	}
	if f, is := errors.AsType[*failure.Error](err); is { // the rollout hits the same failure and reports it
		d.a.options.Logger.WarnContext(ctx, "requests to a Service reach no ready pod, and this could not be fixed",
			"service", service.String(), "error", f)
		return nil
	}
	return err
}

// lostGrace is how long a rollout may take to create a canary Service again that another client has deleted. It does so
// within a second, unless it waits for a person, or its pods are being finished.
const lostGrace = 5 * time.Second

// unrouteLost restores the routes to canary Services that another client has deleted, and that the rollout has not
// created again. While the stable Service has no ready pod either, it waits for the next change of its endpoints. again
// is when to look again; 0: at the next change.
func (d *DriftDetector) unrouteLost(ctx context.Context, claim string, h drift.Holding) (again time.Duration,
	err error) {
	var lost []*missingObject
	d.lostServices.Range(func(_, value any) bool {
		if one := value.(*missingObject); one.claim == claim {
			lost = append(lost, one)
		}
		return true
	})
	for _, one := range lost {
		at := one.place()
		_, removed := d.a.removed.Get(one.UID)
		stays := !removed && d.find(at) == nil && drift.MayHold(d.a.options.Parties, claim, at.Namespace)
		if wait := lostGrace - time.Since(one.since); stays && wait > 0 {
			if again == 0 || wait < again {
				again = wait
			}
			continue
		}
		done := true
		if stays && h.Claim != "" {
			if err := d.protect(ctx, at, func() (err error) {
				done, err = d.unrouteDeleted(ctx, at, claim, h)
				return err
			}); err != nil {
				return 0, err
			}
		}
		if done {
			d.lostServices.CompareAndDelete(at, one)
		}
	}
	return again, nil
}

// unrouteDeleted restores the routes to a canary Service that does not exist, as routeToStable does.
func (d *DriftDetector) unrouteDeleted(ctx context.Context, canary place, claim string, h drift.Holding) (done bool,
	err error) {
	live, err := d.a.get(ctx, canary)
	if err != nil || live != nil {
		return live != nil, err
	}
	return d.routeToStable(ctx, canary, claim, h, canary.String()+" was deleted by another client")
}

// checkCanaryService checks once whether the canary Service of a pinned Service still exists that was there when the
// watch began. A deletion before the watch leaves no event.
func (d *DriftDetector) checkCanaryService(ctx context.Context, stable *borrowedObject, h drift.Holding) error {
	if _, unchecked := d.uncheckedServices.Load(stable.place()); !unchecked || h.Claim == "" {
		return nil // it is checked, or the rollout's holdings are not known yet
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
			left := &borrowedObject{kind: stable.kind, claim: stable.claim}
			left.Namespace, left.Name = at.Namespace, at.Name
			missing := &missingObject{borrowedObject: left, since: time.Now()}
			d.leftWatch.Store(at, missing)
			d.lostServices.Store(at, missing)
			d.teller.Enqueue(at)
		}
	}
	d.uncheckedServices.Delete(stable.place())
	return nil
}

// watchRoutesOf starts watches for the kinds that a rollout routes by and that are not watched anyway.
func (d *DriftDetector) watchRoutesOf(h drift.Holding) error {
	for _, r := range h.Routings {
		if r.HTTPRoute != "" {
			if err := d.watchFoundKind(d.a.kinds.httpRoutes()); err != nil {
				return err
			}
		}
		for _, ref := range r.Custom {
			if err := d.watchFoundKind(d.a.kinds.lookup(ref.APIVersion, ref.Kind)); err != nil {
				return err
			}
		}
	}
	return nil
}

// watchFoundKind starts a watch for a kind that was looked up. It ignores a kind that the cluster does not have, and
// one that no release changes.
func (d *DriftDetector) watchFoundKind(k kind, err error) error {
	var f *failure.Error
	if err == nil && k.identity().Forbidden() == "" {
		d.watchKind(routingKind(k))
	}
	if errors.As(err, &f) {
		return nil
	}
	return err
}

// unpin restores a Service's selector, if that selects ready pods and the pinned one selects none, or may soon select
// none.
func (d *DriftDetector) unpin(ctx context.Context, at place, claim string, loose bool) error {
	live, err := d.a.get(ctx, at)
	if err != nil || live == nil || d.a.checkRepair(at, live) != nil {
		return err
	}
	b, err := traffic.ReadBorrowed(at.String(), live, at.borrows)
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
		why = "another client lets the workload's own controller move pods"
	}
	done := rollout.Observed{What: rollout.ObservedUnpinned, Claim: claim, Object: at.String(),
		Message: fmt.Sprintf("%s has its original selector again, since %s", at, why)}
	w, err := b.PlanRestore(traffic.Claimant{Claim: claim, Overwrite: true})
	if err != nil || w == nil || !d.mayAct(ctx, claim, done) {
		return err
	}
	if err := d.a.sendRestore(ctx, at, live, w); err != nil {
		return err
	}
	d.queueReport(claim, done)
	return nil
}

// unroute restores the routes to a canary Service without ready pods, if the stable Service has some.
func (d *DriftDetector) unroute(ctx context.Context, canary place, claim string, h drift.Holding) error {
	live, err := d.a.get(ctx, canary)
	if err != nil || live == nil || traffic.HolderOf(live) != claim || d.a.checkRepair(canary, live) != nil {
		return err
	}
	ready, err := d.a.readyPods(ctx, canary.Namespace, traffic.SelectorOf(live))
	if err != nil || len(ready) > 0 {
		return err
	}
	_, err = d.routeToStable(ctx, canary, claim, h, "no pod of the new version is ready")
	return err
}

// routeToStable restores the routes to a canary Service. done is false if the stable Service has no ready pods: then
// nothing is written.
func (d *DriftDetector) routeToStable(ctx context.Context, canary place, claim string, h drift.Holding,
	why string) (done bool, err error) {
	request := rollout.RouteRequest{Subject: rollout.Subject{Workload: catalog.Workload{Namespace: canary.Namespace,
		WorkloadRef: h.Workload.WorkloadRef}, Claim: claim}, Action: rollout.RouteToStable, Routings: h.Routings,
		Overwrite: true}
	for _, j := range jobs(request) {
		if j.pair.Canary != canary.Name {
			continue
		}
		if ready, err := d.readyPodCount(ctx, j.stable()); err != nil || ready == 0 {
			return false, err
		}
		change := rollout.Observed{What: rollout.ObservedUnrouted, Claim: claim, Object: canary.String(),
			Message: fmt.Sprintf("%s sends all requests to %s, since %s", target(j.routing), j.stable(), why)}
		held, err := d.a.held(ctx, j)
		ours := func(p heldPlace) bool { return p.holder == j.hand.Claim }
		if err != nil || !slices.ContainsFunc(held, ours) || !d.mayAct(ctx, claim, change) {
			return err == nil, err
		}
		wrote, err := d.a.finalise(ctx, j)
		if err != nil {
			return false, err
		}
		if wrote {
			d.queueReport(claim, change)
		}
	}
	return true, nil
}

// mayAct reports whether this worker may act for a claim: its rollout runs in this engine, or no workload carries the
// claim any more, as after a stop to frozen. In that case any engine would do the same.
func (d *DriftDetector) mayAct(ctx context.Context, claim string, done rollout.Observed) bool {
	_, held := d.holdings.Held(claim)
	return !held || drift.RunsHere(ctx, d.temporal, claim, done)
}

// readyPodCount returns how many ready pods a Service selects.
func (d *DriftDetector) readyPodCount(ctx context.Context, at place) (int, error) {
	live, err := d.a.get(ctx, at)
	if err != nil || live == nil {
		return 0, err
	}
	ready, err := d.a.readyPods(ctx, at.Namespace, traffic.SelectorOf(live))
	return len(ready), err
}

// queueReport records a change that is to be reported to the rollout.
func (d *DriftDetector) queueReport(claim string, done rollout.Observed) {
	d.pendingReports.Store(claim, append(d.reportsOf(claim), done))
}

func (d *DriftDetector) reportsOf(claim string) []rollout.Observed {
	found, _ := d.pendingReports.Load(claim)
	reports, _ := found.([]rollout.Observed)
	return reports
}

// sendReports signals the recorded changes to the rollout, in order.
func (d *DriftDetector) sendReports(ctx context.Context, claim string) error {
	for reports := d.reportsOf(claim); len(reports) > 0; reports = reports[1:] {
		d.pendingReports.Store(claim, reports)
		if err := drift.Signal(ctx, d.temporal, claim, reports[0]); err != nil {
			return err
		}
		d.a.options.Logger.InfoContext(ctx, "the traffic of a release was protected", "change", reports[0].Message)
	}
	d.pendingReports.Delete(claim)
	return nil
}
