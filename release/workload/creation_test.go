package workload_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

// apiMessages are messages of real API servers, by the row of the table of causes that they belong to.
var apiMessages = map[string][]string{
	"Pod Security": {`pods "web-5d-x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`},
	"an admission webhook or admission policy that denies them": {
		`admission webhook "pods.example.com" denied the request: no root`,
		`pods "web-0" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`,
		`pods "web-0" is forbidden: image policy webhook backend denied one or more images: x`},
	"a LimitRange": {
		`pods "web-x" is forbidden: maximum memory usage per Container is 64Mi, but limit is 1Gi`,
		`pods "web-x" is forbidden: [minimum cpu usage per Pod is 1, but request is 100m, maximum cpu usage per Pod is 2]`,
		`pods "web-x" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000`},
	"a ResourceQuota that requires requests or limits": {
		`pods "web-x" is forbidden: failed quota: compute: must specify limits.cpu for: app; limits.memory for: app`},
	"a rule of the cluster's distribution or of the namespace on what pods may use": {
		`pods "web-" is forbidden: unable to validate against any security context constraint: [provider restricted]`,
		`pods "web-x" is forbidden: pod node label selector conflicts with its namespace node label selector`},
	"an invalid pod, for example after a webhook or a LimitRange has set defaults": {
		`Pod "web-x" is invalid: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal ` +
			`to cpu limit of 1`},
	"an API server that has not counted a new ResourceQuota yet": {
		`pods "web-x" is forbidden: status unknown for quota: q, resources: pods`},
	"a ResourceQuota that is used up": {
		`pods "web-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4`,
		`pods "web-x" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [high]}]`},
	"a ServiceAccount that doesn't exist": {
		`pods "web-" is forbidden: error looking up service account shop/web: serviceaccount "web" not found`},
	"a PriorityClass or RuntimeClass that doesn't exist": {
		`pods "web-x" is forbidden: no PriorityClass with name high was found`,
		`pods "web-x" is forbidden: pod rejected: RuntimeClass "gvisor" not found`},
	"an admission webhook that doesn't answer and has `failurePolicy: Fail`": {
		`Internal error occurred: failed calling webhook "a.b": failed to call webhook: Post "https://127.0.0.1:1/": ` +
			`dial tcp 127.0.0.1:1: connect: connection refused`},
	"any other refusal": {`pods is forbidden: User "system:kube-controller-manager" cannot create resource "pods"`},
}

// Each row of the table knows the messages of the API server, and docs/rollouts.md has the same rows.
func TestCreationCauses_KnowMessages_AndAreDocumented(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/rollouts.md")
	require.NoError(t, err)
	ends := map[workload.Cause]string{workload.CauseDenied: "after 10 seconds",
		workload.CauseQuota: "after its patience", workload.CauseUndecided: "at its deadline"}
	for _, row := range workload.CreationCauses {
		require.Contains(t, string(guide), "\n| "+row.What+" | "+ends[row.Cause]+" |\n")
		messages := apiMessages[row.What]
		require.NotEmpty(t, messages, row.What)
		for _, message := range messages {
			f := workload.CreationFailure{Message: message}
			require.Equal(t, row.Cause, f.Cause(), message)
			require.Equal(t, row.Cause, workload.CauseOf(f.String()), message)
		}
	}
	for _, message := range []string{"etcdserver: request timed out",
		"the server is currently unable to handle the request",
		"Internal error occurred: resource quota evaluation timed out"} {
		require.Equal(t, workload.CauseUndecided, workload.CreationFailure{Message: message}.Cause(), message)
	}
	require.Equal(t, workload.CauseStart, workload.CauseOf("pod web-x: ImagePullBackOff: manifest unknown"))
}

func TestCreationFailure_PatienceLeft(t *testing.T) {
	t.Parallel()
	denied, quota := apiMessages["Pod Security"][0], apiMessages["a ResourceQuota that is used up"][0]
	hour := time.Hour
	for name, c := range map[string]struct {
		reason                        string
		message                       string
		elapsed, stalled, since, last time.Duration
		deadline                      time.Duration
		left                          time.Duration
		ends                          bool
	}{
		"Denied": {"a rule does not change by itself", denied, hour, hour, 4 * time.Second, 0, hour,
			6 * time.Second, true},
		"DeniedForLong": {"it has ended", denied, hour, hour, hour, 0, hour, 10*time.Second - hour, true},
		"StillComing": {"the number of new pods has just changed", denied, hour, 3 * time.Second, hour, 0, hour,
			7 * time.Second, true},
		"JustBegun": {"it may be left by an earlier release", denied, time.Second, time.Second, hour, 0, hour,
			9 * time.Second, true},
		"Outdated": {"it was last reported before the job began, and the rule may have changed since", denied,
			20 * time.Second, 20 * time.Second, hour, 30 * time.Second, hour, 40 * time.Second, true},
		"ReportedAgain": {"a controller was denied since the job began", denied, 20 * time.Second, 20 * time.Second, hour,
			time.Second, hour, -10 * time.Second, true},
		"Quota": {"other pods may end", quota, 20 * time.Second, 20 * time.Second, hour, 0, hour,
			40 * time.Second, true},
		"ShortDeadline": {"at most half of it", quota, 0, 0, 0, 0, 30 * time.Second, 15 * time.Second, true},
		"Undecided": {"an unreachable webhook decides nothing", apiMessages["an admission webhook that doesn't answer and "+
			"has `failurePolicy: Fail`"][0], hour, hour, hour, 0, hour, 0, false},
		"None": {"nothing is reported", "", hour, hour, hour, 0, hour, 0, false},
	} {
		now := time.Unix(1e9, 0)
		f := workload.CreationFailure{Message: c.message, Since: now.Add(-c.since)}
		if c.last > 0 {
			f.Last = now.Add(-c.last)
		}
		left, ends := f.PatienceLeft(workload.Snapshot{Now: now, Elapsed: c.elapsed, StalledFor: c.stalled}, c.deadline)
		require.Equal(t, c.ends, ends, "%s: %s", name, c.reason)
		require.Equal(t, c.left, left, "%s: %s", name, c.reason)
	}
}

// Controllers put a text of their own before the API server's words.
func TestCreationMessage_IsTheAPIServers(t *testing.T) {
	t.Parallel()
	const words = `pods "web-0" is forbidden: exceeded quota: q`
	for _, text := range []string{words, "Error creating: " + words,
		"(combined from similar events): Error creating: " + words,
		"create Pod web-0 in StatefulSet web failed error: " + words,
		"failed to create pod: " + words + `, pod: {"metadata":{}}`,
		`Failed to create new replica set "web-5d": ` + words} {
		require.Equal(t, words, workload.CreationMessage(text))
	}
}

func TestWaiting_OnPodsThatAreNotCreated(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	w := workload.Waiting{Workload: name("Deployment shop/web"), Deadline: 10 * time.Minute,
		Progress: "0 of 1 new pods are ready", CanFail: func(workload.Pod) bool { return true }, Explanation: "no reason",
		Snapshot: workload.Snapshot{Now: now, Elapsed: 3 * time.Second, StalledFor: 3 * time.Second,
			Creation: workload.CreationFailure{Message: "admission webhook \"a\" denied the request: no"}}}
	d := w.Next()
	require.Equal(t, workload.ActWait, d.Action)
	require.Equal(t, `0 of 1 new pods are ready: its pods cannot be created: admission webhook "a" denied the request: no`,
		d.Reason, "the reason is shown at once")
	require.Equal(t, 7*time.Second, d.RecheckAfter)
	in, is := w.ReportIn()
	require.True(t, is)
	require.Equal(t, time.Second, in, "a short failure is not reported")

	w.Elapsed, w.StalledFor = 10*time.Second, 10*time.Second
	require.Equal(t, workload.ActReadPods, w.Next().Action, "pods may have come")
	w.PodsSeen = true
	d = w.Next()
	require.Equal(t, failure.WorkloadFailed, d.Failure.Kind)
	require.Equal(t, `Deployment shop/web: 0 of 1 new pods are ready after 10 s: its pods cannot be created: admission `+
		`webhook "a" denied the request: no`, d.Failure.Message)

	w.Creation = workload.CreationFailure{Unreadable: true}
	d = w.Next()
	require.Equal(t, workload.ActWait, d.Action, "an unknown reason ends nothing")
	require.Contains(t, d.Reason, "some of its pods are missing; events may say why, but this party's worker may not read")
	w.Elapsed = w.Deadline
	require.Equal(t, failure.WorkloadFailed, w.Next().Failure.Kind)
}

// What the cluster names is reported after a few seconds, and ends the job at its deadline only.
func TestWaiting_OnPodsThatDoNotStart(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	guide, err := os.ReadFile("../../docs/rollouts.md")
	require.NoError(t, err)
	for _, reason := range []string{"Unschedulable", "SchedulingGated", "FailedCreatePodSandBox", "FailedMount",
		"FailedAttachVolume"} {
		require.Contains(t, string(guide), "`"+reason+"`")
		w := workload.Waiting{Workload: name("w"), Deadline: 10 * time.Minute, Progress: "p",
			CanFail: func(workload.Pod) bool { return true }, PodReason: "pod x: " + reason,
			Snapshot: workload.Snapshot{Now: now, Elapsed: 9 * time.Minute, StalledFor: 9 * time.Minute, PodsSeen: true,
				Pods: []workload.Pod{{Name: "x", Reason: reason, Since: now.Add(-3 * time.Second)}}}}
		d := w.Next()
		require.Equal(t, workload.ActWait, d.Action, reason)
		require.Equal(t, "p: pod x: "+reason, d.Reason)
		in, is := w.ReportIn()
		require.True(t, is)
		require.Equal(t, time.Second, in, reason)
	}
	silent := workload.Pod{Reason: "ContainerCreating", Since: now.Add(-5 * time.Second)}
	require.True(t, silent.Silent(now), "its status does not say why it does not start")
	require.False(t, silent.Silent(now.Add(-2*time.Second)), "it is just starting")
	silent.Reason = "Unschedulable"
	require.False(t, silent.Silent(now))
}

func TestLacksPods(t *testing.T) {
	t.Parallel()
	ready, starting := workload.Pod{Ready: true}, workload.Pod{}
	lacks := func(replicas int32, ordered bool, pods ...workload.Pod) bool {
		return workload.Snapshot{Replicas: replicas, PodsSeen: true, Pods: pods}.LacksPods(ordered)
	}
	require.True(t, lacks(2, false, starting))
	require.False(t, lacks(1, false, starting), "all exist")
	require.False(t, lacks(1, false, workload.Pod{Deleting: true}), "its successor comes when it has ended")
	require.False(t, lacks(2, true, starting), "the next one comes when this one is ready")
	require.True(t, lacks(2, true, ready))
	require.False(t, workload.Snapshot{Replicas: 2}.LacksPods(false), "the pods were not read")
	require.False(t, workload.Snapshot{Replicas: 2, PodsSeen: true, Generation: 2}.LacksPods(false),
		"the controller has not seen the change")
}

func TestProgress_RecordPods(t *testing.T) {
	t.Parallel()
	var p workload.Progress
	require.False(t, p.RecordPods(0, 0), "the first numbers are no change")
	p.ElapsedSeconds = 5
	require.False(t, p.RecordPods(0, 0))
	require.Equal(t, 5*time.Second, p.StalledFor())
	require.True(t, p.RecordPods(1, 0))
	require.Zero(t, p.StalledFor())
}

type name string

func (n name) String() string { return string(n) }

func TestUnavailableNote(t *testing.T) {
	t.Parallel()
	s := workload.Snapshot{Replicas: 5, Ready: 5, Available: 3, MinReadySeconds: 10}
	require.Equal(t, "2 ready pods are not available yet: minReadySeconds is 10", s.UnavailableNote())
	s.Available, s.MinReadySeconds = 4, 0
	require.Contains(t, s.UnavailableNote(), "1 ready pod is not available yet: its controller does not count them yet")
	s.Available = 5
	require.Empty(t, s.UnavailableNote())
}
