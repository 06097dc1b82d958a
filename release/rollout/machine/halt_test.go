package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// While a rollout is held its pods are settled: the settings with which a step moves pods are not safe for a workload
// that waits for an operator.
func TestHeldRollout_SettlesPods_ByState(t *testing.T) {
	t.Parallel()
	moving := func(t *testing.T) *world {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", -1, 0), aStep("50%", 50, -1)), 10)
		w.do(w.next())
		require.Equal(t, ActMove, w.next().Kind)
		return w
	}
	pause := func(t *testing.T, w *world) {
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbPause}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
	}
	for _, tc := range []struct {
		reason string
		reach  func(t *testing.T) *world
		halts  bool
		waits  rollout.WaitKind
	}{
		{"it was paused in the middle of a step", func(t *testing.T) *world {
			w := moving(t)
			pause(t, w)
			return w
		}, true, rollout.WaitResume},
		{"its worker died when it had to stop", func(t *testing.T) *world {
			w := moving(t)
			w.fail(failure.Unreachable, "party alice does not answer")
			pause(t, w)
			return w
		}, true, rollout.WaitResume},
		{"it was paused after a step without a pause", func(t *testing.T) *world {
			w := moving(t)
			w.do(*w.m.running)
			require.Equal(t, rollout.RoutePin, w.next().Route.Action)
			w.do(*w.m.running)
			pause(t, w)
			return w
		}, true, rollout.WaitResume},
		{"after such a step a route failed, not its pods", func(t *testing.T) *world {
			w := moving(t)
			w.do(*w.m.running)
			require.Equal(t, rollout.RoutePin, w.next().Route.Action)
			w.fail(failure.Drift, "another client edited the Service")
			return w
		}, true, rollout.WaitDrift},
		{"a failed Move has settled the pods itself", func(t *testing.T) *world {
			w := moving(t)
			w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
			return w
		}, false, rollout.WaitResume},
		{"a step at its pause needs no halt", func(t *testing.T) *world {
			w := atApproval(t, strategy.StylePartition)
			pause(t, w)
			return w
		}, false, rollout.WaitResume},
		{"before the first step there is nothing to settle", verbStates["before the first step"], false,
			rollout.WaitResume},
	} {
		w := tc.reach(t)
		a := w.next()
		if tc.halts {
			require.Equal(t, ActMove, a.Kind, tc.reason)
			require.True(t, a.Move.Halt, tc.reason)
			require.Contains(t, a.Summary, "settle the pods", tc.reason)
			state, seen := w.m.Status().CurrentStepState, w.m.s.OverwriteDrift
			w.do(a)
			require.Equal(t, state, w.m.Status().CurrentStepState, "%s: it does not advance the step", tc.reason)
			require.Equal(t, seen, w.m.s.OverwriteDrift, tc.reason)
			a = w.drive()
		}
		require.Equal(t, ActWait, a.Kind, tc.reason)
		require.Equal(t, tc.waits, w.m.Status().WaitingFor.Kind, tc.reason)
		verb := map[rollout.WaitKind]rollout.Verb{rollout.WaitResume: rollout.VerbResume,
			rollout.WaitDrift: rollout.VerbRetry}[tc.waits]
		if w.m.s.Trouble != nil {
			verb = rollout.VerbRetry
		}
		outcome, message := w.send(rollout.Command{Verb: verb}, w.now)
		require.Equal(t, audit.Accepted, outcome, "%s: %s", tc.reason, message)
		w.drive()
		require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind,
			"%s: it continues as if it had not been held", tc.reason)
	}
}

// A halt that fails still holds the rollout, and is not retried for ever.
func TestFailedHalt_HoldsRollout(t *testing.T) {
	t.Parallel()
	held := func() *world {
		w := verbStates["pods move"](t)
		w.send(rollout.Command{Verb: rollout.VerbPause}, w.now)
		require.True(t, w.next().Move.Halt)
		return w
	}
	w := held()
	w.fail(failure.Unreachable, "unreachable")
	a := w.next()
	require.True(t, a.Move.Halt && a.NoPickUpTimeout, "it is retried without a limit")
	w.fail(failure.Refused, "its cluster does not accept it")
	require.Equal(t, ActWait, w.next().Kind)
	require.Contains(t, w.m.Status().Reason, "does not accept it")
	w = held()
	w.fail(failure.Gone, "it was deleted")
	require.Equal(t, ActWait, w.next().Kind)
	require.Contains(t, w.m.Status().Reason, "it was deleted")
	w = held()
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbRollback}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
}
