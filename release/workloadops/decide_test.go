package workloadops_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
)

var now = time.Unix(1_700_000_000, 0)

func n(v int32) *int32 { return &v }

// running is a healthy workload of that many pods that nobody holds.
func running(pods int32) workloadops.Observed {
	return workloadops.Observed{Snapshot: workloadops.Snapshot{Generation: 4, ObservedGeneration: 4, Replicas: pods, Total: pods, Ready: pods, Available: pods, Updated: pods, Now: now, Settings: map[string]json.RawMessage{
		workloadops.PathDeploymentUnavailable: json.RawMessage(`"25%"`), workloadops.PathDeploymentSurge: json.RawMessage(`"25%"`),
	}}, UpdateType: workloadops.UpdateRolling, Revision: "7"}
}

// ours is the workload held by this release, after its first change.
func ours(seen workloadops.Observed, saved workloadops.Original) workloadops.Observed {
	saved.Begun = true
	seen.Claim, seen.Original = ourClaim, &saved
	return seen
}

// with shows the pods.
func with(seen workloadops.Observed, pods ...workloadops.Pod) workloadops.Observed {
	seen.Pods, seen.PodsSeen = pods, true
	return seen
}

func sick(name, reason string, since time.Duration) workloadops.Pod {
	return workloadops.Pod{Name: name, UID: name, Marker: marker, Ordinal: -1, Reason: reason, Message: "its message", Since: now.Add(-since)}
}

// verdict is what a case expects of a decision.
type verdict struct {
	action workloadops.Action
	says   string
	kind   failure.Kind
}

func check(t *testing.T, reason string, want verdict, d workloadops.NextAction) {
	t.Helper()
	require.Equal(t, want.action, d.Action, "%s: %s", reason, d.Reason)
	require.Contains(t, d.Reason, want.says, reason)
	if want.kind != "" {
		require.NotNil(t, d.Failure, reason)
		require.Equal(t, want.kind, d.Failure.Kind, reason)
		require.Equal(t, d.Reason, d.Failure.Message, "the reason is what people read")
	}
	switch d.Action {
	case workloadops.ActWrite:
		require.NotNil(t, d.Write, reason)
		require.True(t, d.Write.Fresh || d.Write.Held == ourClaim, "every write has a precondition: %s", reason)
	case workloadops.ActDone:
		require.NotNil(t, d.Result, reason)
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	const other, dead = "task/t9/2-order@run-9", "task/t0/1-order@run-0"
	req := request(workloadops.KindDeployment, plan.Restart, plan.Sequential)
	req.TakeOver = dead
	by := func(claim string) workloadops.Observed {
		s := running(3)
		s.Claim = claim
		return s
	}
	lost := by(other)
	lost.Held = true
	gone := by("")
	gone.Held = true
	answered := gone
	answered.Ending = &workloadops.Ending{Result: &workloadops.Result{Message: "restarted: 3 of 3 pods are ready", Changed: true}}
	refusedBefore := gone
	refusedBefore.Ending = &workloadops.Ending{Failure: failure.New(failure.WorkloadFailed, "it crashed")}
	deleting := by("")
	deleting.Deleting = true
	orphan := by("")
	orphan.Original = &workloadops.Original{}
	garbled := by(ourClaim)
	garbled.OriginalProblem = "unexpected end of JSON input"
	deadAndGarbled := by(dead)
	deadAndGarbled.OriginalProblem = "unexpected end of JSON input"
	cases := map[string]struct {
		reason string
		seen   workloadops.Observed
		want   verdict
	}{
		"dead, garbled": {"what the dead one borrowed cannot be given back: nothing is built on it", deadAndGarbled, verdict{workloadops.ActFail, "cannot be read (unexpected end of JSON input): put its update settings right by hand", failure.Refused}},
		"free":          {"a workload that nobody holds is taken", by(""), verdict{action: workloadops.ActWrite, says: "mark its pod template"}},
		"another's":     {"another's claim is refused with a pointer to it", by(other), verdict{workloadops.ActFail, "is being released by task/t9/2-order", failure.Claimed}},
		"dead":          {"the claim that is known to be dead is replaced", by(dead), verdict{action: workloadops.ActWrite, says: "take over from task/t0/1-order"}},
		"lost":          {"a claim that was ours and is another's now is lost", lost, verdict{workloadops.ActFail, "task/t9/2-order holds it now", failure.ClaimLost}},
		"taken away":    {"a claim that was ours and is gone is lost", gone, verdict{workloadops.ActFail, "nobody holds it now", failure.ClaimLost}},
		"answered":      {"a claim that was given back with the last write is not lost", answered, verdict{action: workloadops.ActDone, says: "restarted: 3 of 3"}},
		"failed":        {"the same holds for an operation that failed", refusedBefore, verdict{workloadops.ActFail, "it crashed", failure.WorkloadFailed}},
		"deleting":      {"nothing is done to a workload that is going away", deleting, verdict{workloadops.ActFail, "is being deleted", failure.WorkloadFailed}},
		"orphan":        {"what somebody borrowed whose claim is gone is given back first", orphan, verdict{action: workloadops.ActWrite, says: "give back first"}},
		"garbled":       {"what cannot be read cannot be given back: the claim is, and a person is told", garbled, verdict{workloadops.ActWrite, "look at its size and update settings by hand", failure.WorkloadFailed}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := workloadops.Decide(req, tc.seen)
			if name == "garbled" {
				require.True(t, d.Write.Release)
				require.Contains(t, d.Failure.Message, tc.want.says)
				return
			}
			check(t, tc.reason, tc.want, d)
		})
	}
}

func TestTakeOverGivesBackFirst(t *testing.T) {
	t.Parallel()
	req := request(workloadops.KindDeployment, plan.Stop, plan.Parallel)
	req.TakeOver = "task/t0/1-order@run-0"
	seen := running(2)
	seen.Claim = req.TakeOver
	seen.Settings[workloadops.PathDeploymentSurge] = json.RawMessage(`0`)
	seen.Original = &workloadops.Original{Operation: plan.Start, Begun: true, Size: n(5), Asked: n(2), Borrowed: []workloadops.Borrowed{
		{Path: workloadops.PathDeploymentSurge, Own: json.RawMessage(`"25%"`), Lent: json.RawMessage(`0`)},
	}}
	w := workloadops.Decide(req, seen).Write
	require.Equal(t, req.TakeOver, w.Held, "the claim must still be the dead one")
	require.Equal(t, ourClaim, w.Claim)
	require.False(t, w.Release)
	require.Nil(t, w.Replicas, "nothing of the new operation is begun yet")
	require.Equal(t, []workloadops.Setting{{Path: workloadops.PathDeploymentSurge, Value: json.RawMessage(`"25%"`), Was: json.RawMessage(`0`)}}, w.Settings)
	require.Equal(t, "5", w.Annotations[workloadops.AnnotationReplicas], "the size that the dead START was on the way to")
	require.Equal(t, "2", w.Annotations[workloadops.AnnotationLeftAt])
	saved, err := workloadops.ParseOriginal(w.Annotations[workloadops.AnnotationOriginal], borrowable)
	require.NoError(t, err)
	require.False(t, saved.Begun)
	require.NotContains(t, w.Remove, workloadops.AnnotationOriginal)

	seen.Claim, seen.Original, seen.Remembered, seen.LeftAt = ourClaim, saved, "5", "2"
	d := workloadops.Decide(req, seen)
	require.Equal(t, "scale it from 2 to 0, remembering 5", d.Reason, "then it goes on")
}

func TestStart(t *testing.T) {
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
	grown := func(asked, replicas, available int32) workloadops.Observed {
		s := ours(running(replicas), workloadops.Original{Operation: plan.Start, Size: n(3), Asked: n(asked), Changed: true})
		s.Available = available
		return s
	}
	lagging := grown(3, 3, 3)
	lagging.ObservedGeneration = 3
	cases := map[string]struct {
		reason   string
		seen     workloadops.Observed
		method   plan.Method
		size     *int32
		want     verdict
		replicas *int32
	}{
		"catalogue":           {"the catalogue's size counts when none is remembered", stopped, plan.Parallel, n(3), verdict{action: workloadops.ActWrite, says: "scale it from 0 to 3"}, n(3)},
		"remembered":          {"the remembered size counts before the catalogue's", remembering, plan.Parallel, n(3), verdict{action: workloadops.ActWrite, says: "scale it from 0 to 4"}, n(4)},
		"one by one":          {"SEQUENTIAL begins with one pod", remembering, plan.Sequential, nil, verdict{action: workloadops.ActWrite, says: "scale it from 0 to 1, on the way to 4"}, n(1)},
		"no size":             {"without a size it is refused, with what to do", stopped, plan.Parallel, nil, verdict{workloadops.ActFail, "give it `replicas` in the catalogue", failure.Refused}, nil},
		"odd size":            {"a size that is no number is none", odd, plan.Parallel, nil, verdict{workloadops.ActFail, "no size is known", failure.Refused}, nil},
		"runs":                {"what runs and is ready is as asked", running(3), plan.Parallel, n(9), verdict{action: workloadops.ActDone, says: "nothing to do: 3 of 3 pods are ready"}, nil},
		"comes":               {"pods that are coming are waited for", coming, plan.Parallel, nil, verdict{action: workloadops.ActWrite, says: "wait until they are ready"}, nil},
		"not seen":            {"a status of before the last change says nothing", unseen, plan.Parallel, nil, verdict{action: workloadops.ActWrite, says: "wait until they are ready"}, nil},
		"stale memory":        {"a remembered size is stale once somebody else has scaled the workload up", stale, plan.Parallel, nil, verdict{action: workloadops.ActDone, says: "nothing to do: 2 of 2"}, nil},
		"half way":            {"an unfinished START or STOP left it at this size: it goes back to the full one", half, plan.Parallel, nil, verdict{action: workloadops.ActWrite, says: "scale it from 2 to 5"}, n(5)},
		"next":                {"the next pod comes when all are ready", grown(1, 1, 1), plan.Sequential, nil, verdict{action: workloadops.ActWrite, says: "1 of 1 pods are ready: scale it from 1 to 2, on the way to 3"}, n(2)},
		"not yet":             {"and not before", grown(2, 2, 1), plan.Sequential, nil, verdict{action: workloadops.ActWait, says: "1 of 2 pods are ready, on the way to 3"}, nil},
		"lagging":             {"nor by a status of before the change", lagging, plan.Parallel, nil, verdict{action: workloadops.ActWait, says: "3 of 3 pods are ready"}, nil},
		"done":                {"all ready: the claim is given back", grown(3, 3, 3), plan.Parallel, nil, verdict{action: workloadops.ActWrite, says: "started: 3 of 3 pods are ready"}, nil},
		"scaled by another":   {"another's size is accepted, and said", grown(1, 5, 5), plan.Sequential, nil, verdict{action: workloadops.ActWrite, says: "started: 5 of 5 pods are ready; somebody else scaled it from 1 to 5 meanwhile"}, nil},
		"scaled to zero":      {"a workload that somebody stops meanwhile does not get started", grown(1, 0, 0), plan.Sequential, nil, verdict{workloadops.ActWrite, "scaled it to zero while it was being started", failure.WorkloadFailed}, nil},
		"more than available": {"pods beyond the size do not count as ready", grown(3, 3, 4), plan.Parallel, nil, verdict{action: workloadops.ActWrite, says: "3 of 3 pods"}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(workloadops.KindDeployment, plan.Start, tc.method)
			req.Workload.Replicas = tc.size
			d := workloadops.Decide(req, tc.seen)
			check(t, tc.reason, tc.want, d)
			if d.Write != nil {
				require.Equal(t, tc.replicas, d.Write.Replicas, tc.reason)
			}
		})
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	at := func(asked, replicas, total int32) workloadops.Observed {
		s := ours(running(replicas), workloadops.Original{Operation: plan.Stop, Size: n(3), Asked: n(asked), Changed: true})
		s.Total, s.Terminating = total, n(0)
		return s
	}
	leaving := at(0, 0, 0)
	leaving.Terminating = n(2)
	evicted := workloadops.Pod{Name: "e", Finished: true, Reason: "Evicted"}
	ending := workloadops.Pod{Name: "p", Ready: true, Deleting: true, Reason: "Terminating", Message: "it should be gone by 10:00:00, after 30 s of grace"}
	old := at(1, 1, 1)
	old.Terminating = nil
	cases := map[string]struct {
		reason string
		seen   workloadops.Observed
		method plan.Method
		want   verdict
	}{
		"all":              {"PARALLEL goes to zero at once and remembers the size", running(3), plan.Parallel, verdict{action: workloadops.ActWrite, says: "scale it from 3 to 0, remembering 3"}},
		"one":              {"SEQUENTIAL takes one", running(3), plan.Sequential, verdict{action: workloadops.ActWrite, says: "scale it from 3 to 2, remembering 3"}},
		"at zero":          {"zero asked does not mean that no pod is left", running(0), plan.Parallel, verdict{action: workloadops.ActLook}},
		"stopped":          {"no pod left is as asked", with(running(0)), plan.Parallel, verdict{action: workloadops.ActDone, says: "nothing to do: it is stopped"}},
		"evicted":          {"the record of an evicted pod is no pod", with(running(0), evicted), plan.Parallel, verdict{action: workloadops.ActDone, says: "nothing to do: it is stopped"}},
		"still ending":     {"pods on their way out are waited for", with(running(0), ending), plan.Parallel, verdict{action: workloadops.ActWrite, says: "wait until its pods are gone"}},
		"waits":            {"pods are left", at(0, 0, 3), plan.Parallel, verdict{action: workloadops.ActWait, says: "3 pods are left, 0 should be"}},
		"on their way out": {"pods on their way out count as well", leaving, plan.Parallel, verdict{action: workloadops.ActWait, says: "2 pods are left, 0 should be"}},
		"looks":            {"the status may be older than the last pod: the pods have the last word", at(0, 0, 0), plan.Parallel, verdict{action: workloadops.ActLook}},
		"one left":         {"the pods know of one more", with(at(0, 0, 0), ending), plan.Parallel, verdict{action: workloadops.ActWait, says: "1 pod is left, 0 should be: pod p: Terminating: it should be gone by"}},
		"done":             {"no pod left: the claim is given back", with(at(0, 0, 0)), plan.Parallel, verdict{action: workloadops.ActWrite, says: "stopped: no pod is left"}},
		"next":             {"the next one goes when the one before is gone", at(2, 2, 2), plan.Sequential, verdict{action: workloadops.ActWrite, says: "scale it from 2 to 1"}},
		"not yet":          {"and not before", at(2, 2, 3), plan.Sequential, verdict{action: workloadops.ActWait, says: "3 pods are left, 2 should be"}},
		"old cluster":      {"a status that does not count those on their way out needs a look at the pods", old, plan.Sequential, verdict{action: workloadops.ActLook}},
		"scaled":           {"somebody who scales it up is not fought", at(0, 5, 5), plan.Parallel, verdict{workloadops.ActWrite, "somebody else scaled it from 0 to 5 while it was being stopped", failure.WorkloadFailed}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, tc.reason, tc.want, workloadops.Decide(request(workloadops.KindDeployment, plan.Stop, tc.method), tc.seen))
		})
	}
}

func TestStopOfAStatefulSetThatKeepsItsOrder(t *testing.T) {
	t.Parallel()
	pod := func(ordinal int32, ready bool) workloadops.Pod {
		return workloadops.Pod{Name: "s", Ordinal: ordinal, Ready: ready, Available: ready}
	}
	seen := ours(running(0), workloadops.Original{Operation: plan.Stop, Size: n(3), Asked: n(0)})
	seen.OrderedReady, seen.Total, seen.Ready = true, 3, 3
	all := with(seen, pod(0, true), pod(1, true), pod(2, true))
	d := workloadops.Decide(request(workloadops.KindStatefulSet, plan.Stop, plan.Parallel), all)
	check(t, "PARALLEL takes all at once whatever the order", verdict{action: workloadops.ActDelete, says: "delete 3 pods beyond the size of 0"}, d)
	require.Len(t, d.Delete, 3)

	seen.Replicas, seen.Original.Asked = 2, n(2)
	healthy := workloadops.Decide(request(workloadops.KindStatefulSet, plan.Stop, plan.Sequential), seen)
	check(t, "a healthy one goes down by itself", verdict{action: workloadops.ActWait}, healthy)
	seen.Ready = 2
	blocked := with(seen, pod(0, false), pod(1, true), pod(2, true))
	d = workloadops.Decide(request(workloadops.KindStatefulSet, plan.Stop, plan.Sequential), blocked)
	check(t, "one whose pod is not ready would wait for it for ever", verdict{action: workloadops.ActDelete}, d)
	require.Len(t, d.Delete, 1)
	require.Equal(t, int32(2), d.Delete[0].Ordinal, "only what the size leaves no place for")
	lagging := blocked
	lagging.ObservedGeneration = 3
	check(t, "before the controller has seen the size it would make the pod again", verdict{action: workloadops.ActWait}, workloadops.Decide(request(workloadops.KindStatefulSet, plan.Stop, plan.Sequential), lagging))
}
