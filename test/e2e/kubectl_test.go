package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

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
			d := declare(t, e, g, c, nil)
			d.setImage("alice", harness.NewImage(d.rollout.Name))
			d.waitStep(1)
			d.requireKruiseKeys(c)
			d.approve(1)
			d.approve(2)
			if c.style == strategy.StyleBlueGreen {
				d.approve(3)
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
		})
	}
}

// allCells returns all cells of the matrix.
func allCells() (all []cell) {
	for _, p := range matrix() {
		all = append(all, p.cell)
	}
	return all
}
