package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// lastStretchSteps makes the release wait for approval at its first step, followed by three steps that do not pause.
func lastStretchSteps(c cell) func(map[string]any, *harness.Rollout) {
	return func(_ map[string]any, r *harness.Rollout) {
		unpaused := func(replicas string) strategy.Step {
			s := harness.Step(replicas, -1)
			s.PauseSeconds = new(int64)
			return s
		}
		r.Strategy.Steps = []strategy.Step{c.steps()[0], unpaused("50%"), unpaused("75%"), harness.Step("100%", -1)}
	}
}

// After the last step that pauses or moves traffic, one write lets the workload's own controller finish, with the
// workload's own settings. The status records each step as it is passed.
func TestRolloutLastStretch_NeedsOneWrite_WhenNoStepPauses(t *testing.T) {
	t.Parallel()
	testLastStretch(t, deploymentCell(strategy.StylePartition, harness.Nginx),
		cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider})
}

// The same for the kinds that have a partition.
func TestLongRolloutLastStretch_NeedsOneWrite_WhenNoStepPauses(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testLastStretch(t, cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
		cell{harness.CloneSet, strategy.StylePartition, harness.NoProvider},
		cell{harness.AdvancedDaemonSet, strategy.StylePartition, harness.NoProvider})
}

func testLastStretch(t *testing.T, cells ...cell) {
	t.Helper()
	e := harness.Shared(t)
	for _, c := range cells {
		t.Run(c.kind.Title, func(t *testing.T) {
			t.Parallel()
			r := startRelease(t, e, c, lastStretchSteps(c))
			r.waitPaused(1)
			generation := r.object().GetGeneration()
			r.approve(1)
			status := r.requirePromoted()
			for _, step := range status.Steps {
				require.NotNil(t, step.FinishedAt, "step %d was passed", step.Index)
			}
			require.Equal(t, harness.SubjectSize, r.watch.PodsCreated(t), "every pod is replaced once")
			// One write starts the last stretch and one finalises; a Deployment's controller additionally increments
			// the revision.
			require.LessOrEqual(t, r.object().GetGeneration()-generation, int64(3))
		})
	}
}

// A pause during the last stretch pauses the Deployment; the pods that its own controller has surged stay. A resume
// continues.
func TestLongRolloutLastStretch_StopsAndContinues_WhenPausedAndResumed(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	c := deploymentCell(strategy.StylePartition, harness.NoProvider)
	r := startRelease(t, e, c, func(object map[string]any, asked *harness.Rollout) {
		slowPods(object, 5*time.Second) // a verb takes up to 3 s to take effect
		lastStretchSteps(c)(object, asked)
	})
	r.approve(1)
	own := func(d *appsv1.Deployment) bool { return !d.Spec.Paused && d.Spec.MinReadySeconds == 0 }
	r.waitDeployment("controlled by its own controller", own)
	r.sendVerb("pause", "")
	r.waitDeployment("paused", func(d *appsv1.Deployment) bool {
		return d.Spec.Paused && d.Status.ObservedGeneration == d.Generation
	})
	r.watch.WaitSettled(t)
	before := r.watch.Count(t)
	require.Positive(t, before.Stable, "it was paused before the last stable pod was replaced")
	r.watch.RequirePromises(t)
	r.watch.AllowFinish(t)
	r.MustVerb(r.rollout.Name, "resume", "")
	r.requirePromoted()
}

// A pod that does not start fails the last stretch within the step's deadline: the Deployment is paused, no stable pod
// becomes unavailable, and a rollback works.
func TestLongRolloutLastStretch_FailsAndRollsBack_WhenPodDoesNotStart(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	c := deploymentCell(strategy.StylePartition, harness.NoProvider)
	r := startRelease(t, e, c, func(object map[string]any, asked *harness.Rollout) {
		lastStretchSteps(c)(object, asked)
		asked.Strategy.Steps = asked.Strategy.Steps[1:] // no step pauses: the last stretch begins with the first pod
		asked.Image, asked.Policy = "registry.test/order:bad", map[string]any{"stepDeadlineSeconds": 24}
	})
	status := r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool {
		return s.Phase == rollout.PhaseFailed
	})
	require.Contains(t, status.Reason, "ImagePullBackOff")
	r.waitDeployment("paused", func(d *appsv1.Deployment) bool { return d.Spec.Paused })
	r.sendVerb("rollback", "")
	r.requireRolledBack()
}

// During a timed pause of a few seconds the Deployment keeps its borrowed minReadySeconds and the party's worker
// continues by itself: the pause costs neither a workflow task nor a write of the Deployment. The status shows the
// pause, and a pause verb parks the Deployment with its own minReadySeconds.
func TestRolloutBriefTimedPause_StaysInTheActivity(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	c := deploymentCell(strategy.StylePartition, harness.NoProvider)
	r := startRelease(t, e, c, func(_ map[string]any, asked *harness.Rollout) {
		asked.Strategy.Steps = []strategy.Step{harness.TimedStep(harness.Step("20%", -1), time.Second),
			harness.TimedStep(harness.Step("60%", -1), 15*time.Second),
			harness.Step("100%", -1)}
	})
	status := r.WaitRollout(r.rollout.Name, "the timed pause of step 2", func(s rollout.Status) bool {
		return s.CurrentStepIndex == 2 && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitTimer
	})
	require.NotNil(t, status.WaitingFor.Until)
	require.NotNil(t, status.Steps[0].FinishedAt)
	r.waitDeployment("paused with the borrowed minReadySeconds", func(d *appsv1.Deployment) bool {
		return d.Spec.Paused && d.Spec.MinReadySeconds > 0
	})
	require.Len(t, r.History(r.RolloutID(r.rollout.Name)), 6, "its start is checked, and its one activity still runs")
	r.sendVerb("pause", "")
	r.waitDeployment("parked", func(d *appsv1.Deployment) bool { return d.Spec.Paused && d.Spec.MinReadySeconds == 0 })
	r.watch.WaitSettled(t)
	r.watch.AllowFinish(t)
	r.MustVerb(r.rollout.Name, "resume", "")
	r.requirePromoted()
	require.Equal(t, harness.SubjectSize, r.watch.PodsCreated(t), "every pod is replaced once")
}

// waitDeployment waits until the workload, a Deployment, satisfies is.
func (r *release) waitDeployment(what string, is func(*appsv1.Deployment) bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		d, err := r.Kube.AppsV1().Deployments(r.Apps).Get(context.Background(), r.rollout.Name, metav1.GetOptions{})
		return err == nil && is(d)
	}, harness.Patience, harness.Tick, what)
}
