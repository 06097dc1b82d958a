package build

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Observed is the observed state of a build.
type Observed struct {
	// Job is the Job named Request.JobName; nil: there is none.
	Job *batchv1.Job
	// Pods are the pods of the Job, newest first; they are valid only if PodsSeen is true.
	Pods     []corev1.Pod
	PodsSeen bool
	// Joined is the UID of the Job that this request has created or waited for; "": none.
	Joined types.UID
	// Trouble is the reason, as Kubernetes reports it, why the Job has no pod or its pod does not run; "": none.
	// PatienceLeft is how long that may still last.
	Trouble      string
	PatienceLeft time.Duration
	// Overdue is true if the deadline has passed.
	Overdue bool
}

// Action is the kind of the next action.
type Action int

// The actions.
const (
	// Create creates the Job.
	Create Action = iota
	// Replace deletes an unusable Job, so that it is created again.
	Replace
	// ReadPods reads the Job's pods and decides again.
	ReadPods
	// Wait waits for a change.
	Wait
	// Record writes the build's result to the Job.
	Record
	// Done ends the build successfully.
	Done
	// Fail ends the build with an error.
	Fail
)

// NextAction is the next action, and the reason for it.
type NextAction struct {
	Action Action
	Reason string
	// Yield is what was built, for Record and Done.
	Yield Yield
}

func fail(format string, args ...any) NextAction {
	return NextAction{Action: Fail, Reason: fmt.Sprintf(format, args...)}
}

// Decide returns the next action for a build, from one observation of its Job. It keeps no state, so another process
// can continue after one was killed at any point.
func (r Request) Decide(seen Observed) NextAction {
	job := seen.Job
	switch {
	case job == nil && seen.Joined != "":
		return fail("%s: its Job %s/%s was deleted while it ran; execute the plan again", r, r.Namespace, r.JobName())
	case job == nil && seen.Overdue:
		return fail("%s: its Job could not be created within %d s", r, r.DeadlineSeconds)
	case job == nil:
		return NextAction{Action: Create, Reason: "create Job " + r.JobName()}
	case job.DeletionTimestamp != nil:
		return r.wait(seen, "its Job is being deleted")
	case job.Annotations[AnnotationDigest] != r.Digest():
		return fail("%s: Job %s/%s is not Slipway's, or was changed by hand: delete it, then execute the plan again", r,
			r.Namespace, job.Name)
	case job.Annotations[AnnotationYield] != "":
		yield, err := r.ParseYield(job.Annotations[AnnotationYield])
		if err != nil {
			return fail("%s: the annotation %s of Job %s/%s was changed: delete the Job, then execute the plan again",
				r, AnnotationYield, r.Namespace, job.Name)
		}
		return NextAction{Action: Done, Yield: yield, Reason: "built by Job " + job.Name}
	case finished(job, batchv1.JobComplete) != nil:
		return r.complete(seen)
	case finished(job, batchv1.JobFailed) != nil:
		return r.failed(seen)
	}
	return r.running(seen)
}

// Reused reports whether the Job was created by another release.
func (r Request) Reused(job *batchv1.Job) bool { return job.Annotations[AnnotationBy] != r.By }

// ownsResult reports whether the result of the Job, success or failure, counts for this request: it has created the Job
// or waited for it.
func (r Request) ownsResult(seen Observed) bool {
	return !r.Reused(seen.Job) || seen.Job.UID == seen.Joined
}

func (r Request) complete(seen Observed) NextAction {
	if !seen.PodsSeen {
		return NextAction{Action: ReadPods, Reason: "read its result"}
	}
	problem := "its pod was deleted before its result was read"
	succeeded := func(pod corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded }
	if i := slices.IndexFunc(seen.Pods, succeeded); i >= 0 {
		yield, err := r.ParseYield(result(&seen.Pods[i]))
		if err == nil {
			return NextAction{Action: Record, Yield: yield, Reason: "record its result"}
		}
		problem = err.Error()
	}
	if !r.ownsResult(seen) {
		return NextAction{Action: Replace, Reason: "an earlier build is unusable (" + problem + ")"}
	}
	return fail("%s failed: %s", r, problem)
}

func (r Request) failed(seen Observed) NextAction {
	if !r.ownsResult(seen) {
		return NextAction{Action: Replace, Reason: "an earlier build has failed"}
	}
	if !seen.PodsSeen {
		return NextAction{Action: ReadPods, Reason: "read why it has failed"}
	}
	condition := finished(seen.Job, batchv1.JobFailed)
	if condition.Reason == batchv1.JobReasonDeadlineExceeded {
		return fail("%s failed: it did not end within %d s%s", r, *seen.Job.Spec.ActiveDeadlineSeconds, trouble(seen))
	}
	for i := range seen.Pods {
		if why := failureOf(&seen.Pods[i]); why != "" {
			return fail("%s failed: %s", r, why)
		}
	}
	return fail("%s failed: %s", r, strings.TrimSuffix(condition.Message, "."))
}

func (r Request) running(seen Observed) NextAction {
	switch {
	case seen.Job.Spec.Suspend != nil && *seen.Job.Spec.Suspend:
		return r.wait(seen, "its Job is suspended")
	case seen.PodsSeen && seen.Trouble != "" && seen.PatienceLeft <= 0:
		return fail("%s can't start%s", r, trouble(seen))
	case seen.Job.Status.Active == 0 && seen.Trouble != "":
		return r.wait(seen, "its Job has no pod yet"+trouble(seen))
	case seen.Job.Status.Active == 0:
		return r.wait(seen, "its Job has no pod yet; `kubectl -n "+r.Namespace+" describe job "+r.JobName()+
			"` shows why")
	case seen.Trouble == "":
		return r.wait(seen, "running")
	}
	return r.wait(seen, "waiting for its pod"+trouble(seen))
}

func (r Request) wait(seen Observed, what string) NextAction {
	if seen.Overdue {
		return fail("%s did not end within %d s: %s", r, r.DeadlineSeconds, what)
	}
	return NextAction{Action: Wait, Reason: r.String() + ": " + what + " (Job " + r.Namespace + "/" + r.JobName() + ")"}
}

func trouble(seen Observed) string {
	if seen.Trouble == "" {
		return ""
	}
	return ": " + seen.Trouble
}

// finished returns the true condition of a type of a Job; nil if there is none.
func finished(job *batchv1.Job, how batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == how && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// Ended returns when a Job ended; nil while it runs.
func Ended(job *batchv1.Job) *time.Time {
	for _, how := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := finished(job, how); c != nil {
			return new(c.LastTransitionTime.UTC())
		}
	}
	return nil
}

// result returns the termination message of a pod's first container.
func result(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == pod.Spec.Containers[0].Name && c.State.Terminated != nil {
			return c.State.Terminated.Message
		}
	}
	return ""
}

// failureOf returns why a pod has failed, from its first container with an error exit code; "" if its status has no
// reason.
func failureOf(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			text := fmt.Sprintf("container %s ended with exit code %d", c.Name, t.ExitCode)
			if message := lastLine(t.Message); message != "" {
				text += ": " + message
			}
			return text
		}
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" {
		return strings.TrimSuffix(pod.Status.Reason+": "+lastLine(pod.Status.Message), ": ")
	}
	return ""
}

const (
	// keepBuilds is how many finished builds of a service are kept: a commit that they built is not built again.
	keepBuilds = 10
	// keepFor is how long a finished build is kept at least, so that requests that wait for it can read it.
	keepFor = time.Hour
)

// Surplus returns the finished builds of a service that need not be kept.
func Surplus(jobs []batchv1.Job, now time.Time) []batchv1.Job {
	over := slices.DeleteFunc(slices.Clone(jobs), func(job batchv1.Job) bool {
		return Ended(&job) == nil || job.Annotations[AnnotationDigest] == ""
	})
	slices.SortFunc(over, func(a, b batchv1.Job) int { return Ended(&b).Compare(*Ended(&a)) })
	over = over[min(len(over), keepBuilds):]
	return slices.DeleteFunc(over, func(job batchv1.Job) bool { return now.Sub(*Ended(&job)) < keepFor })
}
