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
	"slipway.io/slipway/release/workload"
)

// TestMove_ReportsPodsOfNeitherVersion_AfterRetry: the progress mentions pods of another client's edit that remain
// after the rollout's template was restored.
func TestMove_ReportsPodsOfNeitherVersion_AfterRetry(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	set := func(template string, n int32) *toySet {
		return &toySet{template: template, asked: n, total: n, ready: n, gated: true}
	}
	w.observed = w.generation
	w.sets = []*toySet{set(stableTemplate, 1), set("t-other", 1), set(newTemplate, 8)}
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromString("80%"), Template: newTemplate}

	w.template = "t-other"
	d := pods.Move(tech, req, w.observe())
	require.Equal(t, workload.ActFail, d.Action, "an edited template stops the rollout")
	require.Contains(t, d.Reason, "another client changed its pod template during the rollout")
	numbers, _ := d.Failure.Data.(rollout.MoveResult)
	require.Equal(t, int32(10), numbers.Replicas, "the failure carries the pod counts")
	require.Equal(t, int32(8), numbers.UpdatedReady)

	req.OverwriteDrift = true
	d = pods.Move(tech, req, w.observe())
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
	require.Equal(t, newTemplate, d.Write.Template.Revision)
	require.True(t, w.write(d.Write, w.generation))
	w.observed = w.generation

	d = pods.Move(tech, req, w.observe())
	require.Equal(t, workload.ActDone, d.Action, d.Reason)
	require.Equal(t, "step 1: 8 of 8 new pods are ready, 1 of neither version, left by another client's edit, stay "+
		"until more pods move", d.Reason)
}

// TestRetry_WaitsForStablePods_WithExtraWorkload: a retry waits for the stable pods that another client's edit has
// removed: its Service is pinned to them next.
func TestRetry_WaitsForStablePods_WithExtraWorkload(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	seen := func(template string, stable, ready int32) pods.Observed {
		return pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: 4, Total: 4, Ready: 4,
			Settings: map[string]json.RawMessage{"/spec/strategy": json.RawMessage(
				`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}`)}}, Template: template,
			Expected: newTemplate, Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s",
				StableTemplate: stableTemplate, CanaryWorkload: "web-canary"}, Revisions: []pods.Revision{
				{Name: "s", Hash: "s", Template: stableTemplate, HasCounts: true, Desired: stable, Total: stable,
					Ready: ready},
				{Name: "o", Hash: "o", Template: "t-other", HasCounts: true, Desired: 4 - stable, Total: 4 - stable,
					Ready: 4 - stable},
			}, Extra: &pods.Extra{Name: "web-canary", CanaryOf: strategy.CanaryOf("web"), Template: newTemplate,
				Hash:     "c",
				Snapshot: workload.Snapshot{Replicas: 2, Total: 2, Ready: 2, Updated: 2}}}
	}
	req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: strategy.StyleCanary,
		Replicas: intstr.FromString("50%"), Template: newTemplate}
	for _, tc := range []struct {
		reason  string
		putBack bool
		seen    pods.Observed
		want    workload.Action
		says    string
	}{
		{"an edit stops it", false, seen("t-other", 0, 0), workload.ActFail,
			"another client changed its pod template"},
		{"retry restores the template", true, seen("t-other", 0, 0), workload.ActWrite,
			"restore the workload's stable template"},
		{"its controller is restoring the pods", true, seen(stableTemplate, 2, 2), workload.ActWait,
			"bringing the stable pods back"},
		{"as many as its own limits require are ready", true, seen(stableTemplate, 4, 3), workload.ActDone,
			"2 of 2 new pods are ready"},
		{"no other step waits for stable pods", false, seen(stableTemplate, 2, 2), workload.ActDone,
			"2 of 2 new pods are ready"},
	} {
		req.OverwriteDrift = tc.putBack
		d := pods.Move(tech, req, tc.seen)
		require.Equal(t, tc.want, d.Action, "%s: %s", tc.reason, d.Reason)
		require.Contains(t, d.Reason, tc.says, tc.reason)
	}
}

// TestFreeze_PausesWorkload_DuringStep: the settings of a moving step must not stay on a workload that nothing watches.
func TestFreeze_PausesWorkload_DuringStep(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":3}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	w.template = newTemplate
	w.settings["/spec/strategy"] = json.RawMessage(
		`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":8}}`)
	d := pods.Finish(tech, rollout.FinishRequest{Subject: subject(), Action: rollout.FinishFreeze,
		To: rollout.SideStable, Template: newTemplate}, w.observe())
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
	require.True(t, d.Write.Release, "the claim is released in the same write")
	require.True(t, w.write(d.Write, w.generation))
	require.JSONEq(t, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":3}}`,
		string(w.settings["/spec/strategy"]))
	require.Equal(t, "true", string(w.settings["/spec/paused"]))
}

// TestMove_FailsGone_WhenWorkloadRecreated: a workload that was deleted and recreated is not the one that was claimed,
// and its routes can be restored.
func TestMove_FailsGone_WhenWorkloadRecreated(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate"}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	seen := w.observe()
	seen.UID = "second"
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromString("20%")}
	req.UID = "first"
	d := pods.Move(tech, req, seen)
	require.Equal(t, workload.ActFail, d.Action)
	require.Equal(t, failure.Gone, d.Failure.Kind)
	require.Contains(t, d.Reason, "another of the same name")
}

// TestFinishAutoscalers_RestoresLimits_WhenWorkloadDeleted: the limits are restored, except those that the release of
// another workload of the same name has borrowed meanwhile.
func TestFinishAutoscalers_RestoresLimits_WhenWorkloadDeleted(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleBlueGreen)
	req := rollout.FinishRequest{Subject: subject(), Action: rollout.FinishAutoscalers, To: rollout.SideStable}
	req.UID = "first"
	pinned := []pods.Autoscaler{{Name: "free"}, {Name: "web", Pinned: true}}
	lists := &rollout.Saved{Autoscalers: []string{"web"}}
	for _, tc := range []struct {
		reason string
		seen   pods.Observed
		want   workload.Action
	}{
		{"no workload of the name exists", pods.Observed{Autoscalers: pinned}, pods.ActAutoscaler},
		{"another exists, without a release", pods.Observed{UID: "second", Autoscalers: pinned}, pods.ActAutoscaler},
		{"it is being deleted", pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim, Deleting: true},
			UID: "first", Saved: lists, Autoscalers: pinned}, pods.ActAutoscaler},
		{"it was recreated with all its annotations",
			pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim}, UID: "second", Saved: lists,
				Autoscalers: pinned}, pods.ActAutoscaler},
		{"another release of the next one has borrowed it",
			pods.Observed{Snapshot: workload.Snapshot{Claim: "rollout/default/shop/web@run-2"}, UID: "second",
				Saved: lists, Autoscalers: pinned}, workload.ActDone},
		{"another release of the next one was frozen", pods.Observed{UID: "second", Saved: lists, Autoscalers: pinned},
			workload.ActDone},
		{"another release that pins none does not restore it",
			pods.Observed{Snapshot: workload.Snapshot{Claim: "rollout/default/shop/web@run-2"}, UID: "second",
				Saved: &rollout.Saved{}, Autoscalers: pinned}, pods.ActAutoscaler},
		{"none is pinned any more", pods.Observed{Autoscalers: pinned[:1]}, workload.ActDone},
	} {
		d := pods.Finish(tech, req, tc.seen)
		require.Equal(t, tc.want, d.Action, "%s: %s", tc.reason, d.Reason)
		require.NotEmpty(t, d.Reason, tc.reason)
		if tc.want == pods.ActAutoscaler {
			require.Equal(t, pods.AutoscalerChange{Name: "web"}, *d.Autoscaler, "%s: it is restored", tc.reason)
		}
	}
}

// Another client pauses a blue-green halfway: its controller starts no pod until it is resumed, with the gate on.
func TestBlueGreen_IsResumed_WhenPausedByAnotherClient(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleBlueGreen)
	for reason, theirs := range map[string]map[string]string{
		"paused":             {"/spec/paused": "true"},
		"paused and ungated": {"/spec/paused": "true", "/spec/minReadySeconds": "0"},
		"paused with a small surge": {"/spec/paused": "true",
			"/spec/strategy": `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`},
	} {
		w := newToy(4, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`)
		begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
			Strategy: strategy.Strategy{Style: strategy.StyleBlueGreen}}, w.observe())
		require.True(t, w.write(begun.Write, w.generation))
		w.settleAll()
		req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StyleBlueGreen,
			Replicas: intstr.FromInt32(2), Settle: true}
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
		require.Equal(t, "2147483646", string(w.settings["/spec/minReadySeconds"]), "%s: no old pod is removed", reason)
		runToEnd(t, w, func() pods.NextAction { return pods.Move(tech, req, w.observe()) })
		require.Len(t, w.set(stableTemplate).pods, 4, reason)
		require.Len(t, w.set(newTemplate).pods, 2, reason)
	}
}

// If another client keeps changing the fields that move pods, the move fails before the step's deadline.
func TestMove_FailsWithDrift_WhenFieldsKeepChanging(t *testing.T) {
	t.Parallel()
	w := newToy(10, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	w.observed, w.template = w.generation, newTemplate
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromString("50%"), Template: newTemplate}
	seen := w.observe()
	seen.EditConflict = pods.EditConflict{Times: rollout.MaxRestores, Fields: "spec.minReadySeconds", By: "helm"}
	require.Equal(t, workload.ActWrite, pods.Move(tech, req, seen).Action,
		"as often as edits are undone during a pause")
	seen.EditConflict.Times++
	d := pods.Move(tech, req, seen)
	require.True(t, failure.Is(d.Failure, failure.Drift), d.Reason)
	require.Contains(t, d.Reason, "another client has changed spec.minReadySeconds for the 6th time while its pods "+
		"move (field manager helm)")
	req.Halt = true
	require.Nil(t, pods.Move(tech, req, seen).Failure, "a halt is possible anyway")
}
