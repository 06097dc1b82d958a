package build

import (
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Observed is what is known of a build.
type Observed struct {
	// Job is the Job of Request.JobName; nil: there is none.
	Job *batchv1.Job
	// Pods are the pods of the Job, newest first; they are there only when PodsSeen.
	Pods     []corev1.Pod
	PodsSeen bool
	// Joined is the Job that this request has made or waited for; "": none.
	Joined types.UID
	// Trouble is what keeps the Job's pod from running, in its own words; "": nothing. PatienceLeft is how long that may still last.
	Trouble      string
	PatienceLeft time.Duration
	// Overdue says that the deadline is over.
	Overdue bool
}

// Action is what to do next.
type Action int

// The actions.
const (
	// Create makes the Job.
	Create Action = iota
	// Replace deletes a Job that is of no use, to make it anew.
	Replace
	// Look reads the Job's pods, and decides again.
	Look
	// Wait waits for a change.
	Wait
	// Record notes on the Job what it has yielded.
	Record
	// Done ends the build.
	Done
	// Fail ends it badly.
	Fail
)

// NextAction is what to do next, and why.
type NextAction struct {
	Action Action
	Reason string
	// Yield is what was built, for Record and Done.
	Yield Yield
}

func fail(format string, args ...any) NextAction {
	return NextAction{Action: Fail, Reason: fmt.Sprintf(format, args...)}
}

// Decide says what to do next for a build, from one look at its Job: a process that was killed at any point is followed by another that goes on
// from there.
func (r Request) Decide(seen Observed) NextAction {
	job := seen.Job
	switch {
	case job == nil && seen.Joined != "":
		return fail("%s: somebody deleted its Job %s/%s while it ran; execute the plan again", r, r.Namespace, r.JobName())
	case job == nil && seen.Overdue:
		return fail("%s: its Job could not be made within %d s", r, r.DeadlineSeconds)
	case job == nil:
		return NextAction{Action: Create, Reason: "make Job " + r.JobName()}
	case job.DeletionTimestamp != nil:
		return r.wait(seen, "its Job is being deleted")
	case job.Annotations[AnnotationDigest] != r.Digest():
		return fail("%s: Job %s/%s is not Slipway's, or was changed by hand: delete it, then execute the plan again", r, r.Namespace, job.Name)
	case job.Annotations[AnnotationYield] != "":
		yield, err := r.ParseYield(job.Annotations[AnnotationYield])
		if err != nil {
			return fail("%s: somebody changed the annotation %s of Job %s/%s: delete the Job, then execute the plan again", r, AnnotationYield, r.Namespace, job.Name)
		}
		return NextAction{Action: Done, Yield: yield, Reason: "built by Job " + job.Name}
	case finished(job, batchv1.JobComplete) != nil:
		return r.complete(seen)
	case finished(job, batchv1.JobFailed) != nil:
		return r.failed(seen)
	}
	return r.running(seen)
}

// Reused says that the Job is of another release than this one.
func (r Request) Reused(job *batchv1.Job) bool { return job.Annotations[AnnotationBy] != r.By }

// own says whether the end of the Job is this request's, good or bad: it has made it, or waited for it.
func (r Request) own(seen Observed) bool { return !r.Reused(seen.Job) || seen.Job.UID == seen.Joined }

func (r Request) complete(seen Observed) NextAction {
	if !seen.PodsSeen {
		return NextAction{Action: Look, Reason: "see what it has yielded"}
	}
	problem := "its pod is gone, and what it has yielded with it"
	for i := range seen.Pods {
		if seen.Pods[i].Status.Phase != corev1.PodSucceeded {
			continue
		}
		yield, err := r.ParseYield(result(&seen.Pods[i]))
		if err == nil {
			return NextAction{Action: Record, Yield: yield, Reason: "note what it has yielded"}
		}
		problem = err.Error()
		break
	}
	if !r.own(seen) {
		return NextAction{Action: Replace, Reason: "an earlier build is of no use (" + problem + ")"}
	}
	return fail("%s failed: %s", r, problem)
}

func (r Request) failed(seen Observed) NextAction {
	if !r.own(seen) {
		return NextAction{Action: Replace, Reason: "an earlier build has failed"}
	}
	if !seen.PodsSeen {
		return NextAction{Action: Look, Reason: "see why it has failed"}
	}
	condition := finished(seen.Job, batchv1.JobFailed)
	if condition.Reason == batchv1.JobReasonDeadlineExceeded {
		return fail("%s failed: it did not end within %d s%s", r, *seen.Job.Spec.ActiveDeadlineSeconds, trouble(seen))
	}
	for i := range seen.Pods {
		if why := ended(&seen.Pods[i]); why != "" {
			return fail("%s failed: %s", r, why)
		}
	}
	return fail("%s failed: %s", r, strings.TrimSuffix(condition.Message, "."))
}

func (r Request) running(seen Observed) NextAction {
	switch {
	case seen.Job.Spec.Suspend != nil && *seen.Job.Spec.Suspend:
		return r.wait(seen, "somebody suspended its Job")
	case seen.Job.Status.Active == 0:
		return r.wait(seen, "its Job has no pod yet; `kubectl -n "+r.Namespace+" describe job "+r.JobName()+"` says why")
	case seen.Trouble == "":
		return r.wait(seen, "it runs")
	case seen.PodsSeen && seen.PatienceLeft <= 0:
		return fail("%s can't begin%s", r, trouble(seen))
	}
	return r.wait(seen, "it waits for its pod"+trouble(seen))
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

// finished is the condition of a Job that has ended so; nil when it has not.
func finished(job *batchv1.Job, how batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == how && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// Ended is when a Job has ended; nil while it runs.
func Ended(job *batchv1.Job) *time.Time {
	for _, how := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if c := finished(job, how); c != nil {
			return new(c.LastTransitionTime.UTC())
		}
	}
	return nil
}

// result is the termination message of a pod's first container.
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

// ended is why a pod has failed: the word of its first container that did; "" when none says anything.
func ended(pod *corev1.Pod) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
				text := fmt.Sprintf("container %s ended with exit code %d", c.Name, t.ExitCode)
				if said := lastLine(t.Message); said != "" {
					text += ": " + said
				}
				return text
			}
		}
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" {
		return strings.TrimSuffix(pod.Status.Reason+": "+lastLine(pod.Status.Message), ": ")
	}
	return ""
}
