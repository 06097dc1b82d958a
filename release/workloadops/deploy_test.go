package workloadops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

// What a deploy does that RESTART does not: it goes by what the pod template has, not by who asked.
func TestDeploy(t *testing.T) {
	t.Parallel()
	has := func(seen workloadops.Observed) workloadops.Observed { seen.Marker = marker; return seen }
	saved := workloadops.Original{Operation: plan.HTTPUploadDeploy, Changed: true, FromRevision: "6", FromReplicas: n(3)}
	none := saved
	none.FromReplicas = n(0)
	half := has(running(3))
	half.Available = 1
	cases := map[string]struct {
		reason   string
		seen     workloadops.Observed
		want     verdict
		template bool
		changed  bool
	}{
		"Begin":      {"another template gets the package", running(3), verdict{action: workloadops.ActWrite, says: "put package sha256:0123456789ab (2.0 KiB) into its pod template"}, true, true},
		"SameDigest": {"the same digest rolls nothing", has(running(3)), verdict{action: workloadops.ActDone, says: "nothing to do: it has package sha256:0123456789ab (2.0 KiB) already"}, false, false},
		"Unready":    {"pods of that package that are not ready yet are waited for, without another change of the template", half, verdict{action: workloadops.ActWrite, says: "put package"}, false, false},
		"NoPods":     {"a stopped workload gets it too: START brings it up", running(0), verdict{action: workloadops.ActWrite, says: "put package"}, true, true},
		"NoPodsSame": {"unless it has it", has(running(0)), verdict{action: workloadops.ActDone, says: "nothing to do"}, false, false},
		"NoPodsDone": {"and is done then", ours(has(running(0)), none), verdict{action: workloadops.ActWrite, says: "it has no pods, and those that START brings up have it"}, false, true},
		"ScaledDown": {"somebody scaled it to zero meanwhile", ours(has(running(0)), saved), verdict{action: workloadops.ActWrite, says: "deployed: somebody else scaled it to zero"}, false, true},
		"Done":       {"all pods have it and are ready", ours(has(running(3)), saved), verdict{action: workloadops.ActLook, says: "see whether an old pod is left"}, false, true},
		"SomebodyElse": {"a template that somebody changes meanwhile is not fought over", ours(running(3), saved),
			verdict{workloadops.ActWrite, "somebody else changed its pod template while it was being deployed", failure.WorkloadFailed}, false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := workloadops.Decide(request(workloadops.KindDeployment, plan.HTTPUploadDeploy, plan.Parallel), tc.seen)
			check(t, tc.reason, tc.want, d)
			require.Equal(t, tc.template, d.Write != nil && d.Write.Template != nil, tc.reason)
			if d.Result != nil {
				require.Equal(t, tc.changed, d.Result.Changed, tc.reason)
			}
		})
	}
}

func TestDeployIsRefusedWhereNothingWouldRoll(t *testing.T) {
	t.Parallel()
	paused, held := running(3), running(3)
	paused.Paused, held.Partition = true, 2
	req := request(workloadops.KindStatefulSet, plan.HTTPUploadDeploy, plan.Parallel)
	require.Contains(t, workloadops.Refuses(req, paused), "is paused, so nothing would be deployed")
	require.Contains(t, workloadops.Refuses(req, held), "held at partition 2")
}

// An image goes the same way as a package: it is its marker that counts.
func TestDeployOfAnImage(t *testing.T) {
	t.Parallel()
	req := request(workloadops.KindDeployment, plan.CompileDeploy, plan.Sequential)
	req.Package, req.Image = nil, &source.Image{Reference: "registry.test/order@sha256:0123456789abcdef"}
	require.Nil(t, workloadops.Validate(req))
	d := workloadops.Decide(req, running(3))
	require.Equal(t, workloadops.ActWrite, d.Action)
	require.Equal(t, "put image registry.test/order@sha256:0123456789ab into its pod template, so that every pod is replaced", d.Reason)
	require.NotNil(t, d.Write.Template)
	seen := running(3)
	seen.Marker = marker
	d = workloadops.Decide(req, seen)
	require.Equal(t, workloadops.ActDone, d.Action)
	require.Contains(t, d.Reason, "nothing to do: it has image registry.test/order@sha256:0123456789ab already")
	require.False(t, d.Result.Changed)
}
