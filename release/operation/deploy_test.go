package operation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// Unlike RESTART, a deploy depends on the version in the pod template, not on the task.
func TestDeploy_DecidesByVersionInTemplate(t *testing.T) {
	t.Parallel()
	has := func(seen operation.Observed) operation.Observed { seen.Marker = marker; return seen }
	saved := operation.Original{Operation: plan.HTTPUploadDeploy, Changed: true,
		Change: revision.Change{FromRevision: "6", FromReplicas: n(3)}}
	none := saved
	none.FromReplicas = n(0)
	half := has(running(3))
	half.Available = 1
	cases := map[string]struct {
		reason   string
		seen     operation.Observed
		want     verdict
		template bool
		changed  bool
	}{
		"Begin": {"another template gets the package", running(3),
			verdict{action: workload.ActWrite, says: "put package sha256:0123456789ab (2.0 KiB) into its pod " +
				"template"}, true, true},
		"SameDigest": {"the same digest replaces no pod", has(running(3)),
			verdict{action: workload.ActDone, says: "nothing to do: it has package sha256:0123456789ab (2.0 KiB) " +
				"already"}, false, false},
		"Unready": {"it waits for pods of that package to become ready, without changing the template", half,
			verdict{action: workload.ActWrite, says: "put package"}, false, false},
		"NoPods": {"the template of a stopped workload is changed, too, for the next START", running(0),
			verdict{action: workload.ActWrite, says: "put package"}, true, true},
		"NoPodsSame": {"unless the template has it already", has(running(0)),
			verdict{action: workload.ActDone, says: "nothing to do"}, false, false},
		"NoPodsDone": {"without pods it is complete", ours(has(running(0)), none),
			verdict{action: workload.ActWrite, says: "it has no pods, and those that START brings up have it"},
			false, true},
		"ScaledDown": {"another client scaled it to zero meanwhile", ours(has(running(0)), saved),
			verdict{action: workload.ActWrite, says: "deployed: another client scaled it to zero"}, false, true},
		"Done": {"all pods have it and are ready", ours(has(running(3)), saved),
			verdict{action: workload.ActReadPods, says: "see whether an old pod is left"}, false, true},
		"OtherClient": {"a template that another client changes meanwhile is not overwritten", ours(running(3), saved),
			verdict{workload.ActWrite, "another client changed its pod template while it was being deployed",
				failure.WorkloadFailed}, false, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := operation.Decide(request(operation.KindDeployment, plan.HTTPUploadDeploy, plan.Parallel), tc.seen)
			check(t, tc.reason, tc.want, d)
			require.Equal(t, tc.template, d.Write != nil && d.Write.Template != nil, tc.reason)
			if d.Result != nil {
				require.Equal(t, tc.changed, d.Result.Changed, tc.reason)
			}
		})
	}
}

func TestDeploy_IsRefused_WhenPausedOrPartitioned(t *testing.T) {
	t.Parallel()
	paused, held := running(3), running(3)
	paused.Paused, held.Partition = true, 2
	req := request(operation.KindStatefulSet, plan.HTTPUploadDeploy, plan.Parallel)
	require.Contains(t, operation.RefusalReason(req, paused), "is paused, so nothing would be deployed")
	require.Contains(t, operation.RefusalReason(req, held), "held at partition 2")
}

// An image is deployed like a package: its marker decides.
func TestDeploy_OfImage_DecidesByMarker(t *testing.T) {
	t.Parallel()
	req := request(operation.KindDeployment, plan.CompileDeploy, plan.Sequential)
	req.Package, req.Image = nil, &source.Image{Reference: "registry.test/order@sha256:0123456789abcdef"}
	require.Nil(t, operation.Validate(req))
	d := operation.Decide(req, running(3))
	require.Equal(t, workload.ActWrite, d.Action)
	require.Equal(t, "put image registry.test/order@sha256:0123456789ab into its pod template, so that every pod is "+
		"replaced", d.Reason)
	require.NotNil(t, d.Write.Template)
	seen := running(3)
	seen.Marker = marker
	d = operation.Decide(req, seen)
	require.Equal(t, workload.ActDone, d.Action)
	require.Contains(t, d.Reason, "nothing to do: it has image registry.test/order@sha256:0123456789ab already")
	require.False(t, d.Result.Changed)
}
