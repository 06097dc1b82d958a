package pods_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Beside an extra workload, somebody else may have the workload itself go to the new version. It is paused before it goes home: turned round in
// its middle, its own controller took stable and new pods at once, and two of four were ready.
func TestAWorkloadIsPausedBeforeItIsTurnedRound(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	req := rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResume, To: rollout.SideStable, Template: newTemplate}
	seen := func(stable, new, asked int32) pods.Observed {
		return pods.Observed{Snapshot: workloadops.Snapshot{Claim: ourClaim, Replicas: 4, Total: stable + new, Settings: map[string]json.RawMessage{}},
			Template: newTemplate, Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s", StableTemplate: stableTemplate}, Revisions: []pods.Revision{
				{Name: "s", Hash: "s", Template: stableTemplate, Counted: true, Asked: asked, Total: stable, Ready: stable},
				{Name: "n", Hash: "n", Template: newTemplate, Counted: true, Asked: new, Total: new, Ready: new},
			}}
	}
	whole := pods.Finish(tech, req, seen(0, 4, 0))
	require.Equal(t, stableRevision, whole.Write.Template.Revision, "with one version there is nothing to be turned round")

	moving := seen(2, 3, 1)
	d := pods.Finish(tech, req, moving)
	require.Equal(t, workloadops.ActWrite, d.Action, d.Reason)
	require.Nil(t, d.Write.Template)
	require.Equal(t, []workloadops.Setting{{Path: "/spec/paused", Value: json.RawMessage("true")}}, d.Write.Settings)

	moving.Settings["/spec/paused"] = json.RawMessage("true")
	var rest rollout.Rest
	require.NoError(t, json.Unmarshal([]byte(d.Write.Annotations[rollout.AnnotationRest]), &rest))
	moving.Rest = &rest
	moving.PodsSeen = true
	require.Equal(t, workloadops.ActWait, pods.Finish(tech, req, moving).Action, "a pod is on its way out")

	moving.Revisions[0].Total = 1
	d = pods.Finish(tech, req, moving)
	require.Equal(t, stableRevision, d.Write.Template.Revision, "it goes home")
	require.Equal(t, []workloadops.Setting{{Path: "/spec/paused", Value: json.RawMessage("null")}}, d.Write.Settings, "and is paused no more")

	moving.Rest = nil
	require.Empty(t, pods.Finish(tech, req, moving).Write.Settings, "somebody else's pause is theirs")
}

// A retry that puts the stable template back turns the workload round as well: it is paused first, and resumed with the template, also where somebody else has
// set the template meanwhile. A halt in between keeps the mark of that pause.
func TestAWorkloadIsPausedBeforeItsTemplateIsPutBack(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	req := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StyleCanary, Replicas: intstr.FromInt32(0), Template: newTemplate, PutBack: true, Rest: true}
	seen := pods.Observed{Snapshot: workloadops.Snapshot{Claim: ourClaim, Replicas: 4, Total: 5, PodsSeen: true, Settings: map[string]json.RawMessage{}},
		Template: "t-other", Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s", StableTemplate: stableTemplate}, Revisions: []pods.Revision{
			{Name: "s", Hash: "s", Template: stableTemplate, Counted: true, Asked: 0, Total: 1, Ready: 1},
			{Name: "o", Hash: "o", Template: "t-other", Counted: true, Asked: 4, Total: 4, Ready: 4},
		}}
	d := pods.Move(tech, req, seen)
	require.Nil(t, d.Write.Template, "a pod is still on its way out")
	require.Equal(t, []workloadops.Setting{{Path: "/spec/paused", Value: json.RawMessage("true")}}, d.Write.Settings)

	seen.Settings["/spec/paused"] = json.RawMessage("true")
	var rest rollout.Rest
	require.NoError(t, json.Unmarshal([]byte(d.Write.Annotations[rollout.AnnotationRest]), &rest))
	seen.Rest = &rest
	require.Equal(t, workloadops.ActWait, pods.Move(tech, req, seen).Action)
	halt := req
	halt.Halt = true
	require.Contains(t, pods.Move(tech, halt, seen).Write.Annotations[rollout.AnnotationRest], "paused")

	seen.Revisions[0].Total = 0
	d = pods.Move(tech, req, seen)
	require.Equal(t, stableRevision, d.Write.Template.Revision)
	require.Equal(t, []workloadops.Setting{{Path: "/spec/paused", Value: json.RawMessage("null")}}, d.Write.Settings)
	require.NotContains(t, d.Write.Annotations[rollout.AnnotationRest], "paused")

	seen.Template = stableTemplate
	require.Equal(t, []workloadops.Setting{{Path: "/spec/paused", Value: json.RawMessage("null")}}, pods.Move(tech, req, seen).Write.Settings)
}

// An extra Deployment that somebody scales down while the rollout is held gets its size back, but no more than the workload's own, whatever is noted on it.
func TestAHaltScalesTheExtraDeploymentBack(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	req := rollout.MoveRequest{Subject: subject(), Step: 2, Style: strategy.StyleCanary, Replicas: intstr.FromInt32(2), Template: newTemplate, Halt: true}
	for _, tc := range []struct {
		reason      string
		asked, left int32
		want        int32
	}{
		{"as it was left", 0, 1, 1},
		{"a number that somebody has written", 0, 99, 4},
		{"it has as many", 1, 1, 0},
		{"it has grown", 3, 1, 0},
	} {
		seen := pods.Observed{Snapshot: workloadops.Snapshot{Claim: ourClaim, Replicas: 4, Total: 4, PodsSeen: true}, Template: stableTemplate,
			Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "s", StableTemplate: stableTemplate, CanaryWorkload: "web-canary"},
			Extra: &pods.Extra{Name: "web-canary", Of: strategy.CanaryOf("web"), Template: newTemplate, Left: tc.left, Snapshot: workloadops.Snapshot{Replicas: tc.asked}}}
		d := pods.Move(tech, req, seen)
		if tc.want == 0 {
			require.Nil(t, d.Extra, tc.reason)
			continue
		}
		require.Equal(t, tc.want, *d.Extra.Replicas, tc.reason)
	}
}

const stableRevision = "s"
