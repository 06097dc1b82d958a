package workload

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// settle is how long a change of a pod is left to bring others with it.
const settle = 50 * time.Millisecond

// operationJob carries out one operation.
type operationJob struct {
	job
	req workloadops.Request
	// fresh is the object as a write of ours returned it, which saves a read; nil when it must be read.
	fresh *unstructured.Unstructured
	// recalled is the pod template that RESTORE brings back; nil before it was found, and for other operations.
	recalled map[string]any
	// podsAt is where a watch of the pods goes on from.
	podsAt podList
	// dry says that nothing is to be kept of what it writes, so that packages need not be kept for it.
	dry bool
	// end is the operation's end, once it is reached.
	end *workloadops.Ending
}

// Run brings one workload to what the request asks, and gives back what it borrowed. It fails with a failure.Kind as the error's type;
// NotReady is to be tried again. What it knows travels from attempt to attempt as heartbeat details (workloadops.Progress).
func (a *Activities) Run(ctx context.Context, req workloadops.Request) (workloadops.Result, error) {
	if f := a.check(req); f != nil {
		return workloadops.Result{}, attempt.ApplicationError(f)
	}
	job := a.operationJob(ctx, req, attempt.Terms{DeadlineSeconds: req.DeadlineSeconds, SpentSeconds: req.SpentSeconds,
		UnreachableBudgetSeconds: req.UnreachableBudgetSeconds})
	job.follow()
	defer job.sub.leave()
	if err := job.Run(ctx, job); err != nil {
		a.events.failed(job.last.known, releaseOf(req.Claim), err)
		return workloadops.Result{}, err
	}
	a.events.tell(job.last.known, corev1.EventTypeNormal, eventEnded, fmt.Sprintf("%s: %s", releaseOf(req.Claim), job.end.Result.Message))
	return *job.end.Result, nil
}

// check refuses what no look at the cluster could make right.
func (a *Activities) check(req workloadops.Request) *failure.Error {
	if f := workloadops.Validate(req); f != nil {
		return f
	}
	if !a.cluster.Serves(req.Workload.Namespace) {
		return failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req.Workload, req.Workload.Namespace)
	}
	if req.Version() != nil && a.options.Packages == nil {
		return failure.New(failure.Refused, "%s: %s", req.Workload, noVersions)
	}
	return nil
}

// operationJob begins an attempt at an operation.
func (a *Activities) operationJob(ctx context.Context, req workloadops.Request, terms attempt.Terms) *operationJob {
	k, _ := kindOf(req.Workload.WorkloadRef) // workloadops.Validate knows no other
	return &operationJob{job: a.job(ctx, req.Workload, k, terms), req: req}
}

// Reconcile takes one look and does what is decided.
func (t *operationJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	o, err := t.read(ctx)
	if err != nil {
		return attempt.Next{}, err
	}
	d, err := t.decide(ctx, o)
	if err != nil {
		return attempt.Next{}, err
	}
	t.Note(func(p *workloadops.Progress) { p.Message = d.Reason })
	switch d.Action {
	case workloadops.ActWrite:
		return t.writes(ctx, o, d)
	case workloadops.ActDelete:
		of := string(t.req.Operation)
		return attempt.Next{}, t.deletePods(ctx, d.Delete, "pod.delete.before/"+of, "pod.delete.after/"+of)
	case workloadops.ActWait:
		next := t.wait(d.Reason, false)
		if d.WatchPods && t.podsAt.version != "" {
			next.Listen = t.watchPods
		}
		return next, nil
	default:
		end, _ := d.Ending()
		return t.ends(&end)
	}
}

// ends ends the operation.
func (t *operationJob) ends(end *workloadops.Ending) (attempt.Next, error) {
	t.end = end
	if end.Failure != nil {
		return attempt.Next{}, end.Failure
	}
	return attempt.Next{Action: attempt.Done}, nil
}

// read reads the workload, unless a write of ours has just returned it.
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

// observe is what this operation sees of its workload.
func (t *operationJob) observe(ctx context.Context, live *unstructured.Unstructured) (*object, error) {
	o := t.kind.observe(live)
	if v := t.req.Version(); v != nil {
		o.seen.Marker = ""
		if v.StandsIn(templateOf(live)) {
			o.seen.Marker = v.Marker()
		}
		o.seen.Template = t.kind.recorded(o)
	}
	if t.req.Restore != nil && t.req.Restore.Template != nil {
		o.seen.Template = t.kind.recorded(o)
		return o, t.recall(ctx, o)
	}
	return o, nil
}

// decide lets release/workloadops decide, showing it the pods when it asks for them or when it is time to ask them what keeps them.
func (t *operationJob) decide(ctx context.Context, o *object) (workloadops.NextAction, error) {
	p := t.Progress()
	seen := o.seen
	seen.Now, seen.Elapsed, seen.Held, seen.Ending = t.Now(), p.Elapsed(), p.Held, p.Ending
	seen.HeldUp = t.takeHeldUp()
	if seen.Claim == t.req.Claim {
		// As long as the claim is there, the last write has not been made.
		t.Note(func(p *workloadops.Progress) { p.Held, p.Ending = true, nil })
	}
	d := workloadops.Decide(t.req, seen)
	due := !seen.Now.Before(t.nextLook)
	if d.Action != workloadops.ActLook && (d.Action != workloadops.ActWait || !due) {
		return d, nil
	}
	if due {
		t.lookLater()
	}
	list, err := t.a.pods(ctx, t.kind, o, t.req.MarkerName())
	if err != nil {
		return d, err
	}
	if err := t.markRestored(ctx, o, list.pods); err != nil {
		return d, err
	}
	t.podsAt = list
	seen.Pods, seen.PodsSeen = list.pods, true
	if d = workloadops.Decide(t.req, seen); d.LookAgain > 0 {
		t.lookWithin(d.LookAgain)
	}
	return d, nil
}

// Failed gives back what is held, if the cluster lets us, when the operation is refused in the middle.
func (t *operationJob) Failed(ctx context.Context, f *failure.Error) *failure.Error {
	if f.Kind != failure.Refused || t.end != nil {
		return f
	}
	t.fresh, t.rejected = nil, ""
	result, err := t.giveBack(ctx)
	if result == nil && err == nil { // somebody was faster
		result, err = t.giveBack(ctx)
	}
	if result == nil && (err == nil || failure.Is(err, failure.Refused)) {
		err = t.rejection // the server's own words
	}
	if err != nil && kube.Classify(err) != kube.Missing {
		f.Owed = t.Progress().Held
		f.Message += "; what was borrowed could not be given back yet: " + kube.Text(err)
	}
	return f
}

// giveBack gives back what this operation holds; nil when that has to be decided anew.
func (t *operationJob) giveBack(ctx context.Context) (*workloadops.Result, error) {
	o, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	d := workloadops.Restore(t.req, o.seen)
	if d.Action == workloadops.ActWrite {
		if after, err := t.write(ctx, o, d.Write); after == nil {
			return nil, err
		}
	}
	return d.Result, nil
}

// Missing is the failure of a workload that is not there.
func (t *operationJob) Missing(error) error {
	if t.Progress().Held {
		return failure.New(failure.WorkloadFailed, "%s was deleted by somebody else in the middle of %s", t.req.Workload, t.req.Operation)
	}
	return failure.New(failure.NotFound, "%s does not exist: create it, or take it out of the catalogue", t.req.Workload)
}

// writes makes one write, which may end the operation.
func (t *operationJob) writes(ctx context.Context, o *object, d workloadops.NextAction) (attempt.Next, error) {
	end, ends := d.Ending()
	if ends {
		// The answer is put on record first: once the claim is given back, nothing on the workload tells what was done.
		t.Note(func(p *workloadops.Progress) { p.Ending = &end })
		if err := t.Record(ctx); err != nil {
			return attempt.Next{}, err
		}
	}
	after, err := t.write(ctx, o, d.Write)
	if ends && after != nil {
		return t.ends(&end)
	}
	t.fresh = after
	return attempt.Next{}, err
}

func (t *operationJob) write(ctx context.Context, o *object, w *workloadops.Write) (*unstructured.Unstructured, error) {
	template, err := t.template(ctx, o, w)
	if err != nil {
		return nil, err
	}
	return t.patch(ctx, change{t.kind.resource, o.Unstructured, patchOf(o.Unstructured, w, template), "workload.patch",
		string(t.req.Operation) + "/" + w.Step})
}

// template is the pod template that a write sets, nil when it leaves the template.
func (t *operationJob) template(ctx context.Context, o *object, w *workloadops.Write) (map[string]any, error) {
	switch {
	case w.Template == nil:
		return nil, nil
	case t.req.Restore != nil:
		return t.restored(ctx, o)
	}
	template, err := t.a.deployed(ctx, t.req.Workload, t.req.Version(), templateOf(o.Unstructured))
	if err == nil {
		// The one before is in no template soon, and in the task's record only at its end.
		t.keep(ctx, o.seen.Package, packageOf(template))
	}
	return template, err
}

// keep keeps packages in the party's store: the one before is in no template soon, and in the task's record only at its end.
func (t *operationJob) keep(ctx context.Context, sha256 ...string) {
	if !t.dry && t.a.options.Packages != nil {
		t.a.options.Packages.Keep(ctx, sha256...)
	}
}

// watchPods listens for changes of the workload, and of its pods from where they were last read.
func (t *operationJob) watchPods(ctx context.Context) (<-chan struct{}, error) {
	seconds := int64(t.a.options.ListenFor/time.Second) + 1
	pods, err := t.a.cluster.Client.CoreV1().Pods(t.req.Workload.Namespace).Watch(ctx, metav1.ListOptions{
		LabelSelector: t.podsAt.selector, ResourceVersion: t.podsAt.version, TimeoutSeconds: &seconds,
	})
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
		select {
		case <-ctx.Done():
		case <-time.After(settle):
			kube.Wake(t.sub.wake)
		}
	}()
	return t.sub.wake, nil
}

// restoreJob gives back what an unfinished operation borrowed.
type restoreJob struct {
	*operationJob
	result workloadops.Result
	// persist has every failure tried again by the server: the workflow knows of it already.
	persist bool
}

// Restore gives back what an unfinished Run borrowed, and releases its claim; a workload that the request does not hold is left alone. It
// has no deadline and no budget: while the cluster is out of reach it fails with NotReady, to be tried again for as long as it takes, since
// no workflow closes while it owes this.
//
// Told to persist, it fails with NotReady whatever keeps it.
func (a *Activities) Restore(ctx context.Context, req workloadops.RestoreRequest) (workloadops.Result, error) {
	job := &restoreJob{operationJob: a.operationJob(ctx, req.Request, attempt.Terms{}), persist: req.Persist}
	if f := a.check(req.Request); f != nil {
		return workloadops.Result{}, attempt.ApplicationError(job.Failed(ctx, f))
	}
	if err := job.Run(ctx, job); err != nil {
		return workloadops.Result{}, err
	}
	return job.result, nil
}

// Reconcile looks once and gives back.
func (t *restoreJob) Reconcile(ctx context.Context) (attempt.Next, error) {
	result, err := t.giveBack(ctx)
	switch {
	case result != nil:
		t.result = *result
	case err == nil:
		return attempt.Next{Action: attempt.Again}, nil
	case kube.Classify(err) == kube.Missing:
		t.result.Message = "nothing to give back: the workload is gone"
	case kube.Classify(err) == kube.Refused:
		return attempt.Next{}, failure.New(failure.Refused,
			"%s: its cluster does not let its settings be given back: %s. It is tried again until it does: put right what refuses it",
			t.req.Workload, kube.Text(err))
	default:
		return attempt.Next{}, err
	}
	return attempt.Next{Action: attempt.Done}, nil
}

// Failed leaves a failure as it is, since giving back is what has failed; one that the workflow knows of is left to the server.
func (t *restoreJob) Failed(_ context.Context, f *failure.Error) *failure.Error {
	if !t.persist || f.Kind.Retryable() {
		return f
	}
	return &failure.Error{Kind: failure.NotReady, Message: f.Message, RetryAfter: workloadops.RestoreAgain}
}
