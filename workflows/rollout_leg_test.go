package workflows

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// A worker that dies while its leg is being cancelled gets no further attempt: the completed actions are in the last
// heartbeat.
func TestLegEnd_KeepsHeartbeatParts_WhenWorkerDiesWhileCancelled(t *testing.T) {
	t.Parallel()
	parts := []machine.Part{{}, {}}
	progress := machine.LegProgress{Parts: parts, PartNumber: 3, Action: "2 move",
		Progress: workload.Progress{ElapsedSeconds: 70}}
	end := new(rolloutRun).legEnd(&runningAction{stopped: true, err: temporal.NewHeartbeatTimeoutError(progress)})
	require.Len(t, end.Parts, len(parts))
	require.True(t, end.Unknown, "more may have been done after that heartbeat")
	require.NotNil(t, end.Failure)
	require.EqualValues(t, 70, end.SpentSeconds, "and what the action after them has used of its deadline")
	require.Equal(t, "2 move", end.Action)
}

// The server doesn't repeat an attempt of an activity that is to stop: an attempt that only waits then ends it.
func TestLegEnd_IsStopped_WhenWaitingAttemptIsNotRepeated(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal([]machine.Part{{}, {}})
	require.NoError(t, err)
	waits := temporal.NewApplicationErrorWithOptions("3 of 5 pods are ready", string(failure.NotReady),
		temporal.ApplicationErrorOptions{Details: []any{failure.Details{Leg: raw, SpentSeconds: 70}}})
	end := new(rolloutRun).legEnd(&runningAction{stopped: true, err: waits})
	require.True(t, end.Stopped)
	require.Nil(t, end.Failure)
	require.Len(t, end.Parts, 2)
	require.EqualValues(t, 70, end.SpentSeconds)

	failed := temporal.NewNonRetryableApplicationError("no pod became ready", string(failure.WorkloadFailed), nil)
	end = new(rolloutRun).legEnd(&runningAction{stopped: true, err: failed})
	require.False(t, end.Stopped, "a failure of the release counts, also if it comes during a stop")
	require.NotNil(t, end.Failure)
}

// A leg whose attempt ends without a failure of its own reports nothing about what it has done.
func TestLegEnd_IsUnknown_WhenAttemptPanics(t *testing.T) {
	t.Parallel()
	for _, err := range []error{temporal.NewApplicationError("reset", ""), errors.New("panic"),
		temporal.NewApplicationError("no answer", "wrapError")} {
		require.True(t, new(rolloutRun).legEnd(&runningAction{err: err}).Unknown, "%v", err)
	}
	known := temporal.NewNonRetryableApplicationError("no pod became ready", string(failure.WorkloadFailed), nil)
	require.False(t, new(rolloutRun).legEnd(&runningAction{err: known}).Unknown)
}

// retried is an error after which the server repeats the activity half an hour later.
func retried(message string) error {
	return temporal.NewApplicationErrorWithOptions(message, "",
		temporal.ApplicationErrorOptions{NextRetryDelay: 30 * time.Minute})
}

// A leg that hands over has its results in the history: a command between two attempts of the next leg applies to where
// the rollout is, and nothing is repeated.
func TestRollback_ReversesFromWhereRolloutIs_BetweenTwoAttempts(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	waits := temporal.NewApplicationErrorWithOptions("3 of 5 pods", string(failure.NotReady),
		temporal.ApplicationErrorOptions{NextRetryDelay: 30 * time.Minute})
	p.fail["move 50%"] = []error{waits, waits}
	in := rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, 0), stepOf("50%", 50, 0), stepOf("100%", -1, 0))
	in.Spec.Policy.RollbackInBatches = true
	answer := p.ask(10*time.Minute, rollout.VerbRollback, RolloutVerbRequest{Step: 2})
	s := p.run(in)
	require.Equal(t, audit.Accepted, answer.Outcome, answer.Message)
	require.Contains(t, answer.Message, "through the steps")
	require.Equal(t, []string{"begin", "PinStableService", "move 20%", "route 20%", "move 50%", "move 50%",
		"RouteTrafficToStable", "halt", "back 20%"}, p.calls[:9])
	require.Equal(t, rollout.PhaseRolledBack, s.Phase)
}

// A worker dies, and a command comes before another worker repeats the leg: Temporal's server answers the cancellation
// without the heartbeat. The leg is repeated forwards only.
func TestRollout_RepeatsLostLeg_ForwardsOnly(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.fail["move 100%"] = []error{retried("its worker died")}
	p.before = func(call string) {
		if call == "move 100%" {
			p.updated = 10
		}
	}
	paused := p.ask(10*time.Minute, rollout.VerbPause, RolloutVerbRequest{})
	p.send(time.Hour, rollout.VerbResume, RolloutVerbRequest{})
	s := p.run(rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, 0), stepOf("60%", 60, 0),
		stepOf("100%", -1, 0)))
	require.Equal(t, audit.Accepted, paused.Outcome, paused.Message)
	lost := slices.Index(p.calls, "move 100%")
	require.Positive(t, lost)
	for _, call := range []string{"PinStableService", "route 20%", "route 60%"} {
		require.NotContains(t, p.calls[lost:], call, "no stable pod is left to route to")
	}
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

// What asks the home cluster is stopped for a command, however long that is unreachable.
func TestCommand_DoesNotWaitForHomeCluster(t *testing.T) {
	t.Parallel()
	for _, question := range []string{"window?", "askHolder"} {
		p := newParty(t, 10)
		in := nights(p, 0, 0)
		if question == "askHolder" {
			in.Spec.Policy.Windows = nil
			p.fail["begin"] = []error{failed(failure.Claimed, "order is claimed by task/x",
				failure.Details{Holder: "task/x@r"})}
		}
		p.fail[question] = []error{retried("the home cluster is unreachable")}
		answer := p.ask(time.Minute, rollout.VerbRollback, RolloutVerbRequest{})
		p.at(2*time.Minute, func() { require.NotNil(t, p.recorded, "%s: the rollout has ended by then", question) })
		s := p.run(in)
		require.Equal(t, audit.Accepted, answer.Outcome, "%s: %s", question, answer.Message)
		require.Equal(t, rollout.PhaseRolledBack, s.Phase, question)
		require.Equal(t, 1, p.count(question), "it is not asked again")
		require.Equal(t, "record", p.calls[len(p.calls)-1])
		require.Less(t, s.FinishedAt.Sub(in.CreatedAt), 10*time.Minute, "%s: at once", question)
	}
}
