package e2e

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A Rollout is applied, an image is set, and each step is approved by a patch of the status: the release goes through
// its steps, and each command is recorded with the name of its sender.
func TestKubectlRelease(t *testing.T) {
	t.Parallel()
	releasedByKubectl(t, deploymentCell(strategy.StylePartition, harness.Nginx),
		cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider})
}

// The other kinds, styles and providers.
func TestLongKubectlRelease(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	releasedByKubectl(t, deploymentCell(strategy.StyleCanary, harness.Nginx),
		deploymentCell(strategy.StyleBlueGreen, harness.Istio),
		cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider},
		cell{harness.CloneSet, strategy.StylePartition, harness.NoProvider},
		deploymentCell(strategy.StylePartition, harness.Gateway))
}

// Every kind, style and provider.
func TestSoakKubectlRelease(t *testing.T) {
	harness.Soak(t)
	releasedByKubectl(t, allCells()...)
}

func releasedByKubectl(t *testing.T, cells ...cell) {
	e, g := harness.StartGuarded(t)
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			releaseByKubectl(t, e, g, c)
		})
	}
}

// releaseByKubectl releases a cell by its Rollout, with an approval of each step.
func releaseByKubectl(t *testing.T, e *harness.Engine, g *harness.Guard, c cell) {
	t.Helper()
	d := declare(t, e, g, c, nil)
	d.setImage("alice", harness.NewImage(d.rollout.Name))
	d.waitStep(1)
	d.requireKruiseKeys(c)
	if c.kind.Custom() {
		d.requireRevisions()
	}
	for step := 1; step <= c.waitingSteps(); step++ {
		d.approve(step)
	}
	r := d.waitEnd(true)
	require.Equal(t, int32(-1), commonStatus(r).NextStepIndex, "there is no next step")
	history := d.history()
	require.Contains(t, history, "start by alice (kubectl): accepted",
		"the user who set the image is the actor of the start")
	require.Contains(t, history, "approve by approver (kubectl): accepted",
		"the approver's name is the one that the API server authenticated")
	d.requirePromoted()
	d.requireNoKruiseKeys(c)
	if c.kind == harness.AdvancedDaemonSet {
		paused, said, err := unstructured.NestedBool(d.object().Object, "spec", "updateStrategy", "rollingUpdate",
			"paused")
		require.NoError(t, err)
		require.True(t, said && !paused, "it says that it is not paused, as after a release by Kruise Rollouts")
	}
}

// requireRevisions requires that the Rollout shows the stable and the new revision as the labels of the pods have them,
// which is how clients of Kruise Rollouts find the pods of each.
func (d *declared) requireRevisions() {
	d.t.Helper()
	label := d.rollout.Kind.Ref(d.rollout.Name).Lookup().RevisionLabel
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(), metav1.ListOptions{})
	require.NoError(d.t, err)
	revisions := map[string]string{}
	for _, p := range pods.Items {
		image := p.Spec.Containers[0].Image
		if known := revisions[image]; known != "" {
			require.Equal(d.t, known, p.Labels[label], "all pods of %s have one revision", image)
		}
		revisions[image] = p.Labels[label]
	}
	r := d.get()
	stable, next := revisions[harness.StableImage(d.rollout.Name)], revisions[d.rollout.NewestImage()]
	require.NotEmpty(d.t, stable)
	require.NotEmpty(d.t, next)
	require.Equal(d.t, stable, commonStatus(r).StableRevision)
	require.Equal(d.t, next, commonStatus(r).PodTemplateHash)
	require.Equal(d.t, next, revisionOf(r))
	if d.rollout.Kind != harness.AdvancedStatefulSet { // its pods have the name of the revision, the others' its end
		require.NotContains(d.t, next, "-")
	}
}

// allCells returns all cells of the matrix.
func allCells() (all []cell) {
	for _, p := range matrix() {
		all = append(all, p.cell)
	}
	return all
}
