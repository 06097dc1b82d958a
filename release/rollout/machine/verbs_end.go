package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// stop ends the rollout at the requested target: stable (the default), new, or frozen.
func (m *Machine) stop(c rollout.Command, now time.Time) (done, refusal string) {
	if t := m.s.Trouble; t != nil {
		switch t.Kind {
		case failure.Gone:
			m.startFinalising(rollout.EndDeleted)
			return "the traffic is restored, then the rollout ends", ""
		case failure.ClaimLost:
			return m.abandon(c, t)
		}
	}
	switch c.To {
	case "", rollout.StopToStable:
		return m.stopToStable()
	case rollout.StopToNew:
		return m.stopToNew()
	case rollout.StopToFrozen:
		return m.stopToFrozen()
	default:
		return "", fmt.Sprintf("to is %q: it must be stable, new or frozen", c.To)
	}
}

// abandon ends a rollout whose workload another client has claimed: nothing may be written to it any more.
func (m *Machine) abandon(c rollout.Command, t *trouble) (done, refusal string) {
	if c.To == rollout.StopToStable || c.To == rollout.StopToNew {
		return "", fmt.Sprintf("%s: it cannot be stopped to %s, since this release has lost the workload; stop to "+
			"frozen abandons it", t.Message, c.To)
	}
	m.s.LastMessage, m.s.Ending = t.Message, rollout.EndFrozen
	m.s.clearForTurn()
	m.close(rollout.PhaseFailed)
	return "it is abandoned: " + t.Message, ""
}

func (m *Machine) stopToStable() (done, refusal string) {
	if m.s.Stage == stageRollback {
		m.startFinalising(rollout.EndRollback)
		return "it rolls back to stable at once, skipping the remaining steps", ""
	}
	if done, refusal = m.refuseRollback(); done != "" || refusal != "" {
		return done, refusal
	}
	m.startFinalising(rollout.EndRollback)
	return "it rolls back to stable, traffic first", ""
}

func (m *Machine) stopToNew() (done, refusal string) {
	switch {
	case m.s.Ending.Side() == rollout.SideNew:
		return "", "it is finishing to the new version already"
	case m.s.Ending != rollout.EndNone:
		return "", "it is rolling back: it can no longer be finished to the new version"
	case m.s.Stage == stageAdopt || m.setup.RollBackFrozen:
		return "", "what an earlier release left is being rolled back: wait for the first step"
	}
	m.startFinalising(rollout.EndNew)
	return "it is finished to the new version now", ""
}

// stopToFrozen leaves the split in place. Half way through finalising there is no split, so only a failed finalising
// can be frozen.
func (m *Machine) stopToFrozen() (done, refusal string) {
	if m.s.Superseding {
		return "", "a newer release replaces it: it cannot be frozen, retry rolls it back"
	}
	finalising := m.s.Stage == stageFinal || m.s.Stage == stageAdopt
	if finalising && (m.s.Trouble == nil || m.s.Ending == rollout.EndFrozen) {
		return "", "it is being finalised: it cannot be frozen now, wait until it has ended"
	}
	done = "the split stays in place until the next release of the workload, or a rollback, removes it"
	switch {
	case m.s.Adopted != nil:
		done = "what an earlier release left stays in place until the next release of the workload, or a rollback, " +
			"removes it"
	case m.untouched():
		done = "it has changed nothing yet: its claim is released, then it ends"
	}
	m.startFinalising(rollout.EndFrozen)
	return done, ""
}

// supersede gives way to a newer release of the same workload. It rolls back to stable first.
func (m *Machine) supersede() (done, refusal string) {
	t := m.s.Trouble
	switch {
	case m.s.Superseding:
		return "", "another release replaces it already: wait until that one has begun"
	case t != nil && workloadLost(t.Kind):
		return "", "it cannot roll back to stable: " + m.awaitOperator().reason
	case m.s.Ending == rollout.EndFrozen || m.s.Ending == rollout.EndDeleted || m.s.Ending == rollout.EndDetached,
		m.s.Ending.Side() == rollout.SideNew && (!m.declared() || m.releasing()):
		return "", "it is being finalised: start the release again when it has ended"
	case m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen && m.s.Ending == rollout.EndNone && !m.onlyNumbers():
		return "", "a blue-green release cannot be superseded: roll it back first, then start the newer one"
	case t != nil && (m.s.Ending == rollout.EndRollback || m.s.Stage == stageAdopt):
		return "", "it cannot roll back to stable: " + m.awaitOperator().reason
	}
	m.s.Superseding = true
	switch none := m.s.Ending == rollout.EndNone; {
	case none && m.s.Stage == stageAdopt:
		m.s.Ending = rollout.EndRollback
	case none, m.s.Stage == stageRollback, m.s.Ending.Side() == rollout.SideNew:
		m.startFinalising(rollout.EndRollback)
	}
	return "it rolls back to stable, traffic first; then the newer release begins", ""
}
