package build_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/build"
)

// made returns the Job of a build, created by this release or another one.
func made(t testing.TB, r build.Request, change func(*batchv1.Job)) *batchv1.Job {
	job, err := withTemplate(t, r, jobTemplate).Job([]byte(jobTemplate))
	require.NoError(t, err)
	job.UID, job.Status.Active = "u1", 1
	if change != nil {
		change(job)
	}
	return job
}

func ends(how batchv1.JobConditionType, reason string) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Active = 0
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue},
			{Type: how, Status: corev1.ConditionTrue,
				Reason: reason, Message: "Job has reached the specified backoff limit.",
				LastTransitionTime: metav1.NewTime(time.Unix(1000, 0))}}
	}
}

func pod(phase corev1.PodPhase, code int32, message string) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "build"}, {Name: "cache"}}},
		Status: corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "cache",
				State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{Message: "evil.test/x@sha256:" + digest}}},
			{Name: "build", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code,
				Message: message}}}}}}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	r := withTemplate(t, imageBuild(), jobTemplate)
	other := r
	other.By = "task/before/1-111"
	const yield = "registry.test:5000/shop/order@sha256:" + digest
	good, bad := pod(corev1.PodSucceeded, 0, yield), pod(corev1.PodFailed, 3, "cc order.c\norder.c:3: syntax error\n")
	recorded := func(text string) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			ends(batchv1.JobComplete, "")(job)
			job.Annotations[build.AnnotationYield] = text
		}
	}
	for name, tc := range map[string]struct {
		reason     string
		seen       build.Observed
		want       build.Action
		reasonText string
	}{
		"None": {"a build without a Job starts", build.Observed{}, build.Create, ""},
		"TooLate": {"unless the Job could not be created in time", build.Observed{Overdue: true}, build.Fail,
			"its Job could not be created within 600 s"},
		"DeletedJob": {"a Job that disappears was deleted by another client", build.Observed{Joined: "u1"}, build.Fail,
			"its Job shop/slipway-build-"},
		"Going": {"a Job that is being deleted must be deleted first",
			build.Observed{Job: made(t, r, func(j *batchv1.Job) {
				j.DeletionTimestamp = new(metav1.Now())
			})}, build.Wait, "is being deleted"},
		"Foreign": {"a Job of that name without annotations is not Slipway's",
			build.Observed{Job: made(t, r, func(j *batchv1.Job) {
				j.Annotations = nil
			})}, build.Fail, "is not Slipway's"},
		"Running": {"it takes time", build.Observed{Job: made(t, r, nil)}, build.Wait,
			"running (Job shop/slipway-build-"},
		"OthersRuns": {"a commit is built once, no matter which release started it",
			build.Observed{Job: made(t, other, nil)}, build.Wait, "running"},
		"Overdue": {"but at most until the deadline", build.Observed{Job: made(t, r, nil), Overdue: true},
			build.Fail, "did not end within 600 s: running"},
		"Suspended": {"a suspended Job waits", build.Observed{Job: made(t, r, func(j *batchv1.Job) {
			j.Spec.Suspend = new(true)
		})}, build.Wait, "its Job is suspended"},
		"NoPod": {"a quota may prevent its pod; the reason names a command that shows why",
			build.Observed{Job: made(t, r, func(j *batchv1.Job) {
				j.Status.Active = 0
			})}, build.Wait, "`kubectl -n shop describe job slipway-build-"},
		"Troubled": {"trouble may pass", build.Observed{Job: made(t, r, nil), PodsSeen: true,
			Trouble: "pod x: ImagePullBackOff", PatienceLeft: 1}, build.Wait,
			"waiting for its pod: pod x: ImagePullBackOff"},
		"Stuck": {"trouble that lasts fails the build before the deadline",
			build.Observed{Job: made(t, r, nil), PodsSeen: true, Trouble: "pod x: ImagePullBackOff: not found"},
			build.Fail, "can't start: pod x: ImagePullBackOff: not found"},
		"Complete": {"its result is in its pod's status",
			build.Observed{Job: made(t, r, ends(batchv1.JobComplete, ""))}, build.ReadPods, ""},
		"Yields": {"which is recorded on the Job",
			build.Observed{Job: made(t, r, ends(batchv1.JobComplete, "")), PodsSeen: true,
				Pods: []corev1.Pod{bad, good}}, build.Record, ""},
		"OthersYield": {"also if another task stopped before it recorded it",
			build.Observed{Job: made(t, other, ends(batchv1.JobComplete, "")), PodsSeen: true,
				Pods: []corev1.Pod{good}}, build.Record, ""},
		"Recorded": {"a recorded result needs no pod", build.Observed{Job: made(t, other, recorded(yield))},
			build.Done, ""},
		"Tampered": {"a changed result is checked against the catalogue",
			build.Observed{Job: made(t, r, recorded("evil.test/x@sha256:"+digest))}, build.Fail,
			"the annotation slipway.io/build-yield of Job"},
		"NoResult": {"a build without a result has failed",
			build.Observed{Job: made(t, r, ends(batchv1.JobComplete, "")), PodsSeen: true,
				Pods: []corev1.Pod{pod(corev1.PodSucceeded, 0, "")}}, build.Fail, "failed: it wrote no result"},
		"PodGone": {"so has a build whose pod was deleted before its result was read",
			build.Observed{Job: made(t, r, ends(batchv1.JobComplete, "")), PodsSeen: true}, build.Fail,
			"its pod was deleted"},
		"OthersPodGone": {"such a Job of another task is replaced",
			build.Observed{Job: made(t, other, ends(batchv1.JobComplete, "")), PodsSeen: true}, build.Replace, ""},
		"Failed": {"the cause is in its pod's status",
			build.Observed{Job: made(t, r, ends(batchv1.JobFailed, "BackoffLimitExceeded"))}, build.ReadPods, ""},
		"FailedWhy": {"the container's last line of output",
			build.Observed{Job: made(t, r, ends(batchv1.JobFailed, "BackoffLimitExceeded")), PodsSeen: true,
				Pods: []corev1.Pod{bad}}, build.Fail,
			"build of service 111 at commit 0123456789ab failed: container build ended with exit code 3: order.c:3: " +
				"syntax error"},
		"FailedNoPod": {"or else the Job's message",
			build.Observed{Job: made(t, r, ends(batchv1.JobFailed, "BackoffLimitExceeded")), PodsSeen: true},
			build.Fail, "failed: Job has reached the specified backoff limit"},
		"Deadline": {"a Job that exceeded its deadline says so",
			build.Observed{Job: made(t, r, ends(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)), PodsSeen: true},
			build.Fail, "it did not end within 60 s"},
		"OthersFailed": {"an earlier failure may have been the network's: it is retried",
			build.Observed{Job: made(t, other, ends(batchv1.JobFailed, ""))}, build.Replace, ""},
		"JoinedFailed": {"but not if this task has waited for it",
			build.Observed{Job: made(t, other, ends(batchv1.JobFailed, "")), Joined: "u1", PodsSeen: true,
				Pods: []corev1.Pod{bad}}, build.Fail, "exit code 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := r.Decide(tc.seen)
			require.Equal(t, tc.want, next.Action, "%s: %s", tc.reason, next.Reason)
			require.Contains(t, next.Reason, tc.reasonText, tc.reason)
			if tc.want == build.Record || tc.want == build.Done {
				require.Equal(t, build.Yield{Image: yield}, next.Yield)
			}
		})
	}
}

// The init container that fetches the code fails before the build: its message counts.
func TestDecide_ReportsFailedInitContainer(t *testing.T) {
	t.Parallel()
	r := withTemplate(t, imageBuild(), jobTemplate)
	failed := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed,
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "clone",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128,
				Message: "fatal: could not read from https://ann:s3cr3t@git.test/order.git?token=x"}}}}}}
	next := r.Decide(build.Observed{Job: made(t, r, ends(batchv1.JobFailed, "")), PodsSeen: true,
		Pods: []corev1.Pod{failed}})
	require.Equal(t, "build of service 111 at commit 0123456789ab failed: container clone ended with exit code 128: "+
		"fatal: could not read from https://git.test/order.git?…", next.Reason)
	evicted := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted",
		Message: "The node was low on resource: memory."}}
	next = r.Decide(build.Observed{Job: made(t, r, ends(batchv1.JobFailed, "")), PodsSeen: true,
		Pods: []corev1.Pod{evicted}})
	require.Contains(t, next.Reason, "Evicted: The node was low on resource: memory.")
}

func TestSurplus(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	r := withTemplate(t, imageBuild(), jobTemplate)
	var jobs []batchv1.Job
	for i := range 14 {
		job := made(t, r, ends(batchv1.JobComplete, ""))
		job.Name = string(rune('a' + i))
		job.Status.Conditions[1].LastTransitionTime = metav1.NewTime(now.Add(-time.Duration(i) * 20 * time.Minute))
		jobs = append(jobs, *job)
	}
	jobs = append(jobs, *made(t, r, nil))
	foreign := made(t, r, ends(batchv1.JobComplete, ""))
	foreign.Annotations = nil
	jobs = append(jobs, *foreign)
	var names []string
	for _, job := range build.Surplus(jobs, now) {
		names = append(names, job.Name)
	}
	require.Equal(t, []string{"k", "l", "m", "n"}, names, "the newest ten, running Jobs and Jobs of others stay")
	require.Empty(t, build.Surplus(jobs, now.Add(-4*time.Hour)), "and Jobs that have just ended")
}

func TestTail(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\nb", build.Tail("\x1b\ra\nb\n\n", true))
	long := ""
	for range 300 {
		long += "0123456789\n"
	}
	failed, succeeded := build.Tail(long, true), build.Tail(long, false)
	require.LessOrEqual(t, len(failed), 2000)
	require.Greater(t, len(failed), 1900)
	require.LessOrEqual(t, len(succeeded), 400)
	require.Equal(t, "…0123456789\n", failed[:len("…0123456789\n")], "it begins with a complete line")
	require.LessOrEqual(t, len(build.Tail("\xff\xfe"+long+"é", true)), 2000)
	require.Equal(t, "get https://host/a?… and ssh://host/b \"http://h/c?…\"",
		build.Tail("get https://u:p@host/a?sig=1 and ssh://git@host/b \"http://h/c#x\"", true))
}
