package pods_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

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

const stableRevision = "s"
