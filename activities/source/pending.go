package source

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/workload"
)

// askEventsAfter is how long a build has lasted at least when the events of a Job without a pod are read: usually its
// controller is just about to create one.
const askEventsAfter = 2 * time.Second

func (b *building) deadline() time.Duration {
	return time.Duration(b.req.DeadlineSeconds) * time.Second
}

// creationFailure returns why a Job's pod is not created, and how long the build may still wait for it; "" if that is
// not known.
func (b *building) creationFailure(ctx context.Context, job *batchv1.Job) (string, time.Duration) {
	elapsed := b.Progress().Elapsed()
	if elapsed < askEventsAfter || job.Status.Active > 0 || build.Ended(job) != nil {
		return "", 0
	}
	w, err := kube.NewestWarning(ctx, b.a.client, job.Namespace, job.UID, workload.CreationReasons)
	f := workload.CreationFailure{Message: kube.Line(workload.CreationMessage(w.Message)), Since: w.First, Last: w.Last,
		Unreadable: kube.IsAny(err, kube.Forbidden)}
	left, ends := f.PatienceLeft(workload.Snapshot{Now: b.Now(), Elapsed: elapsed, StalledFor: elapsed}, b.deadline())
	if !ends {
		left = b.deadline()
	}
	return f.String(), left
}

// pendingReason returns why the newest pod is still Pending, and how long the build may still wait for it.
func (b *building) pendingReason(ctx context.Context, pods []corev1.Pod) (string, time.Duration) {
	if len(pods) == 0 || pods[0].Status.Phase != corev1.PodPending {
		return "", 0
	}
	pod := &pods[0]
	reason, message := podstatus.Explain(ctx, b.a.client, pod, b.Now())
	seen := workload.Pod{Name: pod.Name, Reason: reason, Since: pod.CreationTimestamp.Time}
	text := "pod " + pod.Name + ": " + seen.Reason
	if message != "" {
		text += ": " + message
	}
	if !seen.Stuck() {
		return text, b.deadline()
	}
	snapshot := workload.Snapshot{Now: b.Now(), Elapsed: b.Progress().Elapsed()}
	return text, snapshot.PatienceLeft(seen, b.deadline())
}

// blocked reports that the Job has no pod or its pod does not start, if the request wants to know that; false if it
// does not, and while that may pass at any moment.
func (b *building) blocked(ctx context.Context, seen build.Observed) bool {
	elapsed := b.Progress().Elapsed()
	if !b.req.ReportBlocked || seen.Trouble == "" || elapsed < workload.ReportAfter {
		return false
	}
	attempt.CountBlocked(ctx, taskKind, seen.Trouble)
	b.built = b.result(seen)
	b.built.Blocked, b.built.SpentSeconds = seen.Trouble, int64(elapsed/time.Second)
	return true
}

// taskKind is the kind of the releases that build.
const taskKind = "task"
