package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A Rollout is applied, an image is set, and each step approved by a patch of the status: the release goes through its steps, and each command is
// on record with the name of who sent it.
func TestKubectlRelease(t *testing.T) {
	t.Parallel()
	releasedByKubectl(t, deploymentBy(strategy.StylePartition, harness.Nginx), cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider})
}

// The other kinds, styles and providers.
func TestLongKubectlRelease(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	releasedByKubectl(t, deploymentBy(strategy.StyleCanary, harness.Nginx), deploymentBy(strategy.StyleBlueGreen, harness.Istio),
		cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}, cell{harness.CloneSet, strategy.StylePartition, harness.NoProvider},
		deploymentBy(strategy.StylePartition, harness.Gateway))
}

// Every kind, style and provider.
func TestSoakKubectlRelease(t *testing.T) {
	harness.Soak(t)
	releasedByKubectl(t, cells()...)
}

func releasedByKubectl(t *testing.T, cells ...cell) {
	e, g := harness.StartGuarded(t)
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			d := declare(t, e, g, c, nil)
			d.setImage("alice", harness.NewImage(d.rollout.Name))
			d.waitStep(1)
			d.requireKnownNames(c)
			d.approve(1)
			d.approve(2)
			if c.style == strategy.StyleBlueGreen {
				d.approve(3)
			}
			r := d.ends(true)
			require.Equal(t, int32(-1), common(r).NextStepIndex, "nothing is to come")
			history := d.history()
			require.Contains(t, history, "start by alice (kubectl): accepted", "who has set the image has started the release")
			require.Contains(t, history, "approve by approver (kubectl): accepted", "who has approved is named by the API server")
			d.endsNew()
			d.requireNamesGone(c)
		})
	}
}

// cells are all places of the matrix.
func cells() (all []cell) {
	for _, p := range matrix() {
		all = append(all, p.cell)
	}
	return all
}
