package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// minPause and maxPause limit the pause between two reads of endpoints, which doubles each time.
const minPause, maxPause = 50 * time.Millisecond, time.Second

// restoreTimeout limits the wait for restored endpoints: they usually follow the pods within a second, on a busy
// cluster later.
const restoreTimeout = 3 * time.Second

// routeJob is one change of the traffic.
type routeJob struct {
	*attempt.Attempt
	a   *Activities
	req rollout.RouteRequest
	// pauses counts the pauses between two reads.
	pauses int
	// tried is true once the scripts have been tried; omitted are the routes that the change leaves out.
	tried   bool
	omitted []omission
	// noPods is the time since which a Service has no pod at all; zero while it has some.
	noPods time.Time
	// message describes the traffic after the change.
	message string
	// unfinished is the condition that a restoring change stopped waiting for.
	unfinished string
}

// Route makes one change of the traffic, or finds that it is already made. The error's type is a failure.Kind: NotReady
// is retried, Drift and Claimed are caused by another client or release, WorkloadFailed means that the pods that should
// take the requests were not ready in time.
func (a *Activities) Route(ctx context.Context, req rollout.RouteRequest) (rollout.RouteResult, error) {
	if f := a.check(req); f != nil {
		return rollout.RouteResult{}, attempt.ApplicationError(f)
	}
	if req.DeadlineSeconds <= 0 {
		req.DeadlineSeconds = strategy.DefaultStepDeadlineSeconds
	}
	job := &routeJob{a: a, req: req}
	terms := attempt.Terms{Subject: req.Workload.String(), DeadlineSeconds: req.DeadlineSeconds,
		SpentSeconds: req.SpentSeconds, UnreachableBudgetSeconds: req.UnreachableBudgetSeconds}
	job.Attempt = attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Slots: a.slots, Now: time.Now},
		terms)
	if activity.IsActivity(ctx) && activity.GetInfo(ctx).Attempt > 1 {
		job.modified() // the last attempt may have died right after a write: an unnecessary grace period is harmless
	}
	if err := job.Run(ctx, job); err != nil {
		return rollout.RouteResult{}, err
	}
	return job.result(), nil
}

// check refuses requests that are invalid in every state of the cluster.
func (a *Activities) check(req rollout.RouteRequest) *failure.Error {
	switch {
	case !a.cluster.Serves(req.Workload.Namespace):
		return failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req.Workload,
			req.Workload.Namespace)
	case actions[req.Action] == nil:
		return failure.New(failure.Refused, "%s: there is no change of traffic called %q", req.Workload, req.Action)
	case req.Claim == "":
		return failure.New(failure.Refused, "%s: a change of traffic needs the release's claim", req.Workload)
	case req.NoCanary:
		return nil
	case req.Action == rollout.RoutePin && req.StableHash == "":
		return failure.New(failure.Refused,
			"%s: its stable revision is not known, so that no Service can be pinned to it", req.Workload)
	case (req.Action == rollout.RouteEnsure || req.Action == rollout.RouteToNew) && req.CanaryHash == "":
		return failure.New(failure.Refused, "%s: its new revision is not known, so that nothing can be routed to it",
			req.Workload)
	}
	return nil
}

func (t *routeJob) modified() {
	t.Note(func(p *workload.Progress) { p.Modified = true })
}

func (t *routeJob) result() rollout.RouteResult {
	out := rollout.RouteResult{Modified: t.Progress().Modified, Message: t.message, MissingPods: t.unfinished,
		LeftOut: t.leftOut()}
	if out.Modified {
		for _, r := range t.req.Routings {
			out.GraceSeconds = max(out.GraceSeconds, r.GraceSeconds)
		}
	}
	return out
}

// Reconcile makes the changes that are missing; a further round then checks whether they are in effect.
func (t *routeJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	ctx = kube.WithReadCache(ctx) // the parts read the same Services, scripts and routes
	if err := t.checkAllowed(ctx); err != nil {
		return attempt.Next{}, err
	}
	message, err := actions[t.req.Action](ctx, t)
	var f *failure.Error
	if given := t.noPodsFailure(ctx, err); given != nil {
		return attempt.Next{}, given
	}
	switch {
	case err == nil:
		t.message = message
		return attempt.Next{Action: attempt.Done}, nil
	case errors.Is(err, errRetry):
		return attempt.Next{}, nil
	case errors.As(err, &f) && f.Kind == failure.NotReady:
		return t.wait(f.Message)
	}
	return attempt.Next{}, err
}

// makes reports whether the request changes routes, instead of restoring them.
func (t *routeJob) makes() bool {
	return t.req.Action == rollout.RoutePin || t.req.Action == rollout.RouteEnsure ||
		t.req.Action == rollout.RouteToNew
}

// checkAllowed checks, before the first write, that the rollout may change the routes. What it has borrowed may always
// be restored.
func (t *routeJob) checkAllowed(ctx context.Context) error {
	if !t.makes() {
		return nil
	}
	for _, j := range jobs(t.req) {
		if err := t.noteWrite(false, t.a.checkReach(ctx, j)); err != nil {
			return err
		}
	}
	return t.checkClaim(ctx)
}

// checkClaim makes sure that the rollout still holds its workload before it overwrites changes by other clients. A user
// who restores the workload by hand, or with slipway repair, deletes objects whose own marks can no longer show that.
func (t *routeJob) checkClaim(ctx context.Context) error {
	// not a TrafficRouting's
	own := rollout.WorkflowID(t.req.Workload.PartyOrDefault(), t.req.Workload.Namespace, t.req.Name)
	if !t.req.Overwrite || t.a.options.Repairing || workload.ParseHolder(t.req.Claim).WorkflowID != own {
		return nil
	}
	claimed, err := t.a.workload(ctx, t.req.Subject)
	if err := t.noteWrite(false, err); err != nil || claimed == nil {
		return err
	}
	by := meta(claimed).GetAnnotations()
	switch {
	case by[rollout.AnnotationRepair] != "":
		return rollout.UnderRepair(t.req.Workload.String(), by[rollout.AnnotationRepair])
	case by[workload.AnnotationClaimedBy] != t.req.Claim:
		return failure.New(failure.ClaimLost, "%s: another client has removed this rollout's claim (annotation %s): "+
			"its routes are left unchanged", t.req.Workload, workload.AnnotationClaimedBy)
	}
	return nil
}

// noPodsTimeout is how long the job waits for a Service that has no pod at all.
const noPodsTimeout = 5 * time.Second

// noPodsFailure returns the failure of a Service that has had no pod for noPodsTimeout although its workload should
// have some: the controller that creates them was probably deleted, so waiting for the deadline is useless.
func (t *routeJob) noPodsFailure(ctx context.Context, err error) error {
	var f *failure.Error
	switch {
	case !errors.Is(err, errNoPods) || !errors.As(err, &f):
		t.noPods = time.Time{}
		return nil
	case t.noPods.IsZero():
		t.noPods = t.Now()
	}
	if t.Now().Sub(t.noPods) < noPodsTimeout {
		return nil
	}
	workload, err := t.a.workload(ctx, t.req.Subject)
	if err := t.noteWrite(false, err); err != nil || deletedOrEmpty(workload) {
		return err
	}
	return failure.New(failure.WorkloadFailed, "%s: %s", t.req.Workload, f.Message)
}

// deletedOrEmpty reports whether a workload was deleted or scaled to zero.
func deletedOrEmpty(workload map[string]any) bool {
	size, sized, _ := unstructured.NestedInt64(workload, "spec", "replicas")
	return workload == nil || sized && size == 0
}

// wait schedules the next read, until the deadline.
func (t *routeJob) wait(reason string) (attempt.Next, error) {
	if p := t.Progress(); t.req.Restores && p.Elapsed() >= restoreTimeout {
		t.unfinished = reason
		return attempt.Next{Action: attempt.Done}, nil
	}
	if t.Overdue() {
		p := t.Progress()
		return attempt.Next{}, failure.New(failure.WorkloadFailed, "%s: after %d s: %s", t.req.Workload,
			int64(p.Elapsed()/time.Second), reason)
	}
	t.pauses++
	return attempt.Next{Action: attempt.Wait, Reason: reason, Within: backoff.After(t.pauses, minPause, maxPause)}, nil
}

// Missing implements attempt.Job: the cluster does not have the resource at all. Deleted objects are handled by the
// decisions.
func (t *routeJob) Missing(err error) error {
	return failure.New(failure.Refused, "%s: its cluster does not accept this: %s", t.req.Workload, kube.Text(err))
}

// Failed returns the failure unchanged: the routes stay as they are.
func (t *routeJob) Failed(_ context.Context, f *failure.Error) *failure.Error { return f }

// noteWrite records whether a part wrote, and that the cluster was reachable.
func (t *routeJob) noteWrite(wrote bool, err error) error {
	if wrote {
		t.modified()
	}
	var f *failure.Error
	if err == nil || errors.As(err, &f) || errors.Is(err, errRetry) {
		t.Read()
	}
	return err
}

// actions implement the changes of the traffic. Each makes what is missing and returns a sentence that describes the
// result.
var actions = map[rollout.RouteAction]func(ctx context.Context, t *routeJob) (string, error){
	rollout.RoutePin:          pinServices,
	rollout.RouteEnsure:       ensureRoutes,
	rollout.RouteUnpin:        unpinServices,
	rollout.RouteToStable:     routeToStable,
	rollout.RouteToNew:        ensureRoutes,
	rollout.RouteRemoveCanary: removeCanary,
}

// eachService calls do once for each Service, since several routings may use the same one, and joins the results.
func (t *routeJob) eachService(do func(j job) (string, error)) (string, error) {
	if t.req.NoCanary {
		return "the Services are not changed: this rollout has no canary Service", nil
	}
	var once []job
	for _, j := range jobs(t.req) {
		if !slices.ContainsFunc(once, func(o job) bool { return o.pair.Stable == j.pair.Stable }) {
			once = append(once, j)
		}
	}
	return each(once, do)
}

// each calls do with one job after the other, and joins the results.
func each(list []job, do func(j job) (string, error)) (string, error) {
	var results []string
	for _, j := range list {
		one, err := do(j)
		if err != nil {
			return "", err
		}
		results = append(results, one)
	}
	return strings.Join(results, "; "), nil
}

func pinServices(ctx context.Context, t *routeJob) (string, error) {
	return t.eachService(func(j job) (string, error) {
		j.version.Hash, j.version.Labels = t.req.StableHash, nil
		if err := t.noteWrite(t.a.pin(ctx, j)); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s selects the stable version only (%s)", j.stable(), t.req.StableHash),
			t.served(ctx, j.stable())
	})
}

func unpinServices(ctx context.Context, t *routeJob) (string, error) {
	return t.eachService(func(j job) (string, error) {
		p := j.stable()
		if err := t.noteWrite(t.a.restore(ctx, p, j.hand)); err != nil {
			return "", err
		}
		live, err := t.a.get(ctx, p)
		if err := t.noteWrite(false, err); err != nil {
			return "", err
		}
		if live == nil {
			return fmt.Sprintf("%s was deleted: there is nothing to restore", p), nil
		}
		return fmt.Sprintf("%s has its original selector", p), t.servedUnlessEmpty(ctx, p)
	})
}

// served waits until a Service has a ready endpoint.
func (t *routeJob) served(ctx context.Context, service place) error {
	reason, err := t.a.unserved(ctx, service)
	if err := t.noteWrite(false, err); err != nil {
		return err
	}
	if reason != "" {
		return notYet("%s", reason)
	}
	return nil
}

// servedUnlessEmpty is served, but does not wait if the workload was deleted or scaled to zero.
func (t *routeJob) servedUnlessEmpty(ctx context.Context, service place) error {
	waits := t.served(ctx, service)
	if waits == nil {
		return nil
	}
	workload, err := t.a.workload(ctx, t.req.Subject)
	if err := t.noteWrite(false, err); err != nil || deletedOrEmpty(workload) {
		return err
	}
	return waits
}

// ensureRoutes implements RouteEnsure and RouteToNew, whose jobs ask for all requests.
func ensureRoutes(ctx context.Context, t *routeJob) (string, error) {
	if err := t.tryScripts(ctx); err != nil {
		return "", err
	}
	if _, err := t.eachService(func(j job) (string, error) {
		if err := t.noteWrite(t.a.canaryService(ctx, j)); err != nil || !sendsRequests(j.asks) {
			return "", err
		}
		return "", t.served(ctx, j.canary())
	}); err != nil {
		return "", err
	}
	return each(jobs(t.req), func(j job) (string, error) {
		wrote, err := t.a.eachRoute(ctx, j, t.make)
		if err := t.noteWrite(wrote, err); err != nil {
			return "", err
		}
		if wrote {
			return "", errRetry // another round verifies that nothing is left to write
		}
		return routeSummary(j), nil
	})
}

// routeSummary describes what a routing does.
func routeSummary(j job) string {
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

// target names the object of a routing.
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
		return target(j.routing) + " is restored", t.noteWrite(t.a.finalise(ctx, j))
	})
}

func removeCanary(ctx context.Context, t *routeJob) (string, error) {
	return t.eachService(func(j job) (string, error) {
		return fmt.Sprintf("%s is removed", j.canary()), t.noteWrite(t.a.removeCreated(ctx, j.canary(), j.hand))
	})
}
