package source

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

const (
	// podPollInterval is how often the pods of a waiting build are read.
	podPollInterval = 5 * time.Second
	// jobGrace is how many seconds longer than its Job's deadline an attempt waits: the Job's own failure is more
	// specific.
	jobGrace = 60
)

// Build builds a commit by a Job. Requests for the same build share one Job, and a completed build is reused. The
// failure of a build carries a build.Built with the end of its log as data.
func (a *Activities) Build(ctx context.Context, req build.Request) (build.Built, error) {
	b := &building{Attempt: a.attempt(ctx, req, req.DeadlineSeconds+jobGrace, req.String()), a: a, req: req}
	if len(a.options.Namespaces) > 0 && !slices.Contains(a.options.Namespaces, req.Namespace) {
		return build.Built{}, attempt.ApplicationError(
			failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", req, req.Namespace))
	}
	if err := b.Run(ctx, b); err != nil {
		return build.Built{}, err
	}
	return b.built, nil
}

// building is one attempt at a build.
type building struct {
	*attempt.Attempt
	a     *Activities
	req   build.Request
	built build.Built
	// podsReadAt is when the pods were last read.
	podsReadAt time.Time
}

// buildProgress is the state that an attempt leaves for the next one (operation.Progress.Data).
type buildProgress struct {
	Job types.UID `json:"job"`
}

// Reconcile reads the Job, decides and acts. While the Job runs, its pods are read at most every podPollInterval.
func (b *building) Reconcile(ctx context.Context) (attempt.Next, error) {
	job, err := b.a.job(ctx, b.req)
	if err != nil {
		return attempt.Next{}, err
	}
	b.Read()
	seen := build.Observed{Job: job, Overdue: b.Overdue()}
	var was buildProgress
	if data := b.Progress().Data; len(data) > 0 && json.Unmarshal(data, &was) == nil {
		seen.Joined = was.Job
	}
	next := b.req.Decide(seen)
	due := b.Now().Sub(b.podsReadAt) >= podPollInterval
	if next.Action == build.ReadPods || next.Action == build.Wait && due && job != nil {
		b.podsReadAt = b.Now()
		if seen.Pods, err = b.a.podsOf(ctx, job); err != nil {
			return attempt.Next{}, err
		}
		seen.PodsSeen = true
		seen.Trouble, seen.PatienceLeft = b.pendingReason(seen.Pods)
		next = b.req.Decide(seen)
	}
	return b.act(ctx, seen, next)
}

func (b *building) act(ctx context.Context, seen build.Observed, next build.NextAction) (attempt.Next, error) {
	b.Note(func(p *workload.Progress) { p.Message = next.Reason })
	switch next.Action {
	case build.Create:
		return attempt.Next{}, b.a.create(ctx, b.req)
	case build.Replace:
		return attempt.Next{}, b.a.remove(ctx, seen.Job, "build.replace")
	case build.Record:
		if err := b.a.record(ctx, seen.Job, next.Yield); err != nil {
			return attempt.Next{}, err
		}
		b.finish(seen, next.Yield, build.Tail(b.a.log(ctx, seen.Pods), false))
		return attempt.Next{Action: attempt.Done}, nil
	case build.Done:
		b.finish(seen, next.Yield, "")
		return attempt.Next{Action: attempt.Done}, nil
	case build.Fail:
		return attempt.Next{}, b.failureWithLog(ctx, seen, next.Reason)
	default:
		b.noteJob(seen.Job)
		return attempt.Next{Action: attempt.Wait, Reason: next.Reason, Within: podPollInterval,
			Listen: b.watch(seen.Job)}, nil
	}
}

// noteJob records which Job the attempt waits for: when that Job ends, its result counts as this request's own.
func (b *building) noteJob(job *batchv1.Job) {
	if job == nil || job.DeletionTimestamp != nil {
		return
	}
	if data, err := json.Marshal(buildProgress{job.UID}); err == nil {
		b.Note(func(p *workload.Progress) { p.Data = data })
	}
}

func (b *building) finish(seen build.Observed, yield build.Yield, log string) {
	b.built = b.result(seen)
	b.built.Yield, b.built.Log = yield, log
}

// result describes the Job: its name, its times, and whether another release made it.
func (b *building) result(seen build.Observed) build.Built {
	built := build.Built{Job: b.req.JobName()}
	if job := seen.Job; job != nil {
		built.Reused, built.FinishedAt = b.req.Reused(job), build.Ended(job)
		if job.Status.StartTime != nil {
			built.StartedAt = new(job.Status.StartTime.UTC())
		}
	}
	return built
}

func (b *building) failureWithLog(ctx context.Context, seen build.Observed, reason string) error {
	f := failure.New(failure.WorkloadFailed, "%s", reason)
	built := b.result(seen)
	built.Log = build.Tail(b.a.log(ctx, seen.Pods), true)
	f.Data = built
	return f
}

// pendingReason returns why the newest pod is still Pending, and how long the build may still wait for it.
func (b *building) pendingReason(pods []corev1.Pod) (string, time.Duration) {
	if len(pods) == 0 || pods[0].Status.Phase != corev1.PodPending {
		return "", 0
	}
	pod := &pods[0]
	reason, message := podstatus.Reason(pod)
	seen := workload.Pod{Name: pod.Name, Reason: reason, Since: pod.CreationTimestamp.Time}
	text := "pod " + pod.Name + ": " + reason
	if message != "" {
		text += ": " + message
	}
	deadline := time.Duration(b.req.DeadlineSeconds) * time.Second
	if !seen.Stuck() {
		return text, deadline
	}
	snapshot := workload.Snapshot{Now: b.Now(), Elapsed: b.Progress().Elapsed()}
	return text, snapshot.PatienceLeft(seen, deadline)
}

// watch returns a function that signals the first change of the Job.
func (b *building) watch(job *batchv1.Job) func(context.Context) (<-chan struct{}, error) {
	return func(ctx context.Context) (<-chan struct{}, error) {
		seconds := int64(b.a.options.ListenFor/time.Second) + 1
		changes, err := b.a.client.BatchV1().Jobs(b.req.Namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + job.Name, ResourceVersion: job.ResourceVersion, TimeoutSeconds: &seconds})
		if err != nil {
			return nil, err
		}
		wake := make(chan struct{}, 1)
		go func() {
			defer changes.Stop()
			select {
			case <-ctx.Done():
			case <-changes.ResultChan():
				wake <- struct{}{}
			}
		}()
		return wake, nil
	}
}

// Missing implements attempt.Job. Creating the Job fails with NotFound when its namespace does not exist; a deleted Job
// is no error (job).
func (b *building) Missing(err error) error {
	return failure.New(failure.Refused, "%s: %v", b.req, err)
}

// Failed implements attempt.Job.
func (b *building) Failed(_ context.Context, f *failure.Error) *failure.Error { return f }
