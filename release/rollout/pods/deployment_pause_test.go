package pods_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// While an extra workload runs, another client may move the workload itself to the new version. It is paused before the
// stable template is set: without the pause, its own controller removed stable and new pods at once, and only two of
// four were ready.
func TestFinish_PausesWorkloadBeforeStableTemplate_WhenOwnControllerMovesPods(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	req := rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResume, To: rollout.SideStable,
		Template: newTemplate}
	seen := func(stable, new, asked int32) pods.Observed {
		return pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: 4, Total: stable + new,
			Settings: map[string]json.RawMessage{}},
			Template: newTemplate, Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s",
				StableTemplate: stableTemplate}, Revisions: []pods.Revision{
				{Name: "s", Hash: "s", Template: stableTemplate, HasCounts: true, Desired: asked, Total: stable,
					Ready: stable},
				{Name: "n", Hash: "n", Template: newTemplate, HasCounts: true, Desired: new, Total: new, Ready: new},
			}}
	}
	settled := pods.Finish(tech, req, seen(0, 4, 0))
	require.Equal(t, stableRevision, settled.Write.Template.Revision, "with one version no pause is needed")

	moving := seen(2, 3, 1)
	d := pods.Finish(tech, req, moving)
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
	require.Nil(t, d.Write.Template)
	require.Equal(t, []workload.Setting{{Path: "/spec/paused", Value: json.RawMessage("true")}}, d.Write.Settings)

	moving.Settings["/spec/paused"] = json.RawMessage("true")
	var rest rollout.SettledState
	require.NoError(t, json.Unmarshal([]byte(d.Write.Annotations[rollout.AnnotationSettled]), &rest))
	moving.Rest = &rest
	moving.PodsSeen = true
	require.Equal(t, workload.ActWait, pods.Finish(tech, req, moving).Action, "a pod is being removed")

	moving.Revisions[0].Total = 1
	d = pods.Finish(tech, req, moving)
	require.Equal(t, stableRevision, d.Write.Template.Revision, "the stable template is set")
	require.Equal(t, []workload.Setting{{Path: "/spec/paused", Value: json.RawMessage("null")}}, d.Write.Settings,
		"and the pause ends")

	moving.Rest = nil
	require.Empty(t, pods.Finish(tech, req, moving).Write.Settings, "another client's pause is not ended")
}

// A retry that restores the stable template changes the direction as well: the workload is paused first, and resumed
// with the template, also if another client has set the template meanwhile. A halt in between keeps the pause record.
func TestMove_PausesWorkloadBeforeStableTemplate_WhenRetryRestoresIt(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StyleCanary, Replicas: intstr.FromInt32(0),
		Template: newTemplate, OverwriteDrift: true, Settle: true}
	seen := pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: 4, Total: 5, PodsSeen: true,
		Settings: map[string]json.RawMessage{}},
		Template: "t-other", Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s",
			StableTemplate: stableTemplate}, Revisions: []pods.Revision{
			{Name: "s", Hash: "s", Template: stableTemplate, HasCounts: true, Desired: 0, Total: 1, Ready: 1},
			{Name: "o", Hash: "o", Template: "t-other", HasCounts: true, Desired: 4, Total: 4, Ready: 4},
		}}
	d := pods.Move(tech, req, seen)
	require.Nil(t, d.Write.Template, "a pod is still being removed")
	require.Equal(t, []workload.Setting{{Path: "/spec/paused", Value: json.RawMessage("true")}}, d.Write.Settings)

	seen.Settings["/spec/paused"] = json.RawMessage("true")
	var rest rollout.SettledState
	require.NoError(t, json.Unmarshal([]byte(d.Write.Annotations[rollout.AnnotationSettled]), &rest))
	seen.Rest = &rest
	require.Equal(t, workload.ActWait, pods.Move(tech, req, seen).Action)
	halt := req
	halt.Halt = true
	require.Contains(t, pods.Move(tech, halt, seen).Write.Annotations[rollout.AnnotationSettled], "paused")

	seen.Revisions[0].Total = 0
	d = pods.Move(tech, req, seen)
	require.Equal(t, stableRevision, d.Write.Template.Revision)
	require.Equal(t, []workload.Setting{{Path: "/spec/paused", Value: json.RawMessage("null")}}, d.Write.Settings)
	require.NotContains(t, d.Write.Annotations[rollout.AnnotationSettled], "paused")

	seen.Template = stableTemplate
	require.Equal(t, []workload.Setting{{Path: "/spec/paused", Value: json.RawMessage("null")}},
		pods.Move(tech, req, seen).Write.Settings)
}

// An extra Deployment that another client scales down while the rollout is halted gets its size back, but never more
// than the workload's size, even if a larger size is recorded on it.
func TestHalt_RestoresExtraDeploymentSize_WhenScaledDown(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: strategy.StyleCanary, Replicas: intstr.FromInt32(2),
		Template: newTemplate, Halt: true}
	for _, tc := range []struct {
		reason      string
		asked, left int32
		want        int32
	}{
		{"the recorded size is restored", 0, 1, 1},
		{"the recorded size was forged", 0, 99, 4},
		{"it has the recorded size", 1, 1, 0},
		{"it is larger", 3, 1, 0},
	} {
		seen := pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: 4, Total: 4, PodsSeen: true},
			Template: stableTemplate,
			Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s", StableTemplate: stableTemplate,
				CanaryWorkload: "web-canary"},
			Extra: &pods.Extra{Name: "web-canary", CanaryOf: strategy.CanaryOf("web"), Template: newTemplate,
				RecordedSize: tc.left, Snapshot: workload.Snapshot{Replicas: tc.asked}}}
		d := pods.Move(tech, req, seen)
		if tc.want == 0 {
			require.Nil(t, d.Extra, tc.reason)
			continue
		}
		require.Equal(t, tc.want, *d.Extra.Replicas, tc.reason)
	}
}

const stableRevision = "s"
