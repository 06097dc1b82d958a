package pods

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// A ReplicaSet without pods gets the gate and the pause record in one write of its controller, so the first step need
// not probe whether the controller has seen the gate. A ReplicaSet with pods was counted without the gate, so the
// controller has to be probed.
func TestFirstMove_RecordsGateSeen_WhenNewReplicaSetHasNoPods(t *testing.T) {
	t.Parallel()
	stable := Revision{Name: "r1", Hash: "r1", Number: 1, Template: "first", HasCounts: true, Desired: 5, Total: 5,
		Ready: 5, Available: 5}
	noted := rollout.SettledState{GateSeen: 7}
	for _, c := range []struct {
		reason string
		others []Revision
		rest   *rollout.SettledState
		want   *rollout.SettledState
	}{
		{"its ReplicaSet is still to be made", nil, nil, &noted},
		{"it exists from an earlier revision, without pods",
			[]Revision{{Name: "r2", Hash: "r2", Template: "second", HasCounts: true}}, nil, &noted},
		{"a revision without pods could turn out to be it",
			[]Revision{{Name: "r0", Hash: "r0", Template: "zeroth", HasCounts: true}}, nil, &noted},
		{"a revision with a pod could turn out to be it",
			[]Revision{{Name: "r0", Hash: "r0", Template: "zeroth", HasCounts: true, Total: 1}}, nil, nil},
		{"a pod of it is desired", []Revision{{Name: "r2", Hash: "r2", Template: "second", HasCounts: true,
			Desired: 1}}, nil, nil},
		{"it has a pod that is not ready", []Revision{{Name: "r2", Hash: "r2", Template: "second", HasCounts: true,
			Total: 1}}, nil, nil},
		{"its gate was removed, so the controller has to be probed again",
			[]Revision{{Name: "r2", Hash: "r2", Template: "second", HasCounts: true, Desired: 1, Total: 1}},
			&rollout.SettledState{Surge: 1, GateSeen: 4}, &rollout.SettledState{Surge: 1}},
		{"other recorded values stay", nil, &rollout.SettledState{Surge: 1},
			&rollout.SettledState{Surge: 1, GateSeen: 7}},
	} {
		seen := Observed{Template: "first", Expected: "second", Revisions: append([]Revision{stable}, c.others...),
			Rest: c.rest,
			Saved: &rollout.Saved{Style: strategy.StylePartition, Stable: "r1", StableTemplate: "first",
				Settings: map[string]json.RawMessage{}}}
		seen.Replicas, seen.Total, seen.Ready, seen.Updated, seen.Available = 5, 5, 5, 5, 5
		seen.Claim, seen.Generation, seen.ObservedGeneration = "rollout/default/shop/web@run", 7, 7
		req := rollout.MoveRequest{Subject: rollout.Subject{Claim: seen.Claim, DeadlineSeconds: 60}, Step: 1,
			Style: strategy.StylePartition, Replicas: intstr.FromInt32(2)}
		d := Move(deploymentPartition{}, req, seen)
		require.Equal(t, workload.ActWrite, d.Action, "%s: %s", c.reason, d.Reason)
		require.NotNil(t, d.Write.Template, c.reason)
		note := d.Write.Annotations[rollout.AnnotationSettled]
		if c.want == nil {
			require.Empty(t, note, c.reason)
		} else {
			require.Equal(t, c.want.String(), note, c.reason)
		}
	}
}

// What the probe found out about the new version does not hold for the stable one, whose pods are available until its
// controller has seen the gate.
func TestBackMove_DropsGateSeen_OfNewVersion(t *testing.T) {
	t.Parallel()
	seen := Observed{Template: "second", Rest: &rollout.SettledState{GateSeen: 4}, Revisions: []Revision{
		{Name: "r1", Hash: "r1", Number: 1, Template: "first", HasCounts: true, Desired: 3, Total: 3, Ready: 3,
			Available: 3},
		{Name: "r2", Hash: "r2", Number: 2, Template: "second", HasCounts: true, Desired: 2, Total: 2, Ready: 2}},
		Saved: &rollout.Saved{Style: strategy.StylePartition, Stable: "r1", StableTemplate: "first", Canary: "r2",
			Settings: map[string]json.RawMessage{}}}
	seen.Replicas, seen.Total, seen.Ready, seen.Updated, seen.Available = 5, 5, 5, 2, 3
	seen.Claim, seen.Generation, seen.ObservedGeneration = "rollout/default/shop/web@run", 7, 7
	seen.Settings = map[string]json.RawMessage{pathMinReadySeconds: gateMinReady, pathStrategy: rolling(2, 0)}
	d := Move(deploymentPartition{}, rollout.MoveRequest{Subject: rollout.Subject{Claim: seen.Claim,
		DeadlineSeconds: 60}, Step: 1,
		Style: strategy.StylePartition, Replicas: intstr.FromInt32(1), Template: "second", Back: true, From: 2}, seen)
	require.Equal(t, workload.ActWrite, d.Action, d.Reason)
	require.Equal(t, "place", d.Write.Step)
	require.Equal(t, rollout.SettledState{}.String(), d.Write.Annotations[rollout.AnnotationSettled])
}
