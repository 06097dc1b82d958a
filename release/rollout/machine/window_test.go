package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
)

// opening answers like the centre does.
func (w *world) opening(q window.Question) window.Answer {
	require.Equal(w.t, w.now, q.At, "it asks about the current time")
	answer, err := window.NextOpening(q)
	require.NoError(w.t, err)
	return answer
}

// until executes actions until one fulfils is, and waits until routes have taken effect.
func (w *world) until(is func(Action) bool) Action {
	for {
		a := w.next()
		switch {
		case is(a):
			return a
		case a.Activity():
			w.do(a)
		default:
			require.Equal(w.t, rollout.WaitTraffic, a.waitKind, a.reason)
			w.now = *a.Until
		}
	}
}

// untilRest executes actions until the release waits.
func (w *world) untilRest() Action {
	return w.until(func(a Action) bool { return !a.Activity() && a.waitKind != rollout.WaitTraffic })
}

func frozenWorld(t *testing.T) *world {
	s := setupOf(strategy.StylePartition, true, aStep("1", 10, -1), aStep("50%", 50, -1), aStep("100%", -1, 0))
	s.Spec.Policy.Freezes = []window.Window{{Start: "2026-03-01T10:00:00Z", Duration: "4h"}}
	return newWorld(t, s, 6)
}

func TestNextStep_WaitsForEndOfFreeze(t *testing.T) {
	t.Parallel()
	w := frozenWorld(t)
	a := w.untilRest()
	require.Equal(t, rollout.WaitApproval, a.waitKind, "the freeze has not begun")
	w.now = w.now.Add(2 * time.Hour)
	approved := w.m.Status().WaitingFor.Gate
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbApprove, Gate: approved, Reason: "fine"}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	a = w.untilRest()
	require.Equal(t, rollout.WaitWindow, a.waitKind)
	require.Equal(t, "2026-03-01T14:00:00Z", phrase.Time(*a.Until))
	outcome, message = w.send(rollout.Command{Verb: rollout.VerbApprove, Gate: approved, Reason: "fine"}, w.now)
	require.Equal(t, audit.Refused, outcome, "the approval of the step does not override the freeze: %s", message)
	w.now = *a.Until
	a = w.untilRest()
	require.Equal(t, rollout.WaitApproval, a.waitKind)
	require.Equal(t, 2, w.m.Status().CurrentStepIndex)
}

// A jump while pods move interrupts them, and they are settled before the rollout waits for a window.
func TestJumpInFreeze_SettlesPodsBeforeWaiting(t *testing.T) {
	t.Parallel()
	w := frozenWorld(t)
	w.until(func(a Action) bool { return a.Kind == ActMove })
	w.now = w.now.Add(2 * time.Hour)
	outcome, message := w.send(rollout.Command{Verb: rollout.VerbJump, ToStep: 2}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	a := w.untilRest()
	require.Equal(t, rollout.WaitWindow, a.waitKind)
	require.False(t, w.unsettled, "a waiting rollout has settled pods")
}

// A command that ends a release is a deliberate decision: it does not wait for a window.
func TestEndingCommand_DoesNotWaitForWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []rollout.Command{{Verb: rollout.VerbRollback}, {Verb: rollout.VerbStop},
		{Verb: rollout.VerbStop, To: rollout.StopToNew},
		{Verb: rollout.VerbStop, To: rollout.StopToFrozen}} {
		w := frozenWorld(t)
		w.untilRest()
		w.now = w.now.Add(2 * time.Hour)
		outcome, message := w.send(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		require.Equal(t, rollout.WaitWindow, w.untilRest().waitKind)
		outcome, message = w.send(c, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		require.NotEqual(t, rollout.WaitWindow, w.untilRest().waitKind, "%v", c)
	}
}
