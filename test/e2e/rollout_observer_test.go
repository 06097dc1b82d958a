package e2e

import (
	"testing"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// The observer interprets a workload's own limits as the native controllers do: a plain update of each kind, without
// the engine, breaks no promise and changes nothing else.
func TestObserver_AcceptsPlainUpdates(t *testing.T) {
	t.Parallel()
	observePlainUpdates(t, []harness.Kind{harness.Deployment, harness.StatefulSet})
}

// This test covers every kind.
func TestSoakObserver_AcceptsPlainUpdates(t *testing.T) {
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
			r.watch.AllowFinish(t)
			r.SetImage(kind, r.rollout.Name, r.rollout.NewestImage())
			r.watch.WaitCount(t, observer.Count{New: harness.SubjectSize, NewReady: harness.SubjectSize})
			r.watch.WaitSettled(t)
			r.requireRestored(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}})
		})
	}
}
