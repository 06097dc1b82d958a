package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
)

// opening answers as the centre does.
func (w *world) opening(q window.Question) window.Answer {
	require.Equal(w.t, w.now, q.At, "it asks about the present")
	answer, err := window.NextOpening(q)
	require.NoError(w.t, err)
	return answer
}

// until carries out what is asked until it is as asked. Routes are left to take effect.
func (w *world) until(is func(Action) bool) Action {
	for {
		a := w.next()
		switch {
		case is(a):
			return a
		case a.Activity():
			w.do(a)
		default:
			require.Equal(w.t, rollout.WaitTraffic, a.waits, a.why)
			w.now = *a.Until
		}
	}
}

// untilRest carries out what is asked until the release rests.
func (w *world) untilRest() Action {
	return w.until(func(a Action) bool { return !a.Activity() && a.waits != rollout.WaitTraffic })
}

func frozenWorld(t *testing.T) *world {
	s := setupOf(strategy.StylePartition, true, aStep("1", 10, -1), aStep("50%", 50, -1), aStep("100%", -1, 0))
	s.Spec.Policy.Freezes = []window.Window{{Start: "2026-03-01T10:00:00Z", Duration: "4h"}}
	return newWorld(t, s, 6)
}

func TestAStepThatIsDoneWaitsForTheEndOfAFreeze(t *testing.T) {
	t.Parallel()
	w := frozenWorld(t)
	a := w.untilRest()
	require.Equal(t, rollout.WaitApproval, a.waits, "the freeze has not begun")
	w.now = w.now.Add(2 * time.Hour)
	approved := w.m.Status().WaitingFor.Gate
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Gate: approved, Reason: "fine"}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	a = w.untilRest()
	require.Equal(t, rollout.WaitWindow, a.waits)
	require.Equal(t, "2026-03-01T14:00:00Z", clock(*a.Until))
	outcome, message = w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Gate: approved, Reason: "fine"}, w.now)
	require.Equal(t, audit.Refused, outcome, "the approval of the step is none of the freeze: %s", message)
	w.now = *a.Until
	a = w.untilRest()
	require.Equal(t, rollout.WaitApproval, a.waits)
	require.Equal(t, 2, w.m.Status().CurrentStepIndex)
}

// Somebody who jumps while pods move stops them, and they come to rest before a window is waited for.
func TestAJumpInAFreezeLeavesNoPodsOnTheirWay(t *testing.T) {
	t.Parallel()
	w := frozenWorld(t)
	w.until(func(a Action) bool { return a.Kind == ActMove })
	w.now = w.now.Add(2 * time.Hour)
	outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbJump, ToStep: 2}, w.now)
	require.Equal(t, audit.Accepted, outcome, message)
	require.True(t, w.m.Interrupts())
	w.m.Stopped()
	a := w.untilRest()
	require.Equal(t, rollout.WaitWindow, a.waits)
	require.False(t, w.loose, "what waits is at rest")
}

// Whoever ends a release knows why: nothing of that waits.
func TestEndsDoNotWaitForWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []rollout.Command{{Verb: rollout.VerbRollback}, {Verb: rollout.VerbStop}, {Verb: rollout.VerbStop, To: rollout.StopToNew},
		{Verb: rollout.VerbStop, To: rollout.StopToFrozen}} {
		w := frozenWorld(t)
		w.untilRest()
		w.now = w.now.Add(2 * time.Hour)
		outcome, message := w.m.Command(rollout.Command{Verb: rollout.VerbApprove, Step: 1}, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		require.Equal(t, rollout.WaitWindow, w.untilRest().waits)
		outcome, message = w.m.Command(c, w.now)
		require.Equal(t, audit.Accepted, outcome, message)
		require.NotEqual(t, rollout.WaitWindow, w.untilRest().waits, "%v", c)
	}
}
