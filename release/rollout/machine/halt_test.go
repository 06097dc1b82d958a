package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// While somebody holds a rollout its pods rest, wherever it was held: what a step needs while it moves them is no setting for a workload that waits for a person.
func TestWhatIsHeldIsAtRest(t *testing.T) {
	t.Parallel()
	moving := func(t *testing.T) *world {
		w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", -1, 0), aStep("50%", 50, -1)), 10)
		w.do(w.next())
		require.Equal(t, ActMove, w.next().Kind)
		return w
	}
	pause := func(t *testing.T, w *world) {
		outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbPause}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
	}
	for _, tc := range []struct {
		reason string
		reach  func(t *testing.T) *world
		halts  bool
		waits  rollout.WaitKind
	}{
		{"it was held in the middle of a step", func(t *testing.T) *world {
			w := moving(t)
			pause(t, w)
			require.True(t, w.m.Interrupts())
			w.m.Stopped()
			return w
		}, true, rollout.WaitResume},
		{"its worker died when it was to stop", func(t *testing.T) *world {
			w := moving(t)
			pause(t, w)
			w.fail(failure.Unreachable, "party alice does not answer")
			return w
		}, true, rollout.WaitResume},
		{"it was held after a step that goes on at once", func(t *testing.T) *world {
			w := moving(t)
			w.do(*w.m.running)
			require.Equal(t, rollout.RoutePin, w.next().Route.Action)
			pause(t, w)
			w.do(*w.m.running)
			return w
		}, true, rollout.WaitResume},
		{"what failed after such a step is not its pods", func(t *testing.T) *world {
			w := moving(t)
			w.do(*w.m.running)
			require.Equal(t, rollout.RoutePin, w.next().Route.Action)
			w.fail(failure.Drift, "somebody else edited the Service")
			return w
		}, true, rollout.WaitDrift},
		{"a step that failed has come to rest by itself", func(t *testing.T) *world {
			w := moving(t)
			w.fail(failure.WorkloadFailed, "0 of 2 pods are ready")
			return w
		}, false, rollout.WaitResume},
		{"a step that rests needs nothing", func(t *testing.T) *world {
			w := resting(t, strategy.StylePartition)
			pause(t, w)
			return w
		}, false, rollout.WaitResume},
		{"before the first step there is nothing to rest", verbStates["before the first step"], false, rollout.WaitResume},
	} {
		w := tc.reach(t)
		a := w.next()
		if tc.halts {
			require.Equal(t, ActMove, a.Kind, tc.reason)
			require.True(t, a.Move.Halt, tc.reason)
			require.Contains(t, a.Summary, "come to rest", tc.reason)
			state, seen := w.m.Status().CurrentStepState, w.m.s.PutBack
			w.do(a)
			require.Equal(t, state, w.m.Status().CurrentStepState, "%s: no step is further for it", tc.reason)
			require.Equal(t, seen, w.m.s.PutBack, tc.reason)
			a = w.drive()
		}
		require.Equal(t, ActRest, a.Kind, tc.reason)
		require.Equal(t, tc.waits, w.m.Status().WaitingFor.Kind, tc.reason)
		verb := map[rollout.WaitKind]rollout.Verb{rollout.WaitResume: rollout.VerbResume, rollout.WaitDrift: rollout.VerbRetry}[tc.waits]
		if w.m.s.Trouble != nil {
			verb = rollout.VerbRetry
		}
		outcome, message := w.m.Command(rollout.Command{Verb: verb}, w.now)
		require.Equal(t, audit.Accepted, outcome, "%s: %s", tc.reason, message)
		w.drive()
		require.Equal(t, rollout.WaitApproval, w.m.Status().WaitingFor.Kind, "%s: it goes on as if nothing had been", tc.reason)
	}
}

// A halt that fails holds the rollout no less, and is not tried for ever.
func TestAHaltThatFails(t *testing.T) {
	t.Parallel()
	held := func() *world {
		w := verbStates["pods move"](t)
		w.m.Command(rollout.Command{Verb: rollout.VerbPause}, w.now)
		w.m.Stopped()
		require.True(t, w.next().Move.Halt)
		return w
	}
	w := held()
	w.fail(failure.Unreachable, "out of reach")
	a := w.next()
	require.True(t, a.Move.Halt && a.NoPickUpTimeout, "it is tried again, for as long as it takes")
	w.fail(failure.Refused, "its cluster does not accept it")
	require.Equal(t, ActRest, w.next().Kind)
	require.Contains(t, w.m.Status().Reason, "does not accept it")
	w = held()
	w.fail(failure.Gone, "it was deleted")
	require.Equal(t, ActRest, w.next().Kind)
	require.Contains(t, w.m.Status().Reason, "it was deleted")
	w = held()
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbRollback}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.True(t, w.m.Interrupts(), "a rollback does not wait for it")
}
