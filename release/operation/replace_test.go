package operation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

func TestRestart_BorrowsUpdateSettings_ByKindAndMethod(t *testing.T) {
	t.Parallel()
	statefulSet := running(3)
	statefulSet.Settings = map[string]json.RawMessage{workload.PathUpdateStrategy: raw(
		`{"type":"RollingUpdate","rollingUpdate":{"partition":0}}`)}
	limited := statefulSet
	limited.Settings = map[string]json.RawMessage{workload.PathUpdateStrategy: raw(`{}`),
		workload.PathUpdateUnavailable: raw(`2`)}
	unready := statefulSet
	unready.Available = 2
	onDelete := statefulSet
	onDelete.UpdateType = workload.UpdateOnDelete
	recreate := running(3)
	recreate.UpdateType = workload.UpdateRecreate
	daemonSet := with(running(3), workload.Pod{Name: "d", Revision: "abc"})
	daemonSet.Settings = map[string]json.RawMessage{workload.PathUpdateUnavailable: raw(`0`),
		workload.PathUpdateSurge: raw(`"10%"`)}
	as := running(3)
	as.Settings = map[string]json.RawMessage{workload.PathDeploymentUnavailable: raw(`1`),
		workload.PathDeploymentSurge: raw(`0`)}
	cases := map[string]struct {
		reason     string
		kind       string
		method     plan.Method
		seen       operation.Observed
		settings   []workload.Setting
		byDeletion bool
	}{
		"Deployment, one by one": {"one pod unavailable, none beyond the size", operation.KindDeployment,
			plan.Sequential, running(3), []workload.Setting{
				{Path: workload.PathDeploymentUnavailable, Value: raw(`1`), Expected: raw(`"25%"`)},
				{Path: workload.PathDeploymentSurge, Value: raw(`0`), Expected: raw(`"25%"`)}}, false},
		"Deployment, all at once": {"all pods unavailable, none beyond the size", operation.KindDeployment,
			plan.Parallel, running(3), []workload.Setting{
				{Path: workload.PathDeploymentUnavailable, Value: raw(`"100%"`), Expected: raw(`"25%"`)},
				{Path: workload.PathDeploymentSurge, Value: raw(`0`), Expected: raw(`"25%"`)}}, false},
		"already set": {"a setting that already has the wanted value is not borrowed",
			operation.KindDeployment, plan.Sequential, as, nil, false},
		"Recreate": {"the type Recreate has no settings to borrow", operation.KindDeployment,
			plan.Sequential, recreate, nil, false},
		"StatefulSet, one by one": {"its own update replaces one pod at a time", operation.KindStatefulSet,
			plan.Sequential, statefulSet, nil, false},
		"StatefulSet that takes more": {"a limit of its own is borrowed", operation.KindStatefulSet, plan.Sequential,
			limited, []workload.Setting{
				{Path: workload.PathUpdateUnavailable, Value: raw(`1`), Expected: raw(`2`)}}, false},
		"StatefulSet, all at once": {"the engine deletes the pods; OnDelete keeps the controller from deleting pods " +
			"as well", operation.KindStatefulSet, plan.Parallel, statefulSet, []workload.Setting{
			{Path: workload.PathUpdateStrategy, Value: raw(`{"type":"OnDelete"}`),
				Expected: statefulSet.Settings[workload.PathUpdateStrategy]}}, true},
		"StatefulSet with a pod out": {"its own update would make a second pod unavailable: OnDelete prevents that",
			operation.KindStatefulSet, plan.Sequential, unready, []workload.Setting{
				{Path: workload.PathUpdateStrategy, Value: raw(`{"type":"OnDelete"}`),
					Expected: statefulSet.Settings[workload.PathUpdateStrategy]}}, true},
		"StatefulSet, OnDelete": {"it replaces nothing by itself", operation.KindStatefulSet, plan.Sequential,
			onDelete, nil, true},
		"DaemonSet, one by one": {"one node at a time, without surge", operation.KindDaemonSet, plan.Sequential,
			daemonSet, []workload.Setting{
				{Path: workload.PathUpdateUnavailable, Value: raw(`1`), Expected: raw(`0`)},
				{Path: workload.PathUpdateSurge, Value: raw(`0`), Expected: raw(`"10%"`)}}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := operation.Decide(request(tc.kind, plan.Restart, tc.method), tc.seen)
			check(t, tc.reason, verdict{action: workload.ActWrite, says: "mark its pod template"}, d)
			require.Equal(t, marker, d.Write.Stamp, tc.reason)
			require.Equal(t, tc.settings, d.Write.Settings, tc.reason)
			saved, err := operation.ParseOriginal(d.Write.Annotations[workload.AnnotationOriginal], borrowable)
			require.NoError(t, err)
			require.Equal(t, tc.byDeletion, saved.ByDeletion, tc.reason)
			require.Len(t, saved.Borrowed, len(tc.settings), "what is borrowed is saved")
			require.NotEmpty(t, saved.FromRevision)
		})
	}
}

func TestRestart_DecidesByStatus(t *testing.T) {
	t.Parallel()
	under := func(updated, available int32) operation.Observed {
		s := ours(running(3), operation.Original{Operation: plan.Restart, Changed: true,
			Change: revision.Change{FromRevision: "6", FromReplicas: n(3)}})
		s.Marker, s.Updated, s.Available, s.Terminating = marker, updated, available, n(0)
		return s
	}
	undone := under(3, 3)
	undone.Marker = "another"
	stamped := running(3)
	stamped.Marker = marker
	stampedHalf := stamped
	stampedHalf.Updated = 1
	oldPod := under(3, 3)
	oldPod.Terminating = n(1)
	uncounted := under(3, 3)
	uncounted.Terminating = nil
	surplus := under(3, 3)
	surplus.Total = 4
	zero := under(0, 0)
	zero.Replicas = 0
	paused, held := running(3), running(3)
	paused.Paused, held.Partition = true, 2
	recreated := under(3, 3)
	recreated.UpdateType = workload.UpdateRecreate
	cases := map[string]struct {
		reason string
		seen   operation.Observed
		want   verdict
	}{
		"no pods": {"a stopped workload has nothing to restart and is not stamped", running(0),
			verdict{action: workload.ActDone, says: "nothing to do: it has no pods"}},
		"done before": {"a template with the marker, and all pods of it, were restarted by this release", stamped,
			verdict{action: workload.ActDone, says: "restarted: 3 of 3"}},
		"stamped before": {"a template with the marker is not stamped again", stampedHalf,
			verdict{action: workload.ActWrite, says: "mark"}},
		"goes on": {"pods are being replaced", under(1, 2),
			verdict{action: workload.ActWait, says: "2 of 3 pods are ready, 1 of 3 restarted"}},
		"old pod": {"a terminating old pod is still an old pod", oldPod,
			verdict{action: workload.ActWait, says: "1 pod is still terminating"}},
		"uncounted": {"if the status does not count terminating pods, the pods are read", uncounted,
			verdict{action: workload.ActReadPods}},
		"one too many": {"a pod beyond the size is an old pod", surplus, verdict{action: workload.ActWait}},
		"done": {"every pod new and ready", under(3, 3),
			verdict{action: workload.ActWrite, says: "restarted: 3 of 3 pods are ready"}},
		"recreated": {"the message mentions the type Recreate", recreated,
			verdict{action: workload.ActWrite, says: "its update type is Recreate"}},
		"undone": {"a template that another client restores is not overwritten", undone,
			verdict{workload.ActWrite, "another client changed its pod template", failure.WorkloadFailed}},
		"stopped": {"a workload that another client stops meanwhile has no pods to replace", zero,
			verdict{action: workload.ActWrite, says: "scaled it to zero meanwhile"}},
		"paused": {"a paused Deployment would never restart", paused,
			verdict{workload.ActFail, "kubectl rollout resume", failure.Refused}},
		"held": {"an unfinished rollout has set its partition", held,
			verdict{workload.ActFail, "held at partition 2", failure.Refused}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := operation.Decide(request(operation.KindDeployment, plan.Restart, plan.Sequential), tc.seen)
			check(t, tc.reason, tc.want, d)
			if name == "stamped before" {
				require.Empty(t, d.Write.Stamp, tc.reason)
			}
			if name == "done" {
				require.Equal(t, workload.Result{Message: "restarted: 3 of 3 pods are ready", Changed: true,
					Change: revision.Change{FromRevision: "6", ToRevision: "7", FromReplicas: n(3), ToReplicas: n(3)}},
					*d.Result)
			}
		})
	}
}

func TestRestart_DeletesPodsInOrder(t *testing.T) {
	t.Parallel()
	fresh := func(ordinal int32, ready bool) workload.Pod {
		return workload.Pod{Name: podName(ordinal), Ordinal: ordinal, Marker: marker, Ready: ready, Available: ready}
	}
	old := func(ordinal int32, ready bool) workload.Pod {
		return workload.Pod{Name: podName(ordinal), Ordinal: ordinal, Ready: ready, Available: ready}
	}
	leaving := func(ordinal int32) workload.Pod {
		return workload.Pod{Name: podName(ordinal), Ordinal: ordinal, Ready: true, Available: true, Deleting: true}
	}
	settling := fresh(2, true)
	settling.Available = false
	cases := map[string]struct {
		reason    string
		method    plan.Method
		available int32
		pods      []workload.Pod
		delete    []string
		done      bool
	}{
		"all": {"PARALLEL deletes all old pods", plan.Parallel, 3,
			[]workload.Pod{old(0, true), old(1, true), old(2, true)}, []string{"s-2", "s-1", "s-0"}, false},
		"rest": {"but no new one", plan.Parallel, 2,
			[]workload.Pod{fresh(0, false), old(1, true), leaving(2)}, []string{"s-1"}, false},
		"largest": {"SEQUENTIAL begins with the largest ordinal", plan.Sequential, 3,
			[]workload.Pod{old(0, true), old(1, true), old(2, true)}, []string{"s-2"}, false},
		"next": {"it continues when that pod is ready again", plan.Sequential, 3,
			[]workload.Pod{old(0, true), old(1, true), fresh(2, true)}, []string{"s-1"}, false},
		"not ready": {"it does not continue before", plan.Sequential, 2,
			[]workload.Pod{old(0, true), old(1, true), fresh(2, false)}, nil, false},
		"settling": {"it waits for minReadySeconds", plan.Sequential, 3,
			[]workload.Pod{old(0, true), old(1, true), settling}, nil, false},
		"status behind": {"it waits until the status agrees", plan.Sequential, 2,
			[]workload.Pod{old(0, true), old(1, true), fresh(2, true)}, nil, false},
		"leaving": {"it waits while a pod is terminating", plan.Sequential, 3,
			[]workload.Pod{old(0, true), old(1, true), leaving(2)}, nil, false},
		"missing": {"it waits while a pod is missing", plan.Sequential, 3,
			[]workload.Pod{old(0, true), old(1, true)}, nil, false},
		"sick first": {"deleting an unready pod makes no further pod unavailable", plan.Sequential, 1,
			[]workload.Pod{old(0, true), old(1, false), old(2, false)}, []string{"s-1"}, false},
		"done": {"all new and ready", plan.Sequential, 3,
			[]workload.Pod{fresh(0, true), fresh(1, true), fresh(2, true)}, nil, true},
		"last starting": {"all new, one not ready yet", plan.Parallel, 2,
			[]workload.Pod{fresh(0, true), fresh(1, true), fresh(2, false)}, nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := ours(running(3), operation.Original{Operation: plan.Restart, ByDeletion: true, Changed: true})
			seen.Marker, seen.Available = marker, tc.available
			seen = with(seen, tc.pods...)
			d := operation.Decide(request(operation.KindStatefulSet, plan.Restart, tc.method), seen)
			var deleted []string
			for _, p := range d.Delete {
				deleted = append(deleted, p.Name)
			}
			require.Equal(t, tc.delete, deleted, "%s (%s)", tc.reason, d.Reason)
			require.Equal(t, tc.done, d.Result != nil, tc.reason)
			if !tc.done && len(tc.delete) == 0 {
				require.Equal(t, workload.ActWait, d.Action, tc.reason)
				require.True(t, d.WatchPods, tc.reason)
			}
			seen.ObservedGeneration--
			d = operation.Decide(request(operation.KindStatefulSet, plan.Restart, tc.method), seen)
			require.Empty(t, d.Delete, "a controller that has not seen the new template would create the old pod again")
		})
	}
}

func podName(ordinal int32) string { return "s-" + string(rune('0'+ordinal)) }

func TestWait_EndsByPodStatusOrDeadline(t *testing.T) {
	t.Parallel()
	bad, crash, invalid, never := sick("p", "ImagePullBackOff", time.Hour), sick("p", "CrashLoopBackOff", time.Hour),
		sick("p", "InvalidImageName", 0), sick("p", "NotReady", time.Hour)
	fresh := sick("p", "ImagePullBackOff", 20*time.Second)
	cases := map[string]struct {
		reason   string
		deadline int64
		elapsed  time.Duration
		trouble  string
		pods     []workload.Pod
		want     verdict
		again    time.Duration
	}{
		"early": {"trouble that has just begun may pass", 600, 30 * time.Second, "", []workload.Pod{fresh},
			verdict{action: workload.ActWait, says: "0 of 3 pods are ready: pod p: ImagePullBackOff: its message"},
			40 * time.Second},
		"a minute": {"after a minute it rarely passes", 600, time.Minute, "", []workload.Pod{bad},
			verdict{workload.ActWrite, "Deployment shop/order: 0 of 3 pods are ready after 60 s: pod p: " +
				"ImagePullBackOff: its message", failure.WorkloadFailed}, 0},
		"from before": {"trouble from before the operation counts from the operation's start", 600, 10 * time.Second,
			"", []workload.Pod{bad}, verdict{action: workload.ActWait}, 50 * time.Second},
		"half the time": {"half of a short deadline is enough", 20, 10 * time.Second, "", []workload.Pod{crash},
			verdict{workload.ActWrite, "after 10 s: pod p: CrashLoopBackOff", failure.WorkloadFailed}, 0},
		"hopeless": {"a name that is no image name fails at once", 600, time.Second, "",
			[]workload.Pod{invalid}, verdict{workload.ActWrite, "after 1 s: pod p: InvalidImageName",
				failure.WorkloadFailed}, 0},
		"never ready": {"a pod that is merely unready may use the whole deadline", 600, 599 * time.Second, "",
			[]workload.Pod{never}, verdict{action: workload.ActWait}, 0},
		"deadline": {"it fails at the deadline", 600, 600 * time.Second, "", []workload.Pod{never},
			verdict{workload.ActWrite, "after 600 s: pod p: NotReady: its message", failure.WorkloadFailed}, 0},
		"no pod": {"the workload's status explains why it has no pods", 600, 601 * time.Second,
			"exceeded quota", nil, verdict{workload.ActWrite,
				"after 600 s: its pods cannot be created: exceeded quota", failure.WorkloadFailed}, 0},
		"no reason": {"without a reason, the message says where to look", 600, 600 * time.Second, "", nil,
			verdict{workload.ActWrite, "no pod reports a reason: check it with `kubectl describe`",
				failure.WorkloadFailed}, 0},
		"worst of them": {"the reason is that of the pod in the worst state", 600, time.Second, "",
			[]workload.Pod{never, sick("q", "ErrImagePull", 0)},
			verdict{action: workload.ActWait, says: "pod q: ErrImagePull"}, 60 * time.Second},
		"on its way out": {"a terminating pod does not count", 600, time.Hour / 10, "",
			[]workload.Pod{{Name: "p", Deleting: true, Reason: "CrashLoopBackOff", Since: now.Add(-time.Hour)}},
			verdict{action: workload.ActWait}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(operation.KindDeployment, plan.Start, plan.Parallel)
			req.DeadlineSeconds = tc.deadline
			seen := ours(running(3), operation.Original{Operation: plan.Start, Size: n(3), Requested: n(3),
				Changed: true})
			seen.Available, seen.Elapsed, seen.Creation.Message = 0, tc.elapsed, tc.trouble
			d := operation.Decide(req, with(seen, tc.pods...))
			check(t, tc.reason, tc.want, d)
			require.Equal(t, tc.again, d.RecheckAfter, tc.reason)
			if d.Failure != nil {
				require.True(t, d.Write.Release, "the claim is released")
				require.Nil(t, d.Write.Replicas, "nothing is rolled back")
			}
		})
	}
}

func TestWait_ReadsPodsBeforeFailingAtDeadline(t *testing.T) {
	t.Parallel()
	seen := ours(running(3), operation.Original{Operation: plan.Start, Size: n(3), Requested: n(3)})
	seen.Available, seen.Elapsed = 0, time.Hour
	check(t, "the failure carries the pod's own message", verdict{action: workload.ActReadPods},
		operation.Decide(request(operation.KindDeployment, plan.Start, plan.Parallel), seen))
}

func TestRestart_IsNotFailedByOldPod(t *testing.T) {
	t.Parallel()
	seen := ours(running(3), operation.Original{Operation: plan.Restart, Changed: true})
	seen.Marker, seen.Available, seen.Updated, seen.Elapsed = marker, 2, 1, 5*time.Minute
	old := sick("old", "CrashLoopBackOff", time.Hour)
	old.Marker = ""
	d := operation.Decide(request(operation.KindDeployment, plan.Restart, plan.Sequential), with(seen, old))
	check(t, "a restart may fix an old pod, so an old pod does not fail it",
		verdict{action: workload.ActWait, says: "pod old: CrashLoopBackOff"}, d)
}

func TestStatefulSet_StuckPodOfOldTemplateIsDeleted(t *testing.T) {
	t.Parallel()
	req := request(operation.KindStatefulSet, plan.Start, plan.Parallel)
	seen := ours(running(3), operation.Original{Operation: plan.Start, Size: n(3), Requested: n(3)})
	seen.Available, seen.OrderedReady, seen.Revision = 1, true, "s-new"
	stuck := sick("s-1", "ImagePullBackOff", time.Second)
	stuck.Ordinal, stuck.Revision = 1, "s-old"
	d := operation.Decide(req, with(seen, stuck))
	check(t, "its controller would wait for it forever",
		verdict{action: workload.ActDelete, says: "stuck on an older template"}, d)
	stuck.Revision = "s-new"
	check(t, "a pod of the newest template is not deleted", verdict{action: workload.ActWait},
		operation.Decide(req, with(seen, stuck)))
	stuck.Revision, stuck.Reason = "s-old", "NotReady"
	check(t, "a pod that may still become ready is not deleted", verdict{action: workload.ActWait},
		operation.Decide(req, with(seen, stuck)))
}

func TestRestore_KeepsChangesByOtherClients(t *testing.T) {
	t.Parallel()
	borrowed := []workload.Borrowed{
		{Path: workload.PathDeploymentUnavailable, Own: raw(`"25%"`), Temporary: raw(`1`)},
		{Path: workload.PathDeploymentSurge, Own: raw(`"25%"`), Temporary: raw(`0`)},
	}
	seen := ours(running(3), operation.Original{Operation: plan.Restart, Borrowed: borrowed})
	seen.Settings = map[string]json.RawMessage{workload.PathDeploymentUnavailable: raw(`1`),
		workload.PathDeploymentSurge: raw(`2`)}
	d := operation.Restore(request(operation.KindDeployment, plan.Restart, plan.Sequential), seen)
	require.Equal(t, []workload.Setting{{Path: workload.PathDeploymentUnavailable, Value: raw(`"25%"`),
		Expected: raw(`1`)}}, d.Write.Settings)
	require.Contains(t, d.Result.Message, "another client changed "+workload.PathDeploymentSurge+
		" meanwhile, which is left unchanged")
	require.True(t, d.Write.Release)
	require.Contains(t, d.Write.Remove, workload.AnnotationOriginal)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*operation.Request)
		says   string
	}{
		"kind": {"other kinds are refused", func(r *operation.Request) {
			r.Workload.WorkloadRef.Kind = "Job"
		}, "Job shop/order of apps/v1 cannot be released"},
		"version": {"other API versions are refused", func(r *operation.Request) {
			r.Workload.WorkloadRef.APIVersion = "apps/v1beta1"
		}, "of apps/v1beta1 cannot be released"},
		"operation": {"operations of a later build are refused", func(r *operation.Request) {
			r.Operation = "MOVE"
		}, `does not know the operation "MOVE"`},
		"build": {"nothing can be deployed without a built image", func(r *operation.Request) {
			r.Operation = plan.CompileDeploy
		}, "without a package or an image"},
		"package": {"nothing can be deployed without a package", func(r *operation.Request) {
			r.Operation = plan.HTTPUploadDeploy
		}, "without a package"},
		"DaemonSet": {"a DaemonSet has no size", func(r *operation.Request) {
			r.Workload.WorkloadRef.Kind, r.Operation = operation.KindDaemonSet, plan.Start
		}, "START cannot act on it; use RESTART"},
		"method": {"an empty method is not replaced by the default", func(r *operation.Request) {
			r.Method = ""
		}, `the method "" is neither`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(operation.KindDeployment, plan.Stop, plan.Parallel)
			tc.change(&req)
			f := operation.Validate(req)
			require.NotNil(t, f, tc.reason)
			require.Equal(t, failure.Refused, f.Kind)
			require.Contains(t, f.Message, tc.says, tc.reason)
		})
	}
	require.Nil(t, operation.Validate(request(operation.KindStatefulSet, plan.Restart, plan.Sequential)))
}

// A completed restart is requested again before the workload's controller has seen its last write, which restored the
// borrowed settings.
func TestRestart_IsNotRepeated_WhenStatusLags(t *testing.T) {
	t.Parallel()
	seen := running(3)
	seen.Marker, seen.Generation = marker, seen.ObservedGeneration+1
	req := request(operation.KindDeployment, plan.Restart, plan.Sequential)
	require.Equal(t, workload.ActWait, operation.Decide(req, seen).Action,
		"an outdated status is no reason to claim the workload again")
	seen.ObservedGeneration = seen.Generation
	d := operation.Decide(req, seen)
	require.Equal(t, workload.ActDone, d.Action, "once the status is current, the restart is complete")
	require.Contains(t, d.Result.Message, "restarted: 3 of 3 pods are ready")
}

// "3 of 3 pods are ready" is no reason to wait: the sentence names what is missing.
func TestWait_NamesWhatIsMissing_WhenPodsAreReady(t *testing.T) {
	t.Parallel()
	req := request(operation.KindDeployment, plan.Start, plan.Parallel)
	seen := ours(running(3), operation.Original{Operation: plan.Start, Size: n(3), Requested: n(3)})
	seen.Ready, seen.Available, seen.MinReadySeconds = 3, 1, 30
	check(t, "a pod must be ready for a while", verdict{action: workload.ActWait, says: "1 of 3 pods are ready and " +
		"available, 2 ready pods are not available yet: minReadySeconds is 30"}, operation.Decide(req, seen))
	seen.Available, seen.Generation = 3, seen.ObservedGeneration+1
	check(t, "the status is of an earlier spec", verdict{action: workload.ActWait,
		says: "3 of 3 pods are ready, its controller has not seen the last change yet"}, operation.Decide(req, seen))
}

// A request that wants to know it gets what keeps the pods from coming, once it has lasted for a few seconds.
func TestWait_ReportsWhatKeepsPodsFromComing(t *testing.T) {
	t.Parallel()
	req := request(operation.KindDeployment, plan.Start, plan.Parallel)
	seen := ours(running(3), operation.Original{Operation: plan.Start, Size: n(3), Requested: n(3)})
	seen.Available, seen.Creation.Message = 0, "exceeded quota"
	seen.Elapsed, seen.StalledFor = 3*time.Second, 3*time.Second
	require.Empty(t, operation.Decide(req, seen).Blocked, "the request does not ask for it")
	req.ReportBlocked = true
	d := operation.Decide(req, seen)
	require.Empty(t, d.Blocked, "it may pass within seconds")
	require.Equal(t, time.Second, d.RecheckAfter)
	seen.StalledFor = 4 * time.Second
	seen.Elapsed = seen.StalledFor
	require.Equal(t, "its pods cannot be created: exceeded quota", operation.Decide(req, seen).Blocked)
	seen.Creation.Message = ""
	require.Contains(t, operation.Decide(req, with(seen, sick("p", "Unschedulable", 5*time.Second))).Blocked,
		"pod p: Unschedulable")
	require.Empty(t, operation.Decide(req, with(seen, sick("p", "Unschedulable", time.Second))).Blocked)
}
