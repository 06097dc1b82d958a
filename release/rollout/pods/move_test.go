package pods_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// TestStrangersAreNamed says so when pods of somebody else's edit are left after ours was put back.
func TestStrangersAreNamed(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(), Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	set := func(template string, n int32) *toySet {
		return &toySet{template: template, asked: n, total: n, ready: n, gated: true}
	}
	w.observed = w.generation
	w.sets = []*toySet{set(stableTemplate, 1), set("t-other", 1), set(newTemplate, 8)}
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition, Replicas: intstr.FromString("80%"), Template: newTemplate}

	w.template = "t-other"
	d := pods.Move(tech, req, w.observe())
	require.Equal(t, workloadops.ActFail, d.Action, "an edited template holds the rollout")
	require.Contains(t, d.Reason, "somebody else changed its pod template in the middle of the rollout")
	numbers, _ := d.Failure.Data.(rollout.MoveResult)
	require.Equal(t, int32(10), numbers.Replicas, "the pods' numbers travel with it")
	require.Equal(t, int32(8), numbers.UpdatedReady)

	req.PutBack = true
	d = pods.Move(tech, req, w.observe())
	require.Equal(t, workloadops.ActWrite, d.Action, d.Reason)
	require.Equal(t, newTemplate, d.Write.Template.Revision)
	require.True(t, w.write(d.Write, w.generation))
	w.observed = w.generation

	d = pods.Move(tech, req, w.observe())
	require.Equal(t, workloadops.ActDone, d.Action, d.Reason)
	require.Equal(t, "step 1: 8 of 8 new pods are ready, 1 of neither version, which somebody else's edit has left, stay until more pods move", d.Reason)
}

// TestPutBackBesideAnExtraWorkload waits for the stable pods that somebody's edit has taken: its Service is pinned to them next.
func TestPutBackBesideAnExtraWorkload(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	seen := func(template string, stable, ready int32) pods.Observed {
		return pods.Observed{Snapshot: workloadops.Snapshot{Claim: ourClaim, Replicas: 4, Total: 4, Ready: 4, Settings: map[string]json.RawMessage{"/spec/strategy": json.RawMessage(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}`)}}, Template: template, Expected: newTemplate, Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s", StableTemplate: stableTemplate, CanaryWorkload: "web-canary"}, Revisions: []pods.Revision{
			{Name: "s", Hash: "s", Template: stableTemplate, Counted: true, Asked: stable, Total: stable, Ready: ready},
			{Name: "o", Hash: "o", Template: "t-other", Counted: true, Asked: 4 - stable, Total: 4 - stable, Ready: 4 - stable},
		}, Extra: &pods.Extra{Name: "web-canary", Of: strategy.CanaryOf("web"), Template: newTemplate, Hash: "c", Snapshot: workloadops.Snapshot{Replicas: 2, Total: 2, Ready: 2, Updated: 2}}}
	}
	req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: strategy.StyleCanary, Replicas: intstr.FromString("50%"), Template: newTemplate}
	for _, tc := range []struct {
		reason  string
		putBack bool
		seen    pods.Observed
		want    workloadops.Action
		says    string
	}{
		{"an edit holds it", false, seen("t-other", 0, 0), workloadops.ActFail, "somebody else changed its pod template"},
		{"retry puts the template back", true, seen("t-other", 0, 0), workloadops.ActWrite, "stable template back"},
		{"its controller is at it", true, seen(stableTemplate, 2, 2), workloadops.ActWait, "bringing the stable pods back"},
		{"as many as its own limits ask are ready", true, seen(stableTemplate, 4, 3), workloadops.ActDone, "2 of 2 new pods are ready"},
		{"any other step waits for no stable pod", false, seen(stableTemplate, 2, 2), workloadops.ActDone, "2 of 2 new pods are ready"},
	} {
		req.PutBack = tc.putBack
		d := pods.Move(tech, req, tc.seen)
		require.Equal(t, tc.want, d.Action, "%s: %s", tc.reason, d.Reason)
		require.Contains(t, d.Reason, tc.says, tc.reason)
	}
}

// TestAFreezeInMidStepIsPaused: what a step needs while it moves pods is no setting for a workload that nobody looks after.
func TestAFreezeInMidStepIsPaused(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":3}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(), Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	w.template = newTemplate
	w.settings["/spec/strategy"] = json.RawMessage(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":8}}`)
	d := pods.Finish(tech, rollout.FinishRequest{Subject: subject(), Action: rollout.FinishFreeze, To: rollout.SideStable, Template: newTemplate}, w.observe())
	require.Equal(t, workloadops.ActWrite, d.Action, d.Reason)
	require.True(t, d.Write.Release, "the claim is given back in the same write")
	require.True(t, w.write(d.Write, w.generation))
	require.JSONEq(t, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":3}}`, string(w.settings["/spec/strategy"]))
	require.Equal(t, "true", string(w.settings["/spec/paused"]))
}

// TestAnotherObjectOfTheNameIsLeftAlone: a workload that was deleted and made again is not what was claimed, and what routed to it can be given back.
func TestAnotherObjectOfTheNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate"}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	seen := w.observe()
	seen.UID = "second"
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition, Replicas: intstr.FromString("20%")}
	req.UID = "first"
	d := pods.Move(tech, req, seen)
	require.Equal(t, workloadops.ActFail, d.Action)
	require.Equal(t, failure.Gone, d.Failure.Kind)
	require.Contains(t, d.Reason, "another of the same name")
}

// TestTheAutoscalersOfADeletedWorkload are given back, but for those that the release of another workload of its name has borrowed meanwhile.
func TestTheAutoscalersOfADeletedWorkload(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleBlueGreen)
	req := rollout.FinishRequest{Subject: subject(), Action: rollout.FinishAutoscalers, To: rollout.SideStable}
	req.UID = "first"
	pinned := []pods.Autoscaler{{Name: "free"}, {Name: "web", Pinned: true}}
	lists := &rollout.Saved{Autoscalers: []string{"web"}}
	for _, tc := range []struct {
		reason string
		seen   pods.Observed
		want   workloadops.Action
	}{
		{"nothing of the name is there", pods.Observed{Autoscalers: pinned}, pods.ActAutoscaler},
		{"another is there, which nobody releases", pods.Observed{UID: "second", Autoscalers: pinned}, pods.ActAutoscaler},
		{"it is on its way out", pods.Observed{Snapshot: workloadops.Snapshot{Claim: ourClaim, Deleting: true}, UID: "first", Saved: lists, Autoscalers: pinned}, pods.ActAutoscaler},
		{"it was made again with everything that stood on it", pods.Observed{Snapshot: workloadops.Snapshot{Claim: ourClaim}, UID: "second", Saved: lists, Autoscalers: pinned}, pods.ActAutoscaler},
		{"another release of the next one has borrowed it", pods.Observed{Snapshot: workloadops.Snapshot{Claim: "rollout/default/shop/web@run-2"}, UID: "second", Saved: lists, Autoscalers: pinned}, workloadops.ActDone},
		{"another release of the next one was frozen", pods.Observed{UID: "second", Saved: lists, Autoscalers: pinned}, workloadops.ActDone},
		{"another release that pins none does not give it back", pods.Observed{Snapshot: workloadops.Snapshot{Claim: "rollout/default/shop/web@run-2"}, UID: "second", Saved: &rollout.Saved{}, Autoscalers: pinned}, pods.ActAutoscaler},
		{"none is pinned any more", pods.Observed{Autoscalers: pinned[:1]}, workloadops.ActDone},
	} {
		d := pods.Finish(tech, req, tc.seen)
		require.Equal(t, tc.want, d.Action, "%s: %s", tc.reason, d.Reason)
		require.NotEmpty(t, d.Reason, tc.reason)
		if tc.want == pods.ActAutoscaler {
			require.Equal(t, pods.AutoscalerChange{Name: "web"}, *d.Autoscaler, "%s: it is restored", tc.reason)
		}
	}
}

// Somebody else pauses a blue-green half way: its controller brings no pod until it is resumed, behind the gate.
func TestAPausedBlueGreenIsResumed(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleBlueGreen)
	for reason, theirs := range map[string]map[string]string{
		"paused":                 {"/spec/paused": "true"},
		"paused and let loose":   {"/spec/paused": "true", "/spec/minReadySeconds": "0"},
		"paused and taken small": {"/spec/paused": "true", "/spec/strategy": `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`},
	} {
		w := newToy(4, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`)
		begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(), Strategy: strategy.Strategy{Style: strategy.StyleBlueGreen}}, w.observe())
		require.True(t, w.write(begun.Write, w.generation))
		w.settleAll()
		req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StyleBlueGreen, Replicas: intstr.FromInt32(2), Rest: true}
		first := pods.Move(tech, req, w.observe())
		require.NotNil(t, first.Write, first.Reason)
		require.True(t, w.write(first.Write, w.generation))
		for path, value := range theirs {
			w.settings[path] = json.RawMessage(value)
		}
		w.generation++
		w.settleAll()
		again := pods.Move(tech, req, w.observe())
		require.NotNil(t, again.Write, "%s: %s", reason, again.Reason)
		require.True(t, w.write(again.Write, w.generation))
		require.NotEqual(t, "true", string(w.settings["/spec/paused"]), reason)
		require.Equal(t, "2147483646", string(w.settings["/spec/minReadySeconds"]), "%s: no old pod goes", reason)
		settle(t, w, func() pods.NextAction { return pods.Move(tech, req, w.observe()) })
		require.Len(t, w.set(stableTemplate).pods, 4, reason)
		require.Len(t, w.set(newTemplate).pods, 2, reason)
	}
}

// Who goes on changing the fields by which pods move is not argued with until the step's time is up.
func TestADuelWhilePodsMove(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(), Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	w.observed, w.template = w.generation, newTemplate
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition, Replicas: intstr.FromString("50%"), Template: newTemplate}
	seen := w.observe()
	seen.Duel = pods.Duel{Times: rollout.MostDisturbed, Fields: "spec.minReadySeconds", By: "helm"}
	require.Equal(t, workloadops.ActWrite, pods.Move(tech, req, seen).Action, "as often as it is put back at rest")
	seen.Duel.Times++
	d := pods.Move(tech, req, seen)
	require.True(t, failure.Is(d.Failure, failure.Drift), d.Reason)
	require.Contains(t, d.Reason, "somebody else has changed spec.minReadySeconds for the 6th time while its pods move (field manager helm)")
	req.Halt = true
	require.Nil(t, pods.Move(tech, req, seen).Failure, "it comes to rest all the same")
}
