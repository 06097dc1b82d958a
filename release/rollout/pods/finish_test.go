package pods_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// partlyNew is a toy Deployment, paused with two of four pods new.
func partlyNew(t *testing.T) (*toy, pods.Technique) {
	t.Helper()
	w := newToy(4, `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}`)
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	begun := pods.Begin(tech, rollout.BeginRequest{Subject: subject(),
		Strategy: strategy.Strategy{Style: strategy.StylePartition}}, w.observe())
	require.True(t, w.write(begun.Write, w.generation))
	move := rollout.MoveRequest{Subject: subject(), Step: 1, Style: strategy.StylePartition,
		Replicas: intstr.FromInt32(2), Settle: true}
	runToEnd(t, w, func() pods.NextAction { return pods.Move(tech, move, w.observe()) })
	return w, tech
}

// runToEnd lets an activity and the cluster take turns until the activity ends.
func runToEnd(t *testing.T, w *toy, decide func() pods.NextAction) {
	t.Helper()
	for range 100 {
		d := decide()
		require.Nil(t, d.Failure, d.Reason)
		ended := d.Action == workload.ActDone || d.Action == workload.ActWrite &&
			w.write(d.Write, w.generation) && d.Ends
		w.settleAll()
		if ended {
			return
		}
	}
	t.Fatalf("it does not end: %+v", w.observe())
}

func (w *toy) settleAll() {
	w.hear()
	w.sync()
	for _, s := range w.sets {
		s.settle()
		for i := range s.pods {
			s.pods[i] = true
		}
		s.report()
	}
	w.hear()
	w.report()
}

// Finish sets the template once. If another client changes it afterwards, a user decides; what that user asks for ends
// at the deadline.
func TestFinish_FailsWithDrift_WhenTemplateChangesAgain(t *testing.T) {
	t.Parallel()
	for side, theirs := range map[rollout.Side]string{rollout.SideStable: newTemplate,
		rollout.SideNew: stableTemplate} {
		w, tech := partlyNew(t)
		if side == rollout.SideNew { // scaled to zero, it is paused with the stable template
			w.template = stableTemplate
			w.annotations[rollout.AnnotationSettled] = rollout.SettledState{Template: stableTemplate}.String()
		}
		req := rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResume, To: side, Template: newTemplate}
		finish := func(change func(*pods.Observed)) pods.NextAction {
			seen := w.observe()
			if change != nil {
				change(&seen)
			}
			return pods.Finish(tech, req, seen)
		}
		first := finish(nil)
		require.NotNil(t, first.Write, "%s: %s", side, first.Reason)
		require.NotNil(t, first.Write.Template, side)
		require.True(t, w.write(first.Write, w.generation))
		w.template = theirs
		w.generation++
		again := finish(nil)
		require.NotNil(t, again.Failure, "%s: %s", side, again.Reason)
		require.Equal(t, failure.Drift, again.Failure.Kind, side)

		req.OverwriteDrift = true
		require.NotNil(t, finish(nil).Write, "%s: a user asks for it", side)
		late := finish(func(seen *pods.Observed) { seen.Elapsed = 600 * time.Second })
		require.NotNil(t, late.Failure, "%s: %s", side, late.Reason)
		require.Equal(t, failure.Drift, late.Failure.Kind, "%s: the deadline has passed", side)
	}
}

// At the end of a release with an extra Deployment, the reported revision is the workload's own, which needs no later
// correction. Until it is made, none is reported.
func TestFinish_ReportsWorkloadsOwnRevision_WithExtraDeployment(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	stable := pods.Revision{Name: "web-1", Hash: "1", Template: stableTemplate}
	own := pods.Revision{Name: "web-2", Hash: "2", Template: newTemplate}
	for _, tc := range []struct {
		reason         string
		revisions      []pods.Revision
		revision, hash string
	}{
		{"its ReplicaSet does not exist yet", []pods.Revision{stable}, "", ""},
		{"it exists", []pods.Revision{stable, own}, "web-2", "2"},
	} {
		seen := pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: 4}, Template: newTemplate,
			Revisions: tc.revisions,
			Saved: &rollout.Saved{Style: strategy.StyleCanary, Stable: "web-1", StableTemplate: stableTemplate,
				CanaryWorkload: "web-canary"},
			Extra: &pods.Extra{Name: "web-canary", Hash: "extra", CanaryOf: strategy.CanaryOf("web"),
				Template: newTemplate}}
		d := pods.Finish(tech, rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResume,
			To: rollout.SideNew, Template: newTemplate}, seen)
		require.Equal(t, tc.revision, d.Numbers.Canary, tc.reason)
		require.Equal(t, tc.hash, d.Numbers.CanaryHash, tc.reason)
	}
}

// The extra workload serves until the workload itself is of the new version: if the workload is scaled up meanwhile,
// the extra workload follows.
func TestFinish_ScalesExtraWorkload_WhenWorkloadGrows(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StyleCanary)
	saved := &rollout.Saved{Style: strategy.StyleCanary, Stable: "stable", StableTemplate: stableTemplate,
		CanaryWorkload: "web-canary"}
	all := intstr.FromString("100%")
	for _, tc := range []struct {
		reason string
		extra  int32
		asks   *intstr.IntOrString
		to     rollout.Side
		want   int32
	}{
		{"the workload was scaled from 4 to 5", 4, &all, rollout.SideNew, 5},
		{"it is large enough", 6, &all, rollout.SideNew, 0},
		{"a request of an earlier version has no number", 4, nil, rollout.SideNew, 0},
		{"on a rollback it serves no requests", 4, &all, rollout.SideStable, 0},
	} {
		seen := pods.Observed{Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: 5}, Saved: saved,
			Template: stableTemplate,
			Revisions: []pods.Revision{{Name: "stable", Hash: "stable", Template: stableTemplate, HasCounts: true,
				Desired: 5, Total: 5, Ready: 5}},
			Extra: &pods.Extra{Snapshot: workload.Snapshot{Claim: ourClaim, Replicas: tc.extra}, Name: "web-canary",
				UID:      "x",
				CanaryOf: strategy.CanaryOf("web")}}
		d := pods.Finish(tech, rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResume, To: tc.to,
			Template: newTemplate, ExtraReplicas: tc.asks}, seen)
		if tc.want == 0 {
			require.False(t, d.Extra != nil && d.Extra.Replicas != nil, "%s: %s", tc.reason, d.Reason)
			continue
		}
		require.NotNil(t, d.Extra, "%s: %s", tc.reason, d.Reason)
		require.Equal(t, tc.want, *d.Extra.Replicas, tc.reason)
	}
}

// A workload without claim and saved state was released before. If its template is that of the other version, the
// result says so: the rollout must not report the version that it wanted.
func TestFinish_ReportsVersion_OfReleasedWorkload(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(subject().Workload.WorkloadRef, strategy.StylePartition)
	for _, tc := range []struct {
		reason, live, fresh, stable string
		to, want                    rollout.Side
	}{
		{"it was rolled back", stableTemplate, newTemplate, stableTemplate, rollout.SideStable, ""},
		{"it is of the new version", newTemplate, newTemplate, stableTemplate, rollout.SideStable, rollout.SideNew},
		{"the result with the new template was lost, which the preflight has predicted", newTemplate, "", stableTemplate,
			rollout.SideStable, rollout.SideNew},
		{"a user has set another one, and the new template is unknown", "t-other", "", stableTemplate,
			rollout.SideStable, ""},
		{"the result of the claim was lost", newTemplate, newTemplate, "", rollout.SideStable, rollout.SideNew},
		{"a user has repaired it with another one", "t-other", newTemplate, stableTemplate, rollout.SideStable, ""},
		{"it was finished", newTemplate, newTemplate, stableTemplate, rollout.SideNew, ""},
		{"a user has repaired it to the stable version", stableTemplate, newTemplate, stableTemplate, rollout.SideNew,
			rollout.SideStable},
		{"both versions are the same", stableTemplate, stableTemplate, stableTemplate, rollout.SideNew, ""},
	} {
		seen := pods.Observed{Snapshot: workload.Snapshot{Replicas: 4}, UID: "u-1", Template: tc.live,
			Revisions: []pods.Revision{{Name: "web-2", Hash: "2", Template: newTemplate, HasCounts: true, Total: 4,
				Ready: 4}}}
		d := pods.Finish(tech, rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResumeAndRelease,
			To: tc.to, Template: tc.fresh, StableTemplate: tc.stable,
			Predicted: &rollout.PredictedTemplate{Template: newTemplate, UID: "u-1", From: stableTemplate}}, seen)
		require.Equal(t, workload.ActDone, d.Action, tc.reason)
		require.Equal(t, tc.want, d.Numbers.Released, tc.reason)
		if tc.want == rollout.SideNew {
			require.EqualValues(t, 4, d.Numbers.Updated, tc.reason)
		}
	}
}

// "4 of 4 pods are ready" is no reason to wait: the sentence names what is missing.
func TestFinish_NamesWhatIsMissing_WhenAllPodsAreReady(t *testing.T) {
	t.Parallel()
	w, tech := partlyNew(t)
	req := rollout.FinishRequest{Subject: subject(), Action: rollout.FinishResume, To: rollout.SideNew,
		Template: newTemplate}
	runToEnd(t, w, func() pods.NextAction { return pods.Finish(tech, req, w.observe()) })
	for reason, c := range map[string]struct {
		change func(*pods.Observed)
		says   string
	}{
		"pods must be ready for a while": {func(seen *pods.Observed) { seen.Available, seen.MinReadySeconds = 1, 30 },
			"3 ready pods are not available yet: minReadySeconds is 30"},
		"a controller updates pods in place": {func(seen *pods.Observed) { seen.Available, seen.MinReadySeconds = 3, 0 },
			"1 ready pod is not available yet: its controller does not count them yet"},
		"its status is of an earlier spec": {func(seen *pods.Observed) { seen.Generation++ },
			"its controller has not seen the last change yet"},
	} {
		seen := w.observe()
		c.change(&seen)
		d := pods.Finish(tech, req, seen)
		require.Equal(t, workload.ActWait, d.Action, reason)
		require.Contains(t, d.Reason, "finalising to new: 4 of 4 pods of the new version are ready, "+c.says, reason)
	}
}
