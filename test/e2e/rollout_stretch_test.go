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

// stretch has the release rest at its first step, and then go through three that rest for nobody.
func stretch(c cell) func(map[string]any, *harness.Rollout) {
	return func(_ map[string]any, r *harness.Rollout) {
		passing := func(replicas string) strategy.Step {
			s := harness.Step(replicas, -1)
			s.PauseSeconds = new(int64)
			return s
		}
		r.Strategy.Steps = []strategy.Step{c.steps()[0], passing("50%"), passing("75%"), harness.Step("100%", -1)}
	}
}

// Behind the last step that rests or moves traffic the workload's own controller goes to the end by one write, with the workload's own settings; each step's
// number is told as it is passed.
func TestRolloutLastStretch(t *testing.T) {
	t.Parallel()
	goStretch(t, deploymentBy(strategy.StylePartition, harness.Nginx), cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider})
}

// The kinds that have a partition.
func TestLongRolloutLastStretch(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	goStretch(t, cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}, cell{harness.CloneSet, strategy.StylePartition, harness.NoProvider},
		cell{harness.AdvancedDaemonSet, strategy.StylePartition, harness.NoProvider})
}

func goStretch(t *testing.T, cells ...cell) {
	t.Helper()
	e := harness.Shared(t)
	for _, c := range cells {
		t.Run(c.kind.Title, func(t *testing.T) {
			t.Parallel()
			r := begin(t, e, c, stretch(c))
			r.rest(1)
			rested := r.object().GetGeneration()
			r.approve(1)
			status := r.endsNew()
			for _, step := range status.Steps {
				require.NotNil(t, step.FinishedAt, "step %d was passed", step.Index)
			}
			require.Equal(t, harness.SubjectSize, r.watch.Made(t), "every pod is replaced once")
			// One write for the stretch and one at the end; a Deployment's controller counts its revision up besides.
			require.LessOrEqual(t, r.object().GetGeneration()-rested, int64(3))
		})
	}
}

// A person who pauses the stretch stops it where it is: the Deployment is paused, and the pods that its own controller has surged stay. Resumed it goes on.
func TestLongRolloutLastStretchPaused(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	c := deploymentBy(strategy.StylePartition, harness.NoProvider)
	r := begin(t, e, c, func(object map[string]any, asked *harness.Rollout) {
		slowPods(object, 5*time.Second) // a word takes up to three to arrive
		stretch(c)(object, asked)
	})
	r.approve(1)
	own := func(d *appsv1.Deployment) bool { return !d.Spec.Paused && d.Spec.MinReadySeconds == 0 }
	r.deployment("its own controller at work", own)
	r.verb("pause", "")
	r.deployment("paused", func(d *appsv1.Deployment) bool { return d.Spec.Paused && d.Status.ObservedGeneration == d.Generation })
	r.watch.WaitStill(t)
	before := r.watch.Count(t)
	require.Positive(t, before.Stable, "it was stopped on its way")
	r.watch.RequirePromises(t)
	r.watch.Finishing(t)
	r.MustVerb(r.rollout.Name, "resume", "")
	r.endsNew()
}

// A pod of the stretch that does not start stops it within the step's deadline: the Deployment is paused, no stable pod is out of reach, and a rollback goes home.
func TestLongRolloutLastStretchFails(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	c := deploymentBy(strategy.StylePartition, harness.NoProvider)
	r := begin(t, e, c, func(object map[string]any, asked *harness.Rollout) {
		stretch(c)(object, asked)
		asked.Strategy.Steps = asked.Strategy.Steps[1:] // nothing rests: the stretch begins with the first pod
		asked.Image, asked.Policy = "registry.test/order:bad", map[string]any{"stepDeadlineSeconds": 24}
	})
	status := r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
	require.Contains(t, status.Reason, "ImagePullBackOff")
	r.deployment("paused", func(d *appsv1.Deployment) bool { return d.Spec.Paused })
	r.verb("rollback", "")
	r.endsStable()
}

// What rests for a few seconds stays behind the gate, and the party's worker goes on by itself: neither a workflow task nor a write of the Deployment is
// spent on it. It is seen by whoever looks, and whoever pauses has it parked.
func TestRolloutRestsBriefly(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	c := deploymentBy(strategy.StylePartition, harness.NoProvider)
	r := begin(t, e, c, func(_ map[string]any, asked *harness.Rollout) {
		asked.Strategy.Steps = []strategy.Step{harness.Timed(harness.Step("20%", -1), time.Second), harness.Timed(harness.Step("60%", -1), 15*time.Second),
			harness.Step("100%", -1)}
	})
	status := r.WaitRollout(r.rollout.Name, "rest at step 2", func(s rollout.Status) bool {
		return s.CurrentStepIndex == 2 && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitTimer
	})
	require.NotNil(t, status.WaitingFor.Until)
	require.NotNil(t, status.Steps[0].FinishedAt)
	r.deployment("behind the gate", func(d *appsv1.Deployment) bool { return d.Spec.Paused && d.Spec.MinReadySeconds > 0 })
	require.Len(t, r.History(r.RolloutID(r.rollout.Name)), 7, "its one activity is still under way")
	r.verb("pause", "")
	r.deployment("parked", func(d *appsv1.Deployment) bool { return d.Spec.Paused && d.Spec.MinReadySeconds == 0 })
	r.watch.WaitStill(t)
	r.watch.Finishing(t)
	r.MustVerb(r.rollout.Name, "resume", "")
	r.endsNew()
	require.Equal(t, harness.SubjectSize, r.watch.Made(t), "every pod is replaced once")
}

// deployment waits until the workload, a Deployment, is so.
func (r *release) deployment(what string, is func(*appsv1.Deployment) bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		d, err := r.Kube.AppsV1().Deployments(r.Apps).Get(context.Background(), r.rollout.Name, metav1.GetOptions{})
		return err == nil && is(d)
	}, harness.Patience, harness.Tick, what)
}
