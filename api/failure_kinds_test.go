package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
)

// A failure of the release ends the task. A failure of the system interrupts it, and a resume continues it.
func TestTask_EndsOrIsInterrupted_ByKindOfFailure(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("kinds", "111 1")
	for kind, want := range map[failure.Kind]plan.TaskState{
		failure.Refused: plan.TaskFailed, failure.WorkloadFailed: plan.TaskFailed, failure.Claimed: plan.TaskFailed,
		failure.ClaimLost: plan.TaskFailed, failure.NotFound: plan.TaskFailed, failure.Gone: plan.TaskFailed,
		failure.Unreachable: plan.TaskInterrupted, failure.Forbidden: plan.TaskInterrupted,
	} {
		e.party.fail("111", kind)
		id := e.execute("kinds")
		task := e.waitState(id, want)
		require.Contains(t, task.Reason, "111 cannot: "+string(kind))
		e.party.fail("111", "")
		if want == plan.TaskInterrupted {
			e.call("POST", "/api/v1/tasks/"+id+"/resume", "{}", jsonBody).is(http.StatusOK, "it is interrupted")
			e.waitState(id, plan.TaskSucceeded)
		}
		e.waitClosed(id)
	}
}

// A failure of the release holds the rollout until an operator decides, and a stop ends it. A failure of the system is
// retried by itself.
func TestRollout_IsHeldOrRetried_ByKindOfFailure(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	for _, c := range []struct {
		kind  failure.Kind
		waits rollout.WaitKind
		stop  string
		ends  rollout.Phase
	}{
		{failure.Refused, rollout.WaitResume, `{"to":"stable"}`, rollout.PhaseRolledBack},
		{failure.WorkloadFailed, rollout.WaitResume, `{"to":"stable"}`, rollout.PhaseRolledBack},
		{failure.NotFound, rollout.WaitResume, `{"to":"stable"}`, rollout.PhaseRolledBack},
		{failure.Drift, rollout.WaitDrift, `{"to":"stable"}`, rollout.PhaseRolledBack},
		{failure.Gone, rollout.WaitResume, `{"to":"stable"}`, rollout.PhaseCancelled},
		{failure.ClaimLost, rollout.WaitResume, `{"to":"frozen"}`, rollout.PhaseFailed},
		{failure.Unreachable, rollout.WaitApproval, `{"to":"stable"}`, rollout.PhaseRolledBack},
		{failure.Forbidden, rollout.WaitApproval, `{"to":"stable"}`, rollout.PhaseRolledBack},
	} {
		e.rollouts.failOnce(c.kind)
		started := e.startRollout("x:2", "")
		e.waitRollout(string(c.kind), waitsFor(c.waits))
		e.call("POST", rolloutPath+"/stop", c.stop, jsonBody).is(http.StatusOK, string(c.kind))
		e.waitRecord(started.Record, c.ends)
	}
}
