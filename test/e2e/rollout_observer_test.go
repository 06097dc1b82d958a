package e2e

import (
	"testing"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// The observer and the native controllers mean the same by a workload's own limits: a plain update of each kind, by no hand of ours, breaks no promise, and ends with
// everything else as it was.
func TestObserverOfPlainUpdates(t *testing.T) {
	t.Parallel()
	observePlainUpdates(t, []harness.Kind{harness.Deployment, harness.StatefulSet})
}

// Of every kind.
func TestSoakObserverOfPlainUpdates(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	observePlainUpdates(t, harness.Kinds)
}

func observePlainUpdates(t *testing.T, kinds []harness.Kind) {
	t.Helper()
	e := harness.Shared(t)
	for _, kind := range kinds {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			r := prepare(t, e, cell{kind, strategy.StylePartition, harness.Nginx}, nil)
			r.watch.Finishing(t)
			r.SetImage(kind, r.rollout.Name, r.rollout.NewestImage())
			r.watch.WaitCount(t, observer.Count{New: harness.SubjectSize, NewReady: harness.SubjectSize})
			r.watch.WaitStill(t)
			r.requireHome(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}})
		})
	}
}
