package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
)

func drawSetup(t *rapid.T) (Setup, int32) {
	style := rapid.SampledFrom([]strategy.Style{strategy.StylePartition, strategy.StyleCanary,
		strategy.StyleBlueGreen}).Draw(t, "style")
	traffic := rapid.Bool().Draw(t, "traffic")
	var steps []strategy.Step
	for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
		weight := int32(-1)
		if traffic && rapid.Bool().Draw(t, fmt.Sprint("routes", i)) {
			weight = rapid.Int32Range(1, 100).Draw(t, fmt.Sprint("weight", i))
		}
		replicas := rapid.SampledFrom([]string{"1", "3", "10%", "50%", "99%", "100%"}).Draw(t,
			fmt.Sprint("replicas", i))
		steps = append(steps, aStep(replicas, weight,
			rapid.SampledFrom([]int64{-1, 0, 7, 60}).Draw(t, fmt.Sprint("pause", i))))
	}
	s := setupOf(style, traffic, steps...)
	if rapid.Bool().Draw(t, "object") {
		s.Object = &rollout.ObjectRef{Namespace: "shop", Name: "order"}
	}
	p := &s.Spec.Policy
	p.OnFailure = rapid.SampledFrom([]strategy.OnFailure{strategy.OnFailurePause, strategy.OnFailureRollback}).Draw(t,
		"onFailure")
	p.OnExpiry = rapid.SampledFrom([]strategy.OnFailure{strategy.OnFailurePause, strategy.OnFailureRollback}).Draw(t,
		"onExpiry")
	p.ApprovalExpiresSeconds = rapid.SampledFrom([]int64{0, 3600}).Draw(t, "expires")
	p.RollbackInBatches = style == strategy.StylePartition && rapid.Bool().Draw(t, "inBatches")
	if rapid.Bool().Draw(t, "windows") {
		p.Windows = []window.Window{{Start: "2026-03-01T00:00:00Z", Duration: "1h", RRule: "FREQ=DAILY"},
			{Start: "2026-03-01T08:59:00Z", Duration: "3m"}}
	}
	s.Spec.Strategy.Paused = rapid.Bool().Draw(t, "paused")
	s.Spec.Strategy.DisableGenerateCanaryService = rapid.Bool().Draw(t, "noCanary")
	if rapid.Bool().Draw(t, "shared") {
		s.Spec.Strategy.TrafficRoutingRef = "edge"
	}
	return s, rapid.Int32Range(1, 12).Draw(t, "size")
}

// For any commands, failures and scaling: pods come before traffic, traffic leaves before pods, no Service is left
// without pods, a gate opens once, there is always a reason, everything borrowed is restored at the end, and every
// state can be brought to an end.
func TestRollout_KeepsInvariants_ForRandomEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		setup, size := drawSetup(t)
		w := newWorld(t, setup, size)
		gates := map[string]bool{}
		lost := false
		for i := range rapid.IntRange(0, 40).Draw(t, "rounds") {
			a := w.m.running
			if a == nil {
				next := w.next()
				if next.Kind == ActClose || next.Kind == ActSupersede {
					break
				}
				if next.Kind == ActWait && rapid.Bool().Draw(t, fmt.Sprint("continue", i)) {
					w.continueAsNew(setup)
				}
				if next.Kind == ActWait && next.Until != nil && rapid.Bool().Draw(t, fmt.Sprint("wait", i)) {
					w.now = *next.Until
					continue
				}
				a = w.m.running
			}
			event := rapid.SampledFrom([]string{"done", "done", "done", "verb", "verb", "fail", "observed"}).Draw(t,
				fmt.Sprint("event", i))
			switch event {
			case "verb":
				w.command(t, i, gates)
			case "observed":
				w.endAtRandom(t, i)
				w.observed(rapid.SampledFrom([]string{"edited", rollout.ObservedSettings, rollout.ObservedRoutes,
					rollout.ObservedUnpinned, rollout.ObservedUnrouted}).
					Draw(t, fmt.Sprint("what", i)))
			case "fail":
				if a != nil {
					lost = w.failure(t, i, *a) || lost
				}
			default:
				if a == nil {
					break
				}
				w.do(*a)
			}
			if _, err := json.Marshal(w.m.State()); err != nil {
				require.NoError(t, err)
			}
		}
		w.bringToEnd(t)
		w.checkEnd(t, lost)
	})
}

// endAtRandom ends the running action for a command or hint: it is done before it is stopped, is stopped, or is done
// with its result lost.
func (w *world) endAtRandom(t *rapid.T, i int) {
	a := w.m.running
	if a == nil {
		return
	}
	switch ends := rapid.SampledFrom([]string{"stopped", "done", "half"}).Draw(t, fmt.Sprint("ends", i)); {
	case ends == "done":
		w.do(*a)
		w.m.Next(w.now) // as at the end of a leg
	case ends == "half" && a.Stoppable() && a.Kind != ActFinish:
		w.perform(*a)
	}
	w.endAction()
}

// observed simulates a change by another client, or the worker's restore of a Service or route because of it.
func (w *world) observed(what string) {
	switch what {
	case rollout.ObservedUnpinned:
		w.pinned = false
	case rollout.ObservedUnrouted:
		w.share = 0
	}
	w.hint(rollout.Observed{What: what, Message: "another client"}, w.now)
}

func (w *world) continueAsNew(setup Setup) {
	raw, err := json.Marshal(w.m.State())
	require.NoError(w.t, err)
	var carried State
	require.NoError(w.t, json.Unmarshal(raw, &carried))
	w.m = ResumeMachine(setup, carried)
}

func (w *world) command(t *rapid.T, i int, gates map[string]bool) {
	s := w.m.Status()
	c := rollout.Command{Verb: rapid.SampledFrom(append(
		[]rollout.Verb{rollout.VerbSupersede, rollout.VerbApprove, rollout.VerbApprove}, rollout.Verbs...)).Draw(t,
		fmt.Sprint("verb", i)), Actor: "ann"}
	c.To = rapid.SampledFrom([]rollout.StopTo{"", rollout.StopToStable, rollout.StopToNew, rollout.StopToFrozen}).Draw(
		t, fmt.Sprint("to", i))
	c.ToStep = rapid.IntRange(0, len(s.Steps)+1).Draw(t, fmt.Sprint("toStep", i))
	waits := s.WaitingFor
	approvable := w.m.running == nil && waits != nil &&
		(waits.Kind == rollout.WaitApproval || waits.Kind == rollout.WaitTimer)
	// A step that is done has paused before, even while a change by another client is inspected, reverted, or takes
	// effect.
	done := s.CurrentStepState == rollout.StatePaused
	if waits != nil {
		c.Gate = waits.Gate
	}
	final, visit := s.FinishedAt != nil, w.m.gateOf("")
	if c.Verb != rollout.VerbApprove {
		w.endAtRandom(t, i)
	}
	outcome, message := w.send(c, w.now)
	require.NotEmpty(t, message)
	require.False(t, final && outcome == audit.Accepted, "a rollout that has ended accepts no verbs: %s", c.Verb)
	if c.Verb == rollout.VerbApprove && outcome == audit.Accepted {
		require.True(t, approvable || done, "only a step that is done is approved")
		gate := cmp.Or(c.Gate, visit)
		require.False(t, gates[gate], "a gate opens once")
		gates[gate] = true
	}
	last := w.m.Status().History
	require.Equal(t, message, last[len(last)-1].Message, "accepted or refused, it is in the history")
}

// failure simulates a failure that the action can have, and reports whether the workload no longer belongs to the
// rollout.
func (w *world) failure(t *rapid.T, i int, a Action) bool {
	kinds := []failure.Kind{failure.Unreachable, failure.Forbidden}
	switch a.Kind {
	case ActBegin:
		if w.claimed {
			return false
		}
		kinds = append(kinds, failure.Refused, failure.NotFound)
	case ActMove:
		kinds = append(kinds, failure.WorkloadFailed, failure.Drift, failure.Gone, failure.ClaimLost)
	case ActRoute:
		kinds = append(kinds, failure.Drift, failure.Refused, failure.Claimed)
	case ActFinish:
		kinds = append(kinds, failure.WorkloadFailed, failure.Drift, failure.Gone, failure.ClaimLost)
	case ActComplete, ActAskHolder, ActJoinTraffic, ActLeaveTraffic:
		return false
	}
	kind := rapid.SampledFrom(kinds).Draw(t, fmt.Sprint("kind", i))
	w.fail(kind, "trouble with "+string(a.Kind))
	lost := kind == failure.Gone || kind == failure.ClaimLost
	if lost {
		w.workloadLost = true
	}
	return lost
}

// bringToEnd does what an operator does to end the rollout.
func (w *world) bringToEnd(t *rapid.T) {
	if r := w.m.running; r != nil {
		w.do(*r)
	}
	for range 30 {
		a := w.drive()
		if a.Kind == ActClose || a.Kind == ActSupersede {
			return
		}
		tr := w.m.s.Trouble
		switch {
		case tr != nil && (tr.Kind == failure.Gone || tr.Kind == failure.ClaimLost):
			w.send(rollout.Command{Verb: rollout.VerbStop}, w.now)
		case tr != nil:
			w.send(rollout.Command{Verb: rollout.VerbRetry}, w.now)
		default:
			if outcome, _ := w.send(rollout.Command{Verb: rollout.VerbStop}, w.now); outcome == audit.Refused {
				w.now = w.now.Add(time.Hour)
			}
		}
	}
	require.Fail(t, "it cannot be ended", "%s: %v", w.m.Status().Reason, w.actions)
}

func (w *world) checkEnd(t *rapid.T, lost bool) {
	s := w.m.Status()
	require.NotNil(t, s.FinishedAt)
	require.Nil(t, s.WaitingFor)
	require.Equal(t, -1, s.NextStepIndex)
	require.True(t, s.Phase.Final() || s.Phase == rollout.PhaseFailed)
	if lost {
		return
	}
	require.False(t, w.claimed, "the claim is released: %v", w.actions)
	switch {
	case s.Frozen:
		require.Equal(t, rollout.PhaseCancelled, s.Phase)
	case s.Phase == rollout.PhaseHealthy:
		require.Equal(t, w.size, w.updated, "%v", w.actions)
		require.False(t, w.pinned || w.services || w.share != 0, "%v", w.actions)
	case s.Phase == rollout.PhaseRolledBack:
		require.Zero(t, w.updated, "%v", w.actions)
		require.False(t, w.pinned || w.services || w.share != 0, "%v", w.actions)
	}
}
