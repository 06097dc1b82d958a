package workload

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/workload"
)

// settle is how long to wait after a change of a pod, because other changes usually follow at once.
const settle = 50 * time.Millisecond

// operationJob carries out one operation.
type operationJob struct {
	job
	req operation.Request
	// fresh is the object as our last write returned it, which saves a read; nil when it must be read.
	fresh *unstructured.Unstructured
	// restoreTemplate is the pod template that RESTORE sets; nil before it was found, and for other operations.
	restoreTemplate map[string]any
	// podsAt is where a watch of the pods continues from the last read.
	podsAt metav1.ListOptions
	// end is the operation's result, once it is known.
	end *workload.Ending
}

// Run brings one workload into the requested state and restores what it borrowed. It fails with a failure.Kind as the
// error's type; NotReady is retried. Its progress passes from attempt to attempt as heartbeat details
// (workload.Progress). If the request asks for it, it also ends when pods are not created or do not start.
func (a *Activities) Run(ctx context.Context, req operation.Request) (workload.Result, error) {
	if f := a.check(req); f != nil {
		return workload.Result{}, attempt.ApplicationError(f)
	}
	t := &operationJob{req: req, job: a.job(ctx, req.Workload, attempt.Terms{DeadlineSeconds: req.DeadlineSeconds,
		SpentSeconds: req.SpentSeconds, UnreachableBudgetSeconds: req.UnreachableBudgetSeconds})}
	defer t.follow()()
	var result workload.Result
	err := t.Run(ctx, t)
	if err == nil {
		result = *t.end.Result
	}
	if result.Blocked != "" {
		a.reportBlocked(ctx, t.lastRead.known, req.Claim, result.Blocked)
		return result, nil
	}
	a.events.record(t.lastRead.known, req.Claim, eventEnded, ": "+result.Message, err)
	return result, err
}

// check refuses requests that are wrong whatever the state of the cluster.
func (a *Activities) check(req operation.Request) *failure.Error {
	if f := operation.Validate(req); f != nil {
		return f
	}
	if !a.cluster.Serves(req.Workload.Namespace) {
		return failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req.Workload,
			req.Workload.Namespace)
	}
	if req.Version() != nil && a.options.Packages == nil {
		return failure.New(failure.Refused, "%s: %s", req.Workload, noVersions)
	}
	return nil
}

// Reconcile reads the workload once and carries out the decision.
func (t *operationJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	o, err := t.read(ctx)
	if err != nil {
		return attempt.Next{}, err
	}
	d, err := t.decide(ctx, o)
	if err != nil {
		return attempt.Next{}, err
	}
	t.Note(func(p *workload.Progress) { p.Message = d.Reason })
	if d.Action == workload.ActWrite || d.Action == workload.ActDelete {
		if err := t.requireListed(ctx); err != nil {
			return attempt.Next{}, err
		}
	}
	switch d.Action {
	case workload.ActWrite:
		return t.carryOutWrite(ctx, o, d)
	case workload.ActDelete:
		of := string(t.req.Operation)
		return attempt.Next{}, t.deletePods(ctx, d.Delete, "pod.delete.before/"+of, "pod.delete.after/"+of)
	case workload.ActWait:
		if d.Blocked != "" {
			return t.endWith(workload.Ending{Result: &workload.Result{Blocked: d.Blocked,
				SpentSeconds: int64(o.seen.Elapsed / time.Second)}})
		}
		next := t.wait(d.Reason, false)
		if d.WatchPods && t.podsAt.ResourceVersion != "" {
			next.Listen = t.watchPods
		}
		return next, nil
	default:
		end, _ := d.Ending()
		return t.endWith(end)
	}
}

// endWith ends the operation.
func (t *operationJob) endWith(end workload.Ending) (attempt.Next, error) {
	t.end = &end
	if end.Failure != nil {
		return attempt.Next{}, end.Failure
	}
	return attempt.Next{Action: attempt.Done}, nil
}

// read reads the workload, unless our last write has just returned it.
func (t *operationJob) read(ctx context.Context) (*object, error) {
	live := t.fresh
	t.fresh = nil
	if live == nil {
		var err error
		if live, err = t.get(ctx); err != nil {
			return nil, err
		}
	}
	o, err := t.observe(ctx, live)
	if err == nil {
		t.Read()
	}
	return o, err
}

// observe is what this operation reads of its workload.
func (t *operationJob) observe(ctx context.Context, live *unstructured.Unstructured) (*object, error) {
	o := t.kind.observe(live)
	t.noteCopy(ctx, o)
	if v := t.req.Version(); v != nil {
		o.seen.Marker = ""
		if v.PresentIn(templateOf(live)) {
			o.seen.Marker = v.Marker()
		}
		o.seen.Template = t.kind.recordedRevision(o)
	}
	if t.req.Restore != nil && t.req.Restore.Template != nil {
		o.seen.Template = t.kind.recordedRevision(o)
		return o, t.findRestoreTemplate(ctx, o)
	}
	return o, nil
}

// decide lets release/operation decide. It passes the pods when the decision needs them, or when it is time to check
// what blocks them.
func (t *operationJob) decide(ctx context.Context, o *object) (workload.NextAction, error) {
	seen := &o.seen
	t.Note(func(p *workload.Progress) { p.RecordPods(seen.Updated, seen.Ready) })
	p := t.Progress()
	seen.Now, seen.Elapsed, seen.Held, seen.Ending = t.Now(), p.Elapsed(), p.Held, p.Ending
	seen.StalledFor = p.StalledFor()
	seen.BlockedByBudget = t.takeBlockingBudget()
	if seen.Claim == t.req.Claim {
		// While the claim is on the workload, the last write has not been made.
		t.Note(func(p *workload.Progress) { p.Held, p.Ending = true, nil })
	}
	inStatus := seen.Creation
	due := !seen.Now.Before(t.nextPodCheck) || t.mustAsk(seen.Snapshot)
	if seen.Total < seen.Replicas && !inStatus.Reported() { // until its pods are read again
		seen.Creation = t.missing.creation()
	}
	d := operation.Decide(t.req, *seen)
	if d.Action != workload.ActReadPods && (d.Action != workload.ActWait || !due) {
		t.checkPodsSooner(d.RecheckAfter)
		return d, nil
	}
	if due {
		t.delayPodCheck()
	}
	seen.Creation = inStatus
	if err := t.readPods(ctx, o); err != nil {
		return d, err
	}
	if d = operation.Decide(t.req, *seen); needsExplanation(d) && t.explain(ctx, o) {
		d = operation.Decide(t.req, *seen)
	}
	if d.RecheckAfter > 0 {
		t.podCheckWithin(d.RecheckAfter)
	}
	return d, nil
}

// readPods adds the pods that the workload owns.
func (t *operationJob) readPods(ctx context.Context, o *object) (err error) {
	o.seen.PodsSeen = true
	t.podsAt, err = t.eachPod(ctx, o.Unstructured, func(pod *corev1.Pod, seen workload.Pod) {
		if t.kind.owns(o.Unstructured, pod) {
			seen.Marker = pod.Annotations[t.req.MarkerName()]
			o.seen.Pods = append(o.seen.Pods, seen)
		}
	})
	if err != nil {
		return err
	}
	return t.markRestored(ctx, o)
}

// Failed restores what the operation has borrowed, if the cluster accepts that, when the operation is refused halfway.
func (t *operationJob) Failed(ctx context.Context, f *failure.Error) *failure.Error {
	if f.Kind != failure.Refused || t.end != nil {
		return f
	}
	t.fresh, t.rejected = nil, ""
	result, err := t.restoreBorrowed(ctx)
	if result == nil && err == nil { // another client was faster
		result, err = t.restoreBorrowed(ctx)
	}
	if result == nil && (err == nil || failure.Is(err, failure.Refused)) {
		err = t.rejection // the server's own message
	}
	if err != nil && !kube.IsAny(err, kube.Missing) {
		f.RestorePending = t.Progress().Held
		f.Message += "; borrowed settings are not restored yet: " + kube.Text(err)
	}
	return f
}

// restoreBorrowed restores what this operation holds; nil when that must be decided again.
func (t *operationJob) restoreBorrowed(ctx context.Context) (*workload.Result, error) {
	o, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	d := operation.Restore(t.req, o.seen)
	if d.Action == workload.ActWrite {
		if after, err := t.write(ctx, o, d.Write); after == nil {
			return nil, err
		}
	}
	return d.Result, nil
}

// Missing is the failure of a workload that does not exist.
func (t *operationJob) Missing(error) error {
	if t.Progress().Held {
		return failure.New(failure.WorkloadFailed, "%s was deleted by another client during %s", t.req.Workload,
			t.req.Operation)
	}
	return failure.New(failure.NotFound, "%s does not exist: create it, or remove it from the catalogue",
		t.req.Workload)
}

// carryOutWrite makes one write, which may end the operation.
func (t *operationJob) carryOutWrite(ctx context.Context, o *object, d workload.NextAction) (attempt.Next, error) {
	end, ends := d.Ending()
	if ends {
		// The result is recorded first: once the claim is released, nothing on the workload shows what was done.
		t.Note(func(p *workload.Progress) { p.Ending = &end })
		if err := t.Record(ctx); err != nil {
			return attempt.Next{}, err
		}
	}
	after, err := t.write(ctx, o, d.Write)
	if ends && after != nil {
		return t.endWith(end)
	}
	t.fresh = after
	return attempt.Next{}, err
}

func (t *operationJob) write(ctx context.Context, o *object, w *workload.Write) (*unstructured.Unstructured, error) {
	template, err := t.template(ctx, o, w)
	if err == nil && w.Claim != "" && w.Template == nil && t.restoreTemplate != nil { // a later write sets it
		err = t.admit(t.restoreTemplate, templateOf(o.Unstructured), true)
	}
	if err != nil {
		return nil, err
	}
	return t.patch(ctx, change{t.kind.Resource, o.Unstructured, patchOf(o.Unstructured, w, template), "workload.patch",
		string(t.req.Operation) + "/" + w.Step})
}

// template is the pod template that a write sets; nil when it does not change the template.
func (t *operationJob) template(ctx context.Context, o *object, w *workload.Write) (template map[string]any,
	err error) {
	switch {
	case w.Template == nil:
		return nil, nil
	case t.req.Restore == nil:
		template, err = t.withVersion(ctx, t.req.Version(), templateOf(o.Unstructured))
	case t.restoreTemplate == nil: // it existed when that was decided
		err = t.refuse("the earlier pod template has just been removed from its cluster")
	default:
		template = t.restoreTemplate
	}
	if err == nil {
		err = t.admit(template, templateOf(o.Unstructured), t.req.Restore != nil)
	}
	if err == nil {
		t.keep(ctx, o.seen.Package, packageOf(template))
	}
	return template, err
}

// watchPods watches the workload, and its pods from the version that was last read.
func (t *operationJob) watchPods(ctx context.Context) (<-chan struct{}, error) {
	options := t.podsAt
	options.TimeoutSeconds = new(int64(t.a.options.ListenFor/time.Second) + 1)
	pods, err := t.a.cluster.Client.CoreV1().Pods(t.req.Workload.Namespace).Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	go func() {
		defer pods.Stop()
		select {
		case <-ctx.Done():
			return
		case <-pods.ResultChan():
		}
		if pause.For(ctx, settle) == nil {
			watch.Wake(t.wake)
		}
	}()
	return t.wake, nil
}

// restoreJob restores what an unfinished operation borrowed.
type restoreJob struct {
	*operationJob
	result workload.Result
	// persist makes the server retry every failure: the workflow already has it.
	persist bool
}

// Restore restores what an unfinished Run borrowed, and releases its claim; a workload that the request does not hold
// is left unchanged. It has no deadline and no budget: while the cluster is unreachable it fails with NotReady and is
// retried for as long as it takes, since no workflow closes with a pending restore.
//
// With Persist it fails with NotReady for every reason.
func (a *Activities) Restore(ctx context.Context, req operation.RestoreRequest) (workload.Result, error) {
	t := &restoreJob{operationJob: &operationJob{req: req.Request, job: a.job(ctx, req.Workload, attempt.Terms{})},
		persist: req.Persist}
	if f := a.check(req.Request); f != nil {
		return workload.Result{}, attempt.ApplicationError(t.Failed(ctx, f))
	}
	err := t.Run(ctx, t)
	return t.result, err
}

// Reconcile reads once and restores.
func (t *restoreJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	result, err := t.restoreBorrowed(ctx)
	switch {
	case result != nil:
		t.result = *result
	case err == nil:
		return attempt.Next{Action: attempt.Again}, nil
	case kube.IsAny(err, kube.Missing):
		t.result.Message = "nothing to restore: the workload no longer exists"
	case kube.IsAny(err, kube.Refused):
		return attempt.Next{}, t.refuse("its cluster refuses to restore its settings: %s. The engine retries until it "+
			"succeeds: correct the policy or webhook that refuses it", kube.Text(err))
	default:
		return attempt.Next{}, err
	}
	return attempt.Next{Action: attempt.Done}, nil
}

// Failed returns the failure unchanged, because restoring itself has failed; a failure that the workflow already has is
// retried by the server.
func (t *restoreJob) Failed(_ context.Context, f *failure.Error) *failure.Error {
	if !t.persist || f.Kind.Retryable() {
		return f
	}
	return &failure.Error{Kind: failure.NotReady, Message: f.Message, RetryAfter: operation.RestoreRetryInterval}
}
