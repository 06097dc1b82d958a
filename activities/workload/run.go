package workload

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workloadops"
)

const (
	// firstLook is after how much waiting an attempt first asks the pods what keeps them, lookEvery how often it does so then; it also asks
	// before it gives its place back.
	firstLook, lookEvery = 2 * time.Second, 5 * time.Second
)

// operationJob carries out one operation.
type operationJob struct {
	*attempt.Attempt
	a    *Activities
	req  workloadops.Request
	kind kind
	sub  subscription
	// nextLook is when it next asks the pods.
	nextLook time.Time
	// fresh is the object as a write of ours returned it, which saves a read; nil when it must be read.
	fresh *object
	// rejected is the version on which the server did not accept a change.
	rejected      string
	rejectedError error
	// podsAt is where a watch of the pods goes on from.
	podsAt podList
	// end is the operation's end, once it is reached.
	end *workloadops.Ending
}

// Run brings one workload to what the request asks, and gives back what it borrowed. It fails with a failure.Kind as the error's type;
// NotReady is to be tried again. What it knows travels from attempt to attempt as heartbeat details (workloadops.Progress).
func (a *Activities) Run(ctx context.Context, req workloadops.Request) (workloadops.Result, error) {
	if f := a.check(req); f != nil {
		return workloadops.Result{}, attempt.ApplicationError(f)
	}
	ref := req.Workload.WorkloadRef
	job := a.operationJob(ctx, req, attempt.Terms{
		Subject: req.Workload.String(), DeadlineSeconds: req.DeadlineSeconds, SpentSeconds: req.SpentSeconds,
		UnreachableBudgetSeconds: req.UnreachableBudgetSeconds,
	})
	job.sub = a.notifier.subscribe(target{pods.Key(ref), req.Workload.Namespace, ref.Name})
	defer job.sub.leave()
	if err := job.Run(ctx, job); err != nil {
		return workloadops.Result{}, err
	}
	return *job.end.Result, nil
}

// check refuses what no look at the cluster could make right.
func (a *Activities) check(req workloadops.Request) *failure.Error {
	if f := workloadops.Validate(req); f != nil {
		return f
	}
	if !a.serves(req.Workload.Namespace) {
		return failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req.Workload, req.Workload.Namespace)
	}
	return nil
}

// operationJob begins an attempt at an operation.
func (a *Activities) operationJob(ctx context.Context, req workloadops.Request, terms attempt.Terms) *operationJob {
	k, _ := kindOf(req.Workload.WorkloadRef) // workloadops.Validate knows no other
	return &operationJob{Attempt: attempt.Start(ctx, a.attempts(), terms), a: a, req: req, kind: k,
		nextLook: a.options.Now().Add(firstLook)}
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
		return t.write(ctx, o, d)
	case workloadops.ActDelete:
		of := string(t.req.Operation)
		return attempt.Next{}, t.a.deletePods(ctx, t.req.Workload.Namespace, d.Delete, "pod.delete.before/"+of, "pod.delete.after/"+of)
	case workloadops.ActWait:
		return t.wait(d), nil
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
	o := t.fresh
	t.fresh = nil
	if o == nil {
		live, err := t.a.reader.Get(ctx, t.kind.resource, t.req.Workload.Namespace, t.req.Workload.WorkloadRef.Name)
		if err != nil {
			return nil, err
		}
		o = t.kind.observe(live)
	}
	if t.rejected != "" && t.rejected == o.GetResourceVersion() {
		// It is still what it was, so the change itself is what the server does not accept.
		return nil, failure.New(failure.Refused, "%s: its cluster does not accept the change: %s", t.req.Workload,
			kube.Text(t.rejectedError))
	}
	t.rejected = ""
	t.Read()
	return o, nil
}

// decide lets release/workloadops decide, showing it the pods when it asks for them or when it is time to ask them what keeps them.
func (t *operationJob) decide(ctx context.Context, o *object) (workloadops.NextAction, error) {
	now := t.Now()
	p := t.Progress()
	seen := o.seen
	seen.Now, seen.Elapsed, seen.Held, seen.Ending = now, p.Elapsed(), p.Held, p.Ending
	if seen.Claim == t.req.Claim {
		// As long as the claim is there, the last write has not been made.
		t.Note(func(p *workloadops.Progress) { p.Held, p.Ending = true, nil })
	}
	d := workloadops.Decide(t.req, seen)
	if d.Action != workloadops.ActLook && (d.Action != workloadops.ActWait || now.Before(t.nextLook)) {
		return d, nil
	}
	if !now.Before(t.nextLook) {
		t.nextLook = earlier(t.Until(), now.Add(lookEvery))
	}
	list, err := t.a.pods(ctx, t.kind, o)
	if err != nil {
		return d, err
	}
	t.podsAt = list
	seen.Pods, seen.PodsSeen = list.pods, true
	if d = workloadops.Decide(t.req, seen); d.LookAgain > 0 {
		t.nextLook = earlier(t.Until(), now.Add(d.LookAgain))
	}
	return d, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Failed gives back what is held, if the cluster lets us, when the operation is refused in the middle.
func (t *operationJob) Failed(ctx context.Context, f *failure.Error) *failure.Error {
	if f.Kind != failure.Refused || t.end != nil {
		return f
	}
	t.fresh, t.rejected = nil, ""
	o, err := t.read(ctx)
	if err == nil {
		if d := workloadops.Restore(t.req, o.seen); d.Action == workloadops.ActWrite {
			_, err = t.patch(ctx, o, d.Write)
		}
	}
	if err != nil && kube.Classify(err) != kube.Missing {
		f.Owed = t.Progress().Held
		f.Message += "; what was borrowed could not be given back yet: " + kube.Text(err)
	}
	return f
}

// Missing is the failure of a workload that is not there.
func (t *operationJob) Missing(error) error {
	if t.Progress().Held {
		return failure.New(failure.WorkloadFailed, "%s was deleted by somebody else in the middle of %s", t.req.Workload, t.req.Operation)
	}
	return failure.New(failure.NotFound, "%s does not exist: create it, or take it out of the catalogue", t.req.Workload)
}

const (
	// rereadEvery is how often a workload is read while its watch does not work.
	rereadEvery = time.Second
	// settle is how long a change of a pod is left to bring others with it.
	settle = 50 * time.Millisecond
)

// write makes one write, which may end the operation.
func (t *operationJob) write(ctx context.Context, o *object, d workloadops.NextAction) (attempt.Next, error) {
	end, ends := d.Ending()
	if ends {
		// The answer is put on record first: once the claim is given back, nothing on the workload tells what was done.
		t.Note(func(p *workloadops.Progress) { p.Ending = &end })
		if err := t.Record(ctx); err != nil {
			return attempt.Next{}, err
		}
	}
	after, err := t.patch(ctx, o, d.Write)
	if err != nil {
		if kube.Classify(err) == kube.Rejected {
			// Most likely somebody was faster; the next look tells.
			t.rejected, t.rejectedError = o.GetResourceVersion(), err
			return attempt.Next{}, nil
		}
		return attempt.Next{}, err
	}
	t.a.options.Logger.InfoContext(ctx, "workload changed",
		"workload", t.req.Workload.String(), "operation", t.req.Operation, "step", d.Write.Step, "reason", d.Reason)
	if ends {
		return t.ends(&end)
	}
	t.fresh = after
	return attempt.Next{}, nil
}

func (t *operationJob) patch(ctx context.Context, o *object, w *workloadops.Write) (*object, error) {
	body, err := jsonPatch(o, w)
	if err != nil {
		return nil, err
	}
	point := string(t.req.Operation) + "/" + w.Step
	failpoint.Hit("workload.patch.before/" + point)
	after, err := t.a.patch(ctx, t.kind.resource, o.Unstructured, body)
	failpoint.Hit("workload.patch.after/" + point)
	if err != nil {
		return nil, err
	}
	return t.kind.observe(after), nil
}

// wait waits for a change of the workload, and of its pods when the decision asks for that.
func (t *operationJob) wait(d workloadops.NextAction) attempt.Next {
	next := attempt.Next{Action: attempt.Wait, Reason: d.Reason, Within: t.sub.within(t.Now(), t.nextLook, false),
		Listen: func(context.Context) (<-chan struct{}, error) { return t.sub.wake, nil }}
	if d.WatchPods && t.podsAt.version != "" {
		next.Listen = t.watchPods
	}
	return next
}

// watchPods listens for changes of the workload, and of its pods from where they were last read.
func (t *operationJob) watchPods(ctx context.Context) (<-chan struct{}, error) {
	seconds := int64(t.a.options.ListenFor/time.Second) + 1
	pods, err := t.a.client.CoreV1().Pods(t.req.Workload.Namespace).Watch(ctx, metav1.ListOptions{
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
