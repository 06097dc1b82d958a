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
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// shortestLook and longestLook limit the pause between two looks at endpoints, which doubles.
const shortestLook, longestLook = 50 * time.Millisecond, time.Second

// restoresWithin is how long what is put back may take to be in effect: endpoints follow the pods within a second, on a busy cluster.
const restoresWithin = 3 * time.Second

// routeJob makes one change of the traffic.
type routeJob struct {
	*attempt.Attempt
	a   *Activities
	req rollout.RouteRequest
	// look is the pause before the last look.
	look time.Duration
	// noPods is since when a Service has no pod at all; the zero time while it has some.
	noPods time.Time
	// message says how the traffic is once the change is made.
	message string
	// lacks is what one that restores would have had to wait for.
	lacks string
}

// Route makes one change of the traffic, or finds that it is made. It fails with a failure.Kind as the error's type: NotReady is to be
// tried again, Drift and Claimed are somebody else's doing, WorkloadFailed says that the pods that should take the requests were not ready
// in time.
func (a *Activities) Route(ctx context.Context, req rollout.RouteRequest) (rollout.RouteResult, error) {
	if f := a.check(req); f != nil {
		return rollout.RouteResult{}, attempt.ApplicationError(f)
	}
	if req.DeadlineSeconds <= 0 {
		req.DeadlineSeconds = strategy.DefaultStepDeadlineSeconds
	}
	job := &routeJob{a: a, req: req, look: shortestLook}
	terms := attempt.Terms{Subject: req.Workload.String(), DeadlineSeconds: req.DeadlineSeconds, SpentSeconds: req.SpentSeconds,
		UnreachableBudgetSeconds: req.UnreachableBudgetSeconds}
	job.Attempt = attempt.Start(ctx, attempt.Options{ListenFor: a.options.ListenFor, Turns: a.turns, Now: time.Now}, terms)
	if activity.IsActivity(ctx) && activity.GetInfo(ctx).Attempt > 1 {
		job.modified() // the last attempt may have died right after a write: rather wait the grace period once too often
	}
	if err := job.Run(ctx, job); err != nil {
		return rollout.RouteResult{}, err
	}
	return job.result(), nil
}

// check refuses what no look at the cluster could make right.
func (a *Activities) check(req rollout.RouteRequest) *failure.Error {
	switch {
	case !a.cluster.Serves(req.Workload.Namespace):
		return failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req.Workload, req.Workload.Namespace)
	case actions[req.Action] == nil:
		return failure.New(failure.Refused, "%s: there is no change of traffic called %q", req.Workload, req.Action)
	case req.Claim == "":
		return failure.New(failure.Refused, "%s: a change of traffic needs the release's claim", req.Workload)
	case req.NoCanary:
		return nil
	case req.Action == rollout.RoutePin && req.StableHash == "":
		return failure.New(failure.Refused, "%s: its stable revision is not known, so that no Service can be pinned to it", req.Workload)
	case (req.Action == rollout.RouteEnsure || req.Action == rollout.RouteToNew) && req.CanaryHash == "":
		return failure.New(failure.Refused, "%s: its new revision is not known, so that nothing can be routed to it", req.Workload)
	}
	return nil
}

func (t *routeJob) modified() {
	t.Note(func(p *workloadops.Progress) { p.Modified = true })
}

func (t *routeJob) result() rollout.RouteResult {
	out := rollout.RouteResult{Modified: t.Progress().Modified, Message: t.message, Lacks: t.lacks}
	if out.Modified {
		for _, r := range t.req.Routings {
			out.GraceSeconds = max(out.GraceSeconds, r.GraceSeconds)
		}
	}
	return out
}

// Reconcile makes what is not made yet; a second round then finds out whether it is in effect.
func (t *routeJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	ctx = kube.Once(ctx) // its parts ask for the same Services, scripts and routes
	if err := t.holds(ctx); err != nil {
		return attempt.Next{}, err
	}
	message, err := actions[t.req.Action](ctx, t)
	var f *failure.Error
	if given := t.nobodyComes(ctx, err); given != nil {
		return attempt.Next{}, given
	}
	switch {
	case err == nil:
		t.message = message
		return attempt.Next{Action: attempt.Done}, nil
	case errors.Is(err, errLookAgain):
		return attempt.Next{}, nil
	case errors.As(err, &f) && f.Kind == failure.NotReady:
		return t.wait(f.Message)
	}
	return attempt.Next{}, err
}

// holds makes sure that the workload is still the rollout's before anything is put back that somebody else has changed or deleted. Who brings
// it home, by hand or with slipway repair, deletes objects on which nothing can say so any more.
func (t *routeJob) holds(ctx context.Context) error {
	makes := t.req.Action == rollout.RoutePin || t.req.Action == rollout.RouteEnsure || t.req.Action == rollout.RouteToNew
	own := rollout.WorkflowID(t.req.Workload.PartyOrDefault(), t.req.Workload.Namespace, t.req.Name) // not a TrafficRouting's
	if !t.req.Overwrite || !makes || t.a.options.Repairing || workloadops.ParseHolder(t.req.Claim).WorkflowID != own {
		return nil
	}
	workload, err := t.a.workload(ctx, t.req.Subject)
	if err := t.wrote(false, err); err != nil || workload == nil {
		return err
	}
	by := meta(workload).GetAnnotations()
	switch {
	case by[rollout.AnnotationRepair] != "":
		return rollout.Repaired(t.req.Workload.String(), by[rollout.AnnotationRepair])
	case by[workloadops.AnnotationClaimedBy] != t.req.Claim:
		return failure.New(failure.ClaimLost, "%s: somebody has taken this rollout's claim away (annotation %s): its routes are left as they are",
			t.req.Workload, workloadops.AnnotationClaimedBy)
	}
	return nil
}

// noPodsFor is how long a Service without any pod is waited for.
const noPodsFor = 5 * time.Second

// nobodyComes is the failure of a Service that has had no pod at all for a while, though its workload is to have some: what made them is
// gone, so that the deadline would be waited for in vain.
func (t *routeJob) nobodyComes(ctx context.Context, err error) error {
	var f *failure.Error
	switch {
	case !errors.Is(err, errNoPods) || !errors.As(err, &f):
		t.noPods = time.Time{}
		return nil
	case t.noPods.IsZero():
		t.noPods = t.Now()
	}
	if t.Now().Sub(t.noPods) < noPodsFor {
		return nil
	}
	workload, err := t.a.workload(ctx, t.req.Subject)
	if err := t.wrote(false, err); err != nil || empty(workload) {
		return err
	}
	return failure.New(failure.WorkloadFailed, "%s: %s", t.req.Workload, f.Message)
}

// empty says that a workload was deleted, or scaled to nothing.
func empty(workload map[string]any) bool {
	size, sized, _ := unstructured.NestedInt64(workload, "spec", "replicas")
	return workload == nil || sized && size == 0
}

// wait goes on looking until the deadline's end.
func (t *routeJob) wait(reason string) (attempt.Next, error) {
	if p := t.Progress(); t.req.Restores && p.Elapsed() >= restoresWithin {
		t.lacks = reason
		return attempt.Next{Action: attempt.Done}, nil
	}
	if t.Overdue() {
		p := t.Progress()
		return attempt.Next{}, failure.New(failure.WorkloadFailed, "%s: after %d s: %s", t.req.Workload, int64(p.Elapsed()/time.Second), reason)
	}
	t.look = min(t.look*2, longestLook)
	return attempt.Next{Action: attempt.Wait, Reason: reason, Within: t.look}, nil
}

// Missing is the failure of what the cluster does not know at all: objects that are gone are part of the decisions.
func (t *routeJob) Missing(err error) error {
	return failure.New(failure.Refused, "%s: its cluster does not accept this: %s", t.req.Workload, kube.Text(err))
}

// Failed leaves a failure as it is: the routes stay where they are.
func (t *routeJob) Failed(_ context.Context, f *failure.Error) *failure.Error { return f }

// wrote notes what one part has done.
func (t *routeJob) wrote(wrote bool, err error) error {
	if wrote {
		t.modified()
	}
	var f *failure.Error
	if err == nil || errors.As(err, &f) || errors.Is(err, errLookAgain) {
		t.Read()
	}
	return err
}

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
		return fmt.Sprintf("%s has its own selector", p), t.servedIfItCan(ctx, p)
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

// servedIfItCan is served, but waits for nobody once the workload itself was deleted, or scaled to nothing.
func (t *routeJob) servedIfItCan(ctx context.Context, service place) error {
	waits := t.served(ctx, service)
	if waits == nil {
		return nil
	}
	workload, err := t.a.workload(ctx, t.req.Subject)
	if err := t.wrote(false, err); err != nil || empty(workload) {
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
