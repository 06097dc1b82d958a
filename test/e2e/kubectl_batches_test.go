package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// What clients of Kruise Rollouts read while pods move: a rollback in batches waits at its steps as StepPaused, in the
// object as over HTTP, and batch numbers follow the plan of steps after a scale in the middle of a release.
func TestLongKubectlRelease_ShowsBatches_AsKruiseDoes(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, kind := range []harness.Kind{harness.Deployment, harness.CloneSet} {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			d := declareInBatches(t, e, g, kind)
			d.setImage("alice", d.rollout.NewestImage())
			d.waitStep(1)
			d.Scale(kind, d.rollout.Name, 2*harness.SubjectSize)
			d.waitObserved()
			d.approveUnwatched(1)
			r := d.waitStep(2)
			require.Equal(t, map[string]int{"1": 2, "2": 2}, d.batches(r), "25 % and 50 % of eight")

			d.setImage("alice", harness.StableImage(d.rollout.Name))
			for step := 1; step <= 2; step++ {
				d.waitObject("paused on its way back", func(r *v1beta1.Rollout) bool {
					c := commonStatus(r)
					return int(c.CurrentStepIndex) == step && c.CurrentStepState == "StepPaused" &&
						conditionOf(r, v1beta1.ConditionProgressing).Reason == v1beta1.ReasonCancelling
				})
				require.Equal(t, rollout.StatePaused, d.Rollout(d.rollout.Name).CurrentStepState, "both are one state")
				d.approveUnwatched(step)
			}
			d.waitEnd(false)
		})
	}
}

// declareInBatches declares a Rollout that rolls back in batches.
func declareInBatches(t *testing.T, e *harness.Engine, g *harness.Guard, kind harness.Kind) *declared {
	t.Helper()
	d := &declared{guard: g,
		release: prepareUnobserved(t, e, cell{kind, strategy.StylePartition, harness.NoProvider}, nil)}
	g.EnforceOn(t, d.Apps)
	document := d.document()
	document["metadata"].(map[string]any)["annotations"] = map[string]any{"rollouts.kruise.io/rollback-in-batch": "true"}
	d.create(document, "owner")
	d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
	d.waitGate()
	return d
}

// approveUnwatched approves a step of a release without an observer, and waits until it is left.
func (d *declared) approveUnwatched(step int) {
	d.t.Helper()
	d.waitStep(step)
	d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
	d.waitObject("approved", func(r *v1beta1.Rollout) bool { return commonStatus(r).CurrentStepState != "StepPaused" })
}

// batches returns how many pods of a release have which batch number.
func (d *declared) batches(r *v1beta1.Rollout) map[string]int {
	d.t.Helper()
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: rollout.LabelRolloutID + "=" + commonStatus(r).ObservedRolloutID})
	require.NoError(d.t, err)
	found := map[string]int{}
	for _, p := range pods.Items {
		found[p.Labels[rollout.LabelBatchID]]++
	}
	return found
}

// Pods that are there and not ready are counted within three seconds, in place and in an extra workload.
func TestLongKubectlRelease_CountsUnreadyPods_WithinSeconds(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary} {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			d := &declared{release: prepareUnobserved(t, e, deploymentCell(style, harness.NoProvider), nil), guard: g}
			g.EnforceOn(t, d.Apps)
			d.create(d.document(), "owner")
			d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
			d.waitGate()
			unready := "registry.test/order:never-ready"
			d.setImage("alice", unready)
			require.Eventually(t, func() bool { return d.podsOf(unready) > 0 }, harness.Patience, harness.Tick,
				"no new pod comes")
			there := time.Now()
			d.waitObject("counted", func(r *v1beta1.Rollout) bool {
				c := r.Status.CanaryStatus
				return c != nil && c.CanaryReplicas == 1 && c.CanaryReadyReplicas == 0
			})
			require.Less(t, time.Since(there), 5*time.Second, "three seconds, and the time of a busy machine")
		})
	}
}

func (d *declared) podsOf(image string) (n int) {
	d.t.Helper()
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(), metav1.ListOptions{})
	require.NoError(d.t, err)
	for _, p := range pods.Items {
		if p.Spec.Containers[0].Image == image {
			n++
		}
	}
	return n
}
