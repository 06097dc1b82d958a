package machine

import (
	"time"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// rollback rolls back to stable, through the steps where the policy demands it. A rollout that is finishing to the new
// version can still be reversed; one whose workload is already being released cannot.
func (m *Machine) rollback(now time.Time) (done, refusal string) {
	if t := m.s.Trouble; t != nil && workloadLost(t.Kind) {
		return "", "there is nothing to roll back: " + m.awaitOperator().reason
	}
	if done, refusal = m.refuseRollback(); done != "" || refusal != "" {
		return done, refusal
	}
	m.rollBack(now)
	if m.s.Stage == stageRollback {
		return "it rolls back to stable through the steps", ""
	}
	return "it rolls back to stable, traffic first", ""
}

// releasing reports whether the last move of finalising is under way, after which nothing of the release is left on the
// workload.
func (m *Machine) releasing() bool {
	return m.s.Stage == stageFinal && m.s.Status.FinalisingStep == string(rollout.FinalRelease)
}

// refuseRollback returns why the rollout cannot be rolled back now, or what is done instead. If both are "", it can.
func (m *Machine) refuseRollback() (done, refusal string) {
	switch back := m.s.Ending == rollout.EndRollback || m.s.Ending == rollout.EndDeleted; {
	case back && m.s.Trouble != nil:
		return "", "it is rolling back already and has failed: retry continues it, stop to frozen leaves it unchanged"
	case back:
		return "", "it is rolling back already: wait until it has ended"
	case m.s.Ending == rollout.EndDetached:
		return "", "it is detaching from the workload: start a release of the earlier version when that is done"
	case m.s.Ending == rollout.EndFrozen:
		return "", "it is being frozen: roll it back when that is done"
	case m.s.Stage == stageAdopt && m.s.Trouble != nil:
		return "", "what an earlier release left cannot be rolled back: " + m.awaitOperator().reason
	case m.s.Stage == stageAdopt: // the remains go to stable anyway, and nothing else is done then
		m.s.Ending = rollout.EndRollback
		return "what an earlier release left is rolled back, then the rollout ends", ""
	case m.releasing():
		return "", "the workload is being released already: start a release of the earlier version instead"
	}
	return "", ""
}

// rollBack reverses the rollout: through the steps where the policy demands it, at once otherwise.
func (m *Machine) rollBack(now time.Time) {
	inBatches := m.setup.Spec.Policy.RollbackInBatches && m.setup.Spec.Strategy.Style == strategy.StylePartition &&
		!m.onlyNumbers()
	if m.s.Stage == stageSteps && inBatches && m.s.MoveStarted && (m.s.PodsUnsettled || m.s.Status.CanaryReplicas > 0) {
		m.s.clearForTurn()
		m.s.Ending, m.s.Stage, m.s.CountPending, m.s.Promoted = rollout.EndRollback, stageRollback, true, false
		m.goToStep(1, now)
		return
	}
	m.startFinalising(rollout.EndRollback)
}

// countNewPods settles what a step left half done, so that the number of pods to roll back is known.
func (m *Machine) countNewPods() (Action, bool) {
	if m.s.PodsUnsettled {
		return m.halt("they are rolled back in batches"), true
	}
	m.s.CountPending, m.s.RollbackFrom = false, m.s.Status.CanaryReplicas
	if m.s.RollbackFrom == 0 {
		m.startFinalising(rollout.EndRollback)
	}
	return Action{}, false
}
