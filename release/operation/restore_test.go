package operation_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// restoring returns a RESTORE of a template, of a size that a task changed, or of both.
func restoring(kind string, method plan.Method, template bool, replicas, left *int32) operation.Request {
	req := request(kind, plan.Restore, method)
	req.Restore = &plan.Restoration{Task: "t0", Replicas: replicas, SizeAfter: left}
	if template {
		req.Restore.Template = &revision.Revision{Template: "before"}
	}
	return req
}

func TestDecide_RestoresTemplateAndSize(t *testing.T) {
	t.Parallel()
	has := func(seen operation.Observed) operation.Observed { seen.Marker = marker; return seen }
	unready := running(3)
	unready.Available = 1
	missing := running(3)
	missing.TemplateMissing = true
	sizing := operation.Original{Operation: plan.Restore, Changed: true, Size: n(3), Target: n(3), Requested: n(2),
		Change: revision.Change{FromReplicas: n(0)}}
	stopping := operation.Original{Operation: plan.Restore, Changed: true, Size: n(3), Requested: n(0),
		Change: revision.Change{FromReplicas: n(3)}}
	templating := operation.Original{Operation: plan.Restore, Changed: true,
		Change: revision.Change{FromReplicas: n(3)}}
	none := running(0)
	none.PodsSeen = true
	const deployment = operation.KindDeployment
	for name, c := range map[string]struct {
		reason   string
		req      operation.Request
		seen     operation.Observed
		want     verdict
		replicas *int32
		template bool
	}{
		"Template": {"pods are replaced", restoring(deployment, plan.Parallel, true, nil, nil), running(3),
			verdict{action: workload.ActWrite, says: "put its earlier pod template back"}, nil, true},
		"Same": {"a template that is already set replaces no pod",
			restoring(deployment, plan.Parallel, true, nil, nil), has(running(3)),
			verdict{action: workload.ActDone, says: "nothing to do: it has its earlier pod template already"}, nil,
			false},
		"NotKept": {"a template that is not kept is refused before anything is written",
			restoring(deployment, plan.Parallel, true, nil, nil), missing,
			verdict{workload.ActFail, "no longer keeps the pod template that it had before task t0",
				failure.Refused}, nil, false},
		"FromNone": {"template and size are set in one write",
			restoring(deployment, plan.Parallel, true, n(3), n(0)), running(0),
			verdict{action: workload.ActWrite, says: "and scale it from 0 to 3"}, n(3), true},
		"PodByPod": {"SEQUENTIAL starts one pod at a time",
			restoring(deployment, plan.Sequential, false, n(3), n(0)), running(0),
			verdict{action: workload.ActWrite, says: "scale it from 0 to 1, on the way to 3"}, n(1), false},
		"Unready": {"no further pod may become unavailable",
			restoring(deployment, plan.Sequential, false, n(5), n(3)), unready,
			verdict{action: workload.ActWrite, says: "wait until its pods are ready, on the way to 5"}, n(3), false},
		"ToNone": {"pods are removed before the template changes",
			restoring(deployment, plan.Parallel, true, n(0), n(3)), running(3),
			verdict{action: workload.ActWrite, says: "scale it from 3 to 0"}, n(0), false},
		"NoneLeft": {"no pod is left: the template follows",
			restoring(deployment, plan.Parallel, true, n(0), n(3)), ours(none, stopping),
			verdict{action: workload.ActWrite, says: "no pod is left: put its earlier pod template back"}, nil,
			true},
		"ToNoneDone": {"size and template are restored", restoring(deployment, plan.Parallel, true, n(0), n(3)),
			ours(has(none), stopping), verdict{action: workload.ActWrite,
				says: "restored its earlier pod template; stopped: no pod is left"}, nil, false},
		"ThenTheSize": {"all pods have the template: the size follows",
			restoring(operation.KindStatefulSet, plan.Sequential, true, n(5), n(3)),
			ours(has(running(3)), templating), verdict{action: workload.ActWrite,
				says: "its pods are restored: scale it from 3 to 4"}, n(4), false},
		"Autoscaled": {"a size that was changed since is kept",
			restoring(deployment, plan.Parallel, false, n(5), n(2)), running(3),
			verdict{action: workload.ActDone, says: "another client, such as an autoscaler, has changed its size " +
				"since then, which is left unchanged (5 before, 3 now)"}, nil, false},
		"StopsScaled": {"a workload that was stopped is stopped again, whatever its current size",
			restoring(deployment, plan.Parallel, false, n(0), n(2)), running(3),
			verdict{action: workload.ActWrite, says: "scale it from 3 to 0"}, n(0), false},
		"ScaledMidway": {"a size that another client sets meanwhile is kept",
			restoring(deployment, plan.Sequential, false, n(3), n(0)), ours(running(4), sizing),
			verdict{action: workload.ActWrite, says: "another client scaled it from 2 to 4 meanwhile"}, nil, false},
		"StoppedMidway": {"it fails if another client stops it",
			restoring(deployment, plan.Sequential, false, n(3), n(0)), ours(running(0), sizing),
			verdict{workload.ActWrite, "another client scaled it to zero while it was being restored",
				failure.WorkloadFailed}, nil, false},
		"OtherTemplate": {"a template that another client changes meanwhile is not overwritten",
			restoring(deployment, plan.Sequential, true, n(3), n(0)), ours(running(2), sizing),
			verdict{workload.ActWrite, "another client changed its pod template while it was being restored",
				failure.WorkloadFailed}, nil, false},
		"NoSize": {"a DaemonSet has no size to restore",
			restoring(operation.KindDaemonSet, plan.Parallel, true, nil, nil), has(running(3)),
			verdict{action: workload.ActDone, says: "nothing to do"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Nil(t, operation.Validate(c.req))
			d := operation.Decide(c.req, c.seen)
			check(t, c.reason, c.want, d)
			if d.Write != nil {
				require.Equal(t, c.replicas, d.Write.Replicas, c.reason)
				require.Equal(t, c.template, d.Write.Template != nil, c.reason)
			}
		})
	}
}

func TestRestore_IsRefused_WhenNothingCanBeRestored(t *testing.T) {
	t.Parallel()
	empty := request(operation.KindDeployment, plan.Restore, plan.Parallel)
	require.Contains(t, operation.Validate(empty).Message, "without anything to restore")
	require.Contains(t, operation.Validate(restoring(operation.KindDaemonSet, plan.Parallel, false, n(1),
		n(2))).Message, "has no size")
	paused := running(3)
	paused.Paused = true
	require.Contains(t, operation.RefusalReason(restoring(operation.KindDeployment, plan.Parallel, true, nil, nil),
		paused), "is paused, so nothing would be restored")
	require.Empty(t, operation.RefusalReason(restoring(operation.KindDeployment, plan.Parallel, false, n(1), n(3)),
		paused), "a change of the size replaces no pods")
}

func TestDiffOf(t *testing.T) {
	t.Parallel()
	field := []workload.FieldChange{{Field: "spec.containers[app].image", From: "x:2", To: "x:1"}}
	diff := func(req operation.Request, seen operation.Observed) operation.Diff {
		return operation.DiffOf(req, seen, operation.Decide(req, seen), field)
	}
	restore := diff(restoring(operation.KindDeployment, plan.Sequential, true, n(0), n(3)), running(3))
	require.Equal(t, operation.Diff{Changes: true, Summary: "scale it from 3 to 2, remembering 3", FromReplicas: n(3),
		ToReplicas: n(0), Template: field}, restore,
		"the final size is 0; no pod is replaced before it is removed")
	upload := request(operation.KindDeployment, plan.HTTPUploadDeploy, plan.Parallel)
	upload.Package.SHA256 = ""
	packaged := running(3)
	packaged.Package = "ab"
	seen := diff(upload, packaged)
	require.Equal(t, int32(3), seen.Pods)
	require.Equal(t, "the package's digest is known once it is fetched: if it is sha256:ab, which runs now, no pod "+
		"is replaced", seen.Unknown)
	claimed := running(3)
	claimed.Claim = "task/other/1-x@run"
	require.False(t, diff(upload, claimed).Changes)
	require.NotEmpty(t, diff(upload, claimed).Unknown, "the diff states what is unknown")
	lagging := running(3)
	lagging.Generation = 9
	require.Contains(t, diff(request(operation.KindDaemonSet, plan.Restart, plan.Parallel), lagging).Unknown,
		"what comes after that")
}
