package operation_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

var now = time.Unix(1_700_000_000, 0)

func n(v int32) *int32 { return &v }

// running returns a healthy, unclaimed workload with that many pods.
func running(pods int32) operation.Observed {
	return operation.Observed{Snapshot: workload.Snapshot{Generation: 4, ObservedGeneration: 4, Replicas: pods,
		Total: pods, Ready: pods, Available: pods, Updated: pods, Now: now, Settings: map[string]json.RawMessage{
			workload.PathDeploymentUnavailable: json.RawMessage(`"25%"`),
			workload.PathDeploymentSurge:       json.RawMessage(`"25%"`),
		}}, UpdateType: workload.UpdateRolling, Revision: "7"}
}

// ours returns the workload as held by this release, after its first change.
func ours(seen operation.Observed, saved operation.Original) operation.Observed {
	saved.Begun = true
	seen.Claim, seen.Original = ourClaim, &saved
	return seen
}

// with adds the pods to the snapshot.
func with(seen operation.Observed, pods ...workload.Pod) operation.Observed {
	seen.Pods, seen.PodsSeen = pods, true
	return seen
}

func sick(name, reason string, since time.Duration) workload.Pod {
	return workload.Pod{Name: name, UID: name, Marker: marker, Ordinal: -1, Reason: reason, Message: "its message",
		Since: now.Add(-since)}
}

// verdict is the expected decision of a case.
type verdict struct {
	action workload.Action
	says   string
	kind   failure.Kind
}

func check(t *testing.T, reason string, want verdict, d workload.NextAction) {
	t.Helper()
	require.Equal(t, want.action, d.Action, "%s: %s", reason, d.Reason)
	require.Contains(t, d.Reason, want.says, reason)
	if want.kind != "" {
		require.NotNil(t, d.Failure, reason)
		require.Equal(t, want.kind, d.Failure.Kind, reason)
		require.Equal(t, d.Reason, d.Failure.Message, "the reason is the failure's message")
	}
	switch d.Action {
	case workload.ActWrite:
		require.NotNil(t, d.Write, reason)
		require.True(t, d.Write.OnlyIfUnchanged || d.Write.ExpectedClaim == ourClaim,
			"every write has a precondition: %s", reason)
	case workload.ActDone:
		require.NotNil(t, d.Result, reason)
	}
}

func TestDecide_ByClaim(t *testing.T) {
	t.Parallel()
	const other, dead = "task/t9/2-order@run-9", "task/t0/1-order@run-0"
	req := request(operation.KindDeployment, plan.Restart, plan.Sequential)
	req.TakeOver = dead
	by := func(claim string) operation.Observed {
		s := running(3)
		s.Claim = claim
		return s
	}
	lost := by(other)
	lost.Held = true
	missing := by("")
	missing.Held = true
	answered := missing
	answered.Ending = &workload.Ending{Result: &workload.Result{Message: "restarted: 3 of 3 pods are ready",
		Changed: true}}
	refusedBefore := missing
	refusedBefore.Ending = &workload.Ending{Failure: failure.New(failure.WorkloadFailed, "it crashed")}
	deleting := by("")
	deleting.Deleting = true
	orphan := by("")
	orphan.Original = &operation.Original{}
	garbled := by(ourClaim)
	garbled.OriginalProblem = "unexpected end of JSON input"
	deadAndGarbled := by(dead)
	deadAndGarbled.OriginalProblem = "unexpected end of JSON input"
	cases := map[string]struct {
		reason string
		seen   operation.Observed
		want   verdict
	}{
		"dead, garbled": {"what the dead release borrowed cannot be restored, so the operation is refused",
			deadAndGarbled, verdict{workload.ActFail,
				"cannot be read (unexpected end of JSON input): correct its update settings by hand", failure.Refused}},
		"free": {"an unclaimed workload is claimed", by(""),
			verdict{action: workload.ActWrite, says: "mark its pod template"}},
		"another's": {"a workload claimed by another release is refused, with its name", by(other),
			verdict{workload.ActFail, "is being released by task/t9/2-order", failure.Claimed}},
		"dead": {"a claim that is known to be dead is replaced", by(dead),
			verdict{action: workload.ActWrite, says: "take over from task/t0/1-order"}},
		"lost": {"a claim that was replaced by another one is lost", lost,
			verdict{workload.ActFail, "task/t9/2-order holds it now", failure.ClaimLost}},
		"taken away": {"a claim that was removed is lost", missing,
			verdict{workload.ActFail, "no release holds it now", failure.ClaimLost}},
		"answered": {"a claim that the last write released is not lost", answered,
			verdict{action: workload.ActDone, says: "restarted: 3 of 3"}},
		"failed": {"the same holds for an operation that failed", refusedBefore,
			verdict{workload.ActFail, "it crashed", failure.WorkloadFailed}},
		"deleting": {"a workload that is being deleted is not changed", deleting,
			verdict{workload.ActFail, "is being deleted", failure.WorkloadFailed}},
		"orphan": {"what a release without a claim borrowed is restored first", orphan,
			verdict{action: workload.ActWrite, says: "first restore"}},
		"garbled": {"settings that cannot be read cannot be restored: the claim is released, and the failure says " +
			"what to check", garbled, verdict{workload.ActWrite, "check its size and update settings by hand",
			failure.WorkloadFailed}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := operation.Decide(req, tc.seen)
			if name == "garbled" {
				require.True(t, d.Write.Release)
				require.Contains(t, d.Failure.Message, tc.want.says)
				return
			}
			check(t, tc.reason, tc.want, d)
		})
	}
}

func TestTakeOver_FirstRestoresWhatDeadReleaseBorrowed(t *testing.T) {
	t.Parallel()
	req := request(operation.KindDeployment, plan.Stop, plan.Parallel)
	req.TakeOver = "task/t0/1-order@run-0"
	seen := running(2)
	seen.Claim = req.TakeOver
	seen.Settings[workload.PathDeploymentSurge] = json.RawMessage(`0`)
	seen.Original = &operation.Original{Operation: plan.Start, Begun: true, Size: n(5), Requested: n(2),
		Borrowed: []workload.Borrowed{
			{Path: workload.PathDeploymentSurge, Own: json.RawMessage(`"25%"`), Temporary: json.RawMessage(`0`)},
		}}
	w := operation.Decide(req, seen).Write
	require.Equal(t, req.TakeOver, w.ExpectedClaim, "the claim must still be the dead one")
	require.Equal(t, ourClaim, w.Claim)
	require.False(t, w.Release)
	require.Nil(t, w.Replicas, "the new operation has not begun yet")
	require.Equal(t, []workload.Setting{{Path: workload.PathDeploymentSurge, Value: json.RawMessage(`"25%"`),
		Expected: json.RawMessage(`0`)}}, w.Settings)
	require.Equal(t, "5", w.Annotations[workload.AnnotationReplicas], "the target size of the dead START")
	require.Equal(t, "2", w.Annotations[workload.AnnotationLeftAt])
	saved, err := operation.ParseOriginal(w.Annotations[workload.AnnotationOriginal], borrowable)
	require.NoError(t, err)
	require.False(t, saved.Begun)
	require.NotContains(t, w.Remove, workload.AnnotationOriginal)

	seen.Claim, seen.Original, seen.Remembered, seen.LeftAt = ourClaim, saved, "5", "2"
	d := operation.Decide(req, seen)
	require.Equal(t, "scale it from 2 to 0, remembering 5", d.Reason, "then the operation begins")
}

func TestStart_DecidesSizeAndSteps(t *testing.T) {
	t.Parallel()
	stopped := running(0)
	remembering := stopped
	remembering.Remembered = "4"
	odd := stopped
	odd.Remembered = "many"
	coming := running(3)
	coming.Available = 1
	unseen := running(3)
	unseen.ObservedGeneration = 3
	stale := running(2)
	stale.Remembered = "5"
	half := stale
	half.LeftAt = "2"
	grown := func(asked, replicas, available int32) operation.Observed {
		s := ours(running(replicas), operation.Original{Operation: plan.Start, Size: n(3), Requested: n(asked),
			Changed: true})
		s.Available = available
		return s
	}
	lagging := grown(3, 3, 3)
	lagging.ObservedGeneration = 3
	cases := map[string]struct {
		reason   string
		seen     operation.Observed
		method   plan.Method
		size     *int32
		want     verdict
		replicas *int32
	}{
		"catalogue": {"without a remembered size the catalogue's size applies", stopped, plan.Parallel, n(3),
			verdict{action: workload.ActWrite, says: "scale it from 0 to 3"}, n(3)},
		"remembered": {"the remembered size takes precedence over the catalogue's", remembering, plan.Parallel,
			n(3), verdict{action: workload.ActWrite, says: "scale it from 0 to 4"}, n(4)},
		"one by one": {"SEQUENTIAL begins with one pod", remembering, plan.Sequential, nil,
			verdict{action: workload.ActWrite, says: "scale it from 0 to 1, on the way to 4"}, n(1)},
		"no size": {"without a size it is refused, with a remedy", stopped, plan.Parallel, nil,
			verdict{workload.ActFail, "give it `replicas` in the catalogue", failure.Refused}, nil},
		"odd size": {"a size that is not a number is ignored", odd, plan.Parallel, nil,
			verdict{workload.ActFail, "no size is known", failure.Refused}, nil},
		"runs": {"a workload that runs and is ready needs no change", running(3), plan.Parallel, n(9),
			verdict{action: workload.ActDone, says: "nothing to do: 3 of 3 pods are ready"}, nil},
		"comes": {"it waits for pods that are starting", coming, plan.Parallel, nil,
			verdict{action: workload.ActWrite, says: "wait until they are ready"}, nil},
		"not seen": {"a status from before the last change is ignored", unseen, plan.Parallel, nil,
			verdict{action: workload.ActWrite, says: "wait until they are ready"}, nil},
		"stale memory": {"a remembered size is stale once another client has scaled the workload up", stale,
			plan.Parallel, nil, verdict{action: workload.ActDone, says: "nothing to do: 2 of 2"}, nil},
		"half way": {"an unfinished START or STOP left it at this size: it is scaled to the full size", half,
			plan.Parallel, nil, verdict{action: workload.ActWrite, says: "scale it from 2 to 5"}, n(5)},
		"next": {"the next pod is added when all are ready", grown(1, 1, 1), plan.Sequential, nil,
			verdict{action: workload.ActWrite, says: "1 of 1 pods are ready: scale it from 1 to 2, on the way to 3"},
			n(2)},
		"not yet": {"no pod is added before all are ready", grown(2, 2, 1), plan.Sequential, nil,
			verdict{action: workload.ActWait, says: "1 of 2 pods are ready, on the way to 3"}, nil},
		"lagging": {"a status from before the change does not count", lagging, plan.Parallel, nil,
			verdict{action: workload.ActWait, says: "3 of 3 pods are ready"}, nil},
		"done": {"all ready: the claim is released", grown(3, 3, 3), plan.Parallel, nil,
			verdict{action: workload.ActWrite, says: "started: 3 of 3 pods are ready"}, nil},
		"scaled by another": {"another client's size is kept, and the message mentions it", grown(1, 5, 5),
			plan.Sequential, nil, verdict{action: workload.ActWrite,
				says: "started: 5 of 5 pods are ready; another client scaled it from 1 to 5 meanwhile"}, nil},
		"scaled to zero": {"the operation fails if another client scales the workload to zero", grown(1, 0, 0),
			plan.Sequential, nil, verdict{workload.ActWrite, "scaled it to zero while it was being started",
				failure.WorkloadFailed}, nil},
		"more than available": {"pods beyond the size do not count as ready", grown(3, 3, 4), plan.Parallel, nil,
			verdict{action: workload.ActWrite, says: "3 of 3 pods"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(operation.KindDeployment, plan.Start, tc.method)
			req.Workload.Replicas = tc.size
			d := operation.Decide(req, tc.seen)
			check(t, tc.reason, tc.want, d)
			if d.Write != nil {
				require.Equal(t, tc.replicas, d.Write.Replicas, tc.reason)
			}
		})
	}
}

func TestStop_DecidesSizeAndSteps(t *testing.T) {
	t.Parallel()
	at := func(asked, replicas, total int32) operation.Observed {
		s := ours(running(replicas), operation.Original{Operation: plan.Stop, Size: n(3), Requested: n(asked),
			Changed: true})
		s.Total, s.Terminating = total, n(0)
		return s
	}
	leaving := at(0, 0, 0)
	leaving.Terminating = n(2)
	evicted := workload.Pod{Name: "e", Finished: true, Reason: "Evicted"}
	ending := workload.Pod{Name: "p", Ready: true, Deleting: true, Reason: "Terminating",
		Message: "it should be deleted by 10:00:00, after a grace period of 30 s"}
	old := at(1, 1, 1)
	old.Terminating = nil
	cases := map[string]struct {
		reason string
		seen   operation.Observed
		method plan.Method
		want   verdict
	}{
		"all": {"PARALLEL goes to zero at once and remembers the size", running(3), plan.Parallel,
			verdict{action: workload.ActWrite, says: "scale it from 3 to 0, remembering 3"}},
		"one": {"SEQUENTIAL removes one", running(3), plan.Sequential,
			verdict{action: workload.ActWrite, says: "scale it from 3 to 2, remembering 3"}},
		"at zero": {"a size of zero does not mean that no pod is left", running(0), plan.Parallel,
			verdict{action: workload.ActReadPods}},
		"stopped": {"no pod is left: nothing to do", with(running(0)), plan.Parallel,
			verdict{action: workload.ActDone, says: "nothing to do: it is stopped"}},
		"evicted": {"a finished, evicted pod does not count", with(running(0), evicted), plan.Parallel,
			verdict{action: workload.ActDone, says: "nothing to do: it is stopped"}},
		"still ending": {"it waits for terminating pods", with(running(0), ending), plan.Parallel,
			verdict{action: workload.ActWrite, says: "wait until its pods are deleted"}},
		"waits": {"pods are left", at(0, 0, 3), plan.Parallel,
			verdict{action: workload.ActWait, says: "3 pods are left, 0 should be"}},
		"on their way out": {"terminating pods count as well", leaving, plan.Parallel,
			verdict{action: workload.ActWait, says: "2 pods are left, 0 should be"}},
		"looks": {"the status may be outdated: the pods are read", at(0, 0, 0), plan.Parallel,
			verdict{action: workload.ActReadPods}},
		"one left": {"the pod list has one more", with(at(0, 0, 0), ending), plan.Parallel,
			verdict{action: workload.ActWait, says: "1 pod is left, 0 should be: pod p: Terminating: it should be " +
				"deleted by"}},
		"done": {"no pod is left: the claim is released", with(at(0, 0, 0)), plan.Parallel,
			verdict{action: workload.ActWrite, says: "stopped: no pod is left"}},
		"next": {"the next pod is removed when the previous one is deleted", at(2, 2, 2), plan.Sequential,
			verdict{action: workload.ActWrite, says: "scale it from 2 to 1"}},
		"not yet": {"no pod is removed before that", at(2, 2, 3), plan.Sequential,
			verdict{action: workload.ActWait, says: "3 pods are left, 2 should be"}},
		"old cluster": {"if the status does not count terminating pods, the pods are read", old, plan.Sequential,
			verdict{action: workload.ActReadPods}},
		"scaled": {"the operation fails if another client scales the workload up", at(0, 5, 5), plan.Parallel,
			verdict{workload.ActWrite, "another client scaled it from 0 to 5 while it was being stopped",
				failure.WorkloadFailed}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, tc.reason, tc.want, operation.Decide(request(operation.KindDeployment, plan.Stop, tc.method),
				tc.seen))
		})
	}
}

func TestStop_OrderedStatefulSet_DeletesBlockedPods(t *testing.T) {
	t.Parallel()
	pod := func(ordinal int32, ready bool) workload.Pod {
		return workload.Pod{Name: "s", Ordinal: ordinal, Ready: ready, Available: ready}
	}
	seen := ours(running(0), operation.Original{Operation: plan.Stop, Size: n(3), Requested: n(0)})
	seen.OrderedReady, seen.Total, seen.Ready = true, 3, 3
	all := with(seen, pod(0, true), pod(1, true), pod(2, true))
	d := operation.Decide(request(operation.KindStatefulSet, plan.Stop, plan.Parallel), all)
	check(t, "PARALLEL deletes all at once despite the order",
		verdict{action: workload.ActDelete, says: "delete 3 pods beyond the size of 0"}, d)
	require.Len(t, d.Delete, 3)

	seen.Replicas, seen.Original.Requested = 2, n(2)
	healthy := operation.Decide(request(operation.KindStatefulSet, plan.Stop, plan.Sequential), seen)
	check(t, "the controller of a healthy StatefulSet removes the pods itself", verdict{action: workload.ActWait},
		healthy)
	seen.Ready = 2
	blocked := with(seen, pod(0, false), pod(1, true), pod(2, true))
	d = operation.Decide(request(operation.KindStatefulSet, plan.Stop, plan.Sequential), blocked)
	check(t, "the controller would wait forever for the unready pod", verdict{action: workload.ActDelete}, d)
	require.Len(t, d.Delete, 1)
	require.Equal(t, int32(2), d.Delete[0].Ordinal, "only pods beyond the size")
	lagging := blocked
	lagging.ObservedGeneration = 3
	check(t, "a controller that has not seen the size would create the pod again", verdict{action: workload.ActWait},
		operation.Decide(request(operation.KindStatefulSet, plan.Stop, plan.Sequential), lagging))
}
