package workloadops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workloadops"
)

// restoring is a RESTORE to a template, to a size that a task changed from, or to both.
func restoring(kind string, method plan.Method, template bool, replicas, left *int32) workloadops.Request {
	req := request(kind, plan.Restore, method)
	req.Restore = &plan.Restoration{Task: "t0", Replicas: replicas, Left: left}
	if template {
		req.Restore.Template = &revision.Revision{Template: "before"}
	}
	return req
}

func TestRestoreDecides(t *testing.T) {
	t.Parallel()
	has := func(seen workloadops.Observed) workloadops.Observed { seen.Marker = marker; return seen }
	unready := running(3)
	unready.Available = 1
	gone := running(3)
	gone.Unkept = true
	sizing := workloadops.Original{Operation: plan.Restore, Changed: true, Size: n(3), Target: n(3), Asked: n(2), FromReplicas: n(0)}
	stopping := workloadops.Original{Operation: plan.Restore, Changed: true, Size: n(3), Asked: n(0), FromReplicas: n(3)}
	templating := workloadops.Original{Operation: plan.Restore, Changed: true, FromReplicas: n(3)}
	none := running(0)
	none.PodsSeen = true
	const deployment = workloadops.KindDeployment
	for name, c := range map[string]struct {
		reason   string
		req      workloadops.Request
		seen     workloadops.Observed
		want     verdict
		replicas *int32
		template bool
	}{
		"Template":      {"pods are replaced", restoring(deployment, plan.Parallel, true, nil, nil), running(3), verdict{action: workloadops.ActWrite, says: "put its earlier pod template back"}, nil, true},
		"Same":          {"a template that stands already rolls nothing", restoring(deployment, plan.Parallel, true, nil, nil), has(running(3)), verdict{action: workloadops.ActDone, says: "nothing to do: it has its earlier pod template already"}, nil, false},
		"Gone":          {"a template that is not kept is refused before anything is written", restoring(deployment, plan.Parallel, true, nil, nil), gone, verdict{workloadops.ActFail, "doesn't keep the pod template that it had before task t0", failure.Refused}, nil, false},
		"FromNone":      {"the template comes with the size", restoring(deployment, plan.Parallel, true, n(3), n(0)), running(0), verdict{action: workloadops.ActWrite, says: "and scale it from 0 to 3"}, n(3), true},
		"PodByPod":      {"SEQUENTIAL starts one pod at a time", restoring(deployment, plan.Sequential, false, n(3), n(0)), running(0), verdict{action: workloadops.ActWrite, says: "scale it from 0 to 1, on the way to 3"}, n(1), false},
		"Unready":       {"no further pod may be missing", restoring(deployment, plan.Sequential, false, n(5), n(3)), unready, verdict{action: workloadops.ActWrite, says: "wait until its pods are ready, on the way to 5"}, n(3), false},
		"ToNone":        {"pods go first, the template after them", restoring(deployment, plan.Parallel, true, n(0), n(3)), running(3), verdict{action: workloadops.ActWrite, says: "scale it from 3 to 0"}, n(0), false},
		"NoneLeft":      {"no pod is left: now the template", restoring(deployment, plan.Parallel, true, n(0), n(3)), ours(none, stopping), verdict{action: workloadops.ActWrite, says: "no pod is left: put its earlier pod template back"}, nil, true},
		"ToNoneDone":    {"both are done", restoring(deployment, plan.Parallel, true, n(0), n(3)), ours(has(none), stopping), verdict{action: workloadops.ActWrite, says: "restored its earlier pod template; stopped: no pod is left"}, nil, false},
		"ThenTheSize":   {"pods of the template are there: now the size", restoring(workloadops.KindStatefulSet, plan.Sequential, true, n(5), n(3)), ours(has(running(3)), templating), verdict{action: workloadops.ActWrite, says: "its pods are restored: scale it from 3 to 4"}, n(4), false},
		"Autoscaled":    {"a size that was set since is left", restoring(deployment, plan.Parallel, false, n(5), n(2)), running(3), verdict{action: workloadops.ActDone, says: "somebody else, an autoscaler for instance, has set its size since then, which is left (5 before, 3 now)"}, nil, false},
		"StopsScaled":   {"but a workload that was stopped is stopped, whatever its size", restoring(deployment, plan.Parallel, false, n(0), n(2)), running(3), verdict{action: workloadops.ActWrite, says: "scale it from 3 to 0"}, n(0), false},
		"ScaledMidway":  {"whoever scales it meanwhile is not fought over", restoring(deployment, plan.Sequential, false, n(3), n(0)), ours(running(4), sizing), verdict{action: workloadops.ActWrite, says: "somebody else scaled it from 2 to 4 meanwhile"}, nil, false},
		"StoppedMidway": {"but for one who stops it", restoring(deployment, plan.Sequential, false, n(3), n(0)), ours(running(0), sizing), verdict{workloadops.ActWrite, "somebody else scaled it to zero while it was being restored", failure.WorkloadFailed}, nil, false},
		"OtherTemplate": {"a template that somebody changes meanwhile is not fought over", restoring(deployment, plan.Sequential, true, n(3), n(0)), ours(running(2), sizing), verdict{workloadops.ActWrite, "somebody else changed its pod template while it was being restored", failure.WorkloadFailed}, nil, false},
		"NoSize":        {"a size alone is nothing for a DaemonSet", restoring(workloadops.KindDaemonSet, plan.Parallel, true, nil, nil), has(running(3)), verdict{action: workloadops.ActDone, says: "nothing to do"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Nil(t, workloadops.Validate(c.req))
			d := workloadops.Decide(c.req, c.seen)
			check(t, c.reason, c.want, d)
			if d.Write != nil {
				require.Equal(t, c.replicas, d.Write.Replicas, c.reason)
				require.Equal(t, c.template, d.Write.Template != nil, c.reason)
			}
		})
	}
}

func TestRestoreIsRefusedWhereItCannotBe(t *testing.T) {
	t.Parallel()
	empty := request(workloadops.KindDeployment, plan.Restore, plan.Parallel)
	require.Contains(t, workloadops.Validate(empty).Message, "without what to restore")
	require.Contains(t, workloadops.Validate(restoring(workloadops.KindDaemonSet, plan.Parallel, false, n(1), n(2))).Message, "has no size")
	paused := running(3)
	paused.Paused = true
	require.Contains(t, workloadops.Refuses(restoring(workloadops.KindDeployment, plan.Parallel, true, nil, nil), paused), "is paused, so nothing would be restored")
	require.Empty(t, workloadops.Refuses(restoring(workloadops.KindDeployment, plan.Parallel, false, n(1), n(3)), paused), "a size needs no roll")
}

func TestDiffOf(t *testing.T) {
	t.Parallel()
	field := []workloadops.FieldChange{{Field: "spec.containers[app].image", From: "x:2", To: "x:1"}}
	diff := func(req workloadops.Request, seen workloadops.Observed) workloadops.Diff {
		return workloadops.DiffOf(req, seen, workloadops.Decide(req, seen), field)
	}
	restore := diff(restoring(workloadops.KindDeployment, plan.Sequential, true, n(0), n(3)), running(3))
	require.Equal(t, workloadops.Diff{Changes: true, Summary: "scale it from 3 to 2, remembering 3", FromReplicas: n(3), ToReplicas: n(0), Template: field}, restore,
		"the size in the end; no pod is replaced on its way out")
	upload := request(workloadops.KindDeployment, plan.HTTPUploadDeploy, plan.Parallel)
	upload.Package.SHA256 = ""
	packaged := running(3)
	packaged.Package = "ab"
	seen := diff(upload, packaged)
	require.Equal(t, int32(3), seen.Pods)
	require.Equal(t, "the package's digest is known once it is fetched: if it is sha256:ab, which runs now, no pod is replaced", seen.Unknown)
	claimed := running(3)
	claimed.Claim = "task/other/1-x@run"
	require.False(t, diff(upload, claimed).Changes)
	require.NotEmpty(t, diff(upload, claimed).Unknown, "what can't be known is said")
	lagging := running(3)
	lagging.Generation = 9
	require.Contains(t, diff(request(workloadops.KindDaemonSet, plan.Restart, plan.Parallel), lagging).Unknown, "what comes after that")
}
