package workflows

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
)

// nights is a rollout of three steps whose policy lets steps begin between 22:00 and 23:00 UTC only. Tests begin at
// 09:00.
func nights(p *fakeParty, pauses ...int64) RolloutInput {
	p.RegisterActivityWithOptions(func(_ context.Context, q window.Question) (window.Answer, error) {
		if err := p.called("window?"); err != nil {
			return window.Answer{}, err
		}
		return window.NextOpening(q)
	}, activity.RegisterOptions{Name: window.ActivityNextOpening})
	in := rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, pauses[0]), stepOf("50%", -1, pauses[1]),
		stepOf("100%", -1, 0))
	in.Spec.Policy.Windows = []window.Window{{Start: "2026-02-01T22:00:00Z", Duration: "1h", RRule: "FREQ=DAILY"}}
	return in
}

func TestRolloutStartsStepsWithinWindows(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := nights(p, -1, 0)
	p.at(10*time.Hour, func() {
		s := p.status()
		require.Empty(t, p.calls[1:], "nothing is claimed, and no pod has moved")
		require.Equal(t, rollout.WaitWindow, s.WaitingFor.Kind)
		require.Equal(t, "2026-03-01T22:00:00Z", s.WaitingFor.Until.UTC().Format(time.RFC3339))
		require.Contains(t, s.Reason, "before the first step: nothing begins: no release window is open: the next "+
			"one begins at 2026-03-01T22:00:00Z")
	})
	// Approved at 08:00: the next step waits for the night, and the same approval sent again does not override the
	// window.
	var gate string
	p.at(22*time.Hour, func() { gate = p.status().WaitingFor.Gate })
	var first, again VerbResponse
	p.at(23*time.Hour, func() {
		request := RolloutVerbRequest{VerbRequest: VerbRequest{Actor: "bob", Reason: "fine"}, Gate: gate}
		p.updateNow(string(rollout.VerbApprove), "1", request, &first)
	})
	p.at(24*time.Hour, func() {
		s := p.status()
		require.Equal(t, rollout.WaitWindow, s.WaitingFor.Kind)
		require.Equal(t, rollout.StateReady, s.CurrentStepState, "the step is done and approved")
		require.NotEqual(t, gate, s.WaitingFor.Gate)
		request := RolloutVerbRequest{VerbRequest: VerbRequest{Actor: "bob", Reason: "fine"}, Gate: gate}
		p.updateNow(string(rollout.VerbApprove), "2", request, &again)
	})
	s := p.run(in)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, audit.Accepted, first.Outcome, first.Message)
	require.Equal(t, audit.Refused, again.Outcome, again.Message)
	require.Equal(t, []string{"window?", "window?", "begin", "move 20%", "window?", "window?", "move 50%", "move 100%",
		"ResumeAndRelease new", "record"}, p.calls,
		"it asks before each start unless the window is known to be open")
	require.Equal(t, "2026-03-02T22:00:00Z", s.Steps[1].StartedAt.UTC().Format(time.RFC3339))
}

func TestRollout_RunsNoWindowActivity_WithoutTimes(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	// the activity is not even registered
	s := p.run(rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, 0), stepOf("100%", -1, 0)))
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

func TestRolloutApproveOverridesAWindow(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := nights(p, 0, 0)
	var noGate, noReason, approved VerbResponse
	ask := func(key, reason string, gate bool, answer *VerbResponse) func() {
		return func() {
			request := RolloutVerbRequest{VerbRequest: VerbRequest{Actor: "bob", Reason: reason}, Step: 1}
			if gate {
				request.Gate = p.status().WaitingFor.Gate
			}
			p.updateNow(string(rollout.VerbApprove), key, request, answer)
		}
	}
	p.at(time.Hour, ask("1", "hotfix", false, &noGate))
	p.at(time.Hour+time.Minute, ask("2", "", true, &noReason))
	p.at(2*time.Hour, ask("3", "hotfix", true, &approved))
	p.at(3*time.Hour, func() {
		require.Equal(t, rollout.WaitWindow, p.status().WaitingFor.Kind,
			"the approval is for one step: the next one waits again")
		require.Equal(t, 1, p.count("move 20%"))
		require.Zero(t, p.count("move 50%"))
	})
	s := p.run(in)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Contains(t, noGate.Message, "names its gate")
	require.Contains(t, noReason.Message, "needs a reason")
	require.Equal(t, audit.Refused, noReason.Outcome)
	require.Equal(t, audit.Accepted, approved.Outcome, approved.Message)
	require.Equal(t, "hotfix", s.History[3].Reason)
	require.Equal(t, "2026-03-01T22:00:00Z", s.Steps[1].StartedAt.UTC().Format(time.RFC3339))
}

func TestRolloutVerbsWhileItWaitsForAWindow(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		after  time.Duration
		verb   rollout.Verb
		to     rollout.StopTo
		phase  rollout.Phase
		calls  []string
	}{
		"stopped before it begins": {"nothing was claimed: nothing has to be restored", time.Hour, rollout.VerbStop, "",
			rollout.PhaseRolledBack, []string{"window?", "record"}},
		"rolled back between steps": {"a rollback never waits", 15 * time.Hour, rollout.VerbRollback, "",
			rollout.PhaseRolledBack,
			[]string{"window?", "window?", "begin", "move 20%", "window?", "ResumeAndRelease stable", "record"}},
		"frozen between steps": {"nor does a stop", 15 * time.Hour, rollout.VerbStop, rollout.StopToFrozen,
			rollout.PhaseCancelled,
			[]string{"window?", "window?", "begin", "move 20%", "window?", "Freeze", "record"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParty(t, 10)
			in := nights(p, 3600, 0)
			p.send(tc.after, tc.verb, RolloutVerbRequest{To: tc.to})
			p.at(tc.after-time.Minute, func() { require.Equal(t, rollout.WaitWindow, p.status().WaitingFor.Kind) })
			s := p.run(in)
			require.Equal(t, tc.phase, s.Phase, tc.reason)
			require.Equal(t, tc.calls, p.calls, tc.reason)
		})
	}
}

func TestRolloutIsPausedWhileItWaitsForAWindow(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := nights(p, 0, 0)
	p.send(time.Hour, rollout.VerbPause, RolloutVerbRequest{})
	p.at(14*time.Hour, func() {
		require.Equal(t, rollout.WaitResume, p.status().WaitingFor.Kind, "its window has closed meanwhile")
		require.Zero(t, p.count("begin"), "a paused rollout does not begin")
		p.SignalWorkflow(string(rollout.VerbResume), nil)
	})
	p.at(15*time.Hour, func() { require.Equal(t, rollout.WaitWindow, p.status().WaitingFor.Kind) })
	s := p.run(in)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, "2026-03-02", s.Steps[2].StartedAt.UTC().Format(time.DateOnly))
}

func TestRolloutJumpWaitsForAWindow(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := nights(p, -1, -1)
	p.send(20*time.Hour, rollout.VerbJump, RolloutVerbRequest{ToStep: 2})
	p.at(21*time.Hour, func() {
		s := p.status()
		require.Equal(t, rollout.WaitWindow, s.WaitingFor.Kind)
		require.Equal(t, 2, s.CurrentStepIndex)
		require.Zero(t, p.count("move 50%"))
	})
	p.at(38*time.Hour, func() {
		require.Equal(t, 1, p.count("move 50%"))
		p.SignalWorkflow(string(rollout.VerbStop), RolloutVerbRequest{To: rollout.StopToNew})
	})
	require.Equal(t, rollout.PhaseHealthy, p.run(in).Phase)
}

// A change by another client while a step waits for its window is checked, as at any pause; the approval stays valid.
func TestRolloutChecksDrift_WhileWaitingForAWindow(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := nights(p, -1, 0)
	p.at(20*time.Hour, func() { p.SignalWorkflow(string(rollout.VerbApprove), nil) })
	p.at(21*time.Hour, func() {
		p.SignalWorkflow(rollout.SignalObserved, rollout.Observed{Message: "another client has changed it"})
	})
	p.at(22*time.Hour, func() {
		require.Equal(t, 1, p.count("look"))
		require.Equal(t, rollout.WaitWindow, p.status().WaitingFor.Kind)
	})
	s := p.run(in)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, "2026-03-02T22:00:00Z", s.Steps[1].StartedAt.UTC().Format(time.RFC3339))
}

func TestRolloutContinuesAsNewWhileItWaitsForAWindow(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := nights(p, 0, 0)
	p.at(time.Hour, func() { p.SetContinueAsNewSuggested(true) })
	p.at(2*time.Hour, func() { p.SignalWorkflow(string(rollout.VerbPromote), RolloutVerbRequest{Step: 7}) })
	p.ExecuteWorkflow(TypeRollout, in)
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, p.GetWorkflowError(), &again)
	var next RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))

	q := newParty(t, 10)
	nights(q, 0, 0)
	q.SetStartTime(time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC))
	q.at(time.Hour, func() {
		require.Equal(t, "2026-03-01T09:00:00Z", q.status().WaitingFor.Since.UTC().Format(time.RFC3339),
			"waiting since the first run")
		require.Empty(t, q.calls, "the earlier answer is still valid")
	})
	s := q.run(next)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, []string{"window?", "begin", "move 20%", "move 50%", "move 100%", "ResumeAndRelease new",
		"record"}, q.calls)
}
