package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// stop ends the rollout where it is told to: back at stable (the default), at the new version, or frozen.
func (m *Machine) stop(c rollout.Command, now time.Time) (done, refusal string) {
	if t := m.s.Trouble; t != nil {
		switch t.Kind {
		case failure.Gone:
			m.finish(rollout.EndGone)
			return "the traffic is given back, then it ends", ""
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
		return "", fmt.Sprintf("to is %q: it is stable, new or frozen", c.To)
	}
}

// abandon ends a rollout whose workload somebody else has taken: nothing of it may be written any more.
func (m *Machine) abandon(c rollout.Command, t *trouble) (done, refusal string) {
	if c.To == rollout.StopToStable || c.To == rollout.StopToNew {
		return "", fmt.Sprintf("%s: it cannot be brought to %s, since the workload is somebody else's now; stop to frozen abandons it", t.Message,
			c.To)
	}
	m.s.Note, m.s.Ending = t.Message, rollout.EndFrozen
	m.turn()
	m.close(rollout.PhaseFailed)
	return "it is abandoned: " + t.Message, ""
}

func (m *Machine) stopToStable() (done, refusal string) {
	if m.s.Stage == stageBack {
		m.finish(rollout.EndRollback)
		return "it goes back to stable at once, without the steps that are left", ""
	}
	if done, refusal = m.noWayBack(); done != "" || refusal != "" {
		return done, refusal
	}
	m.finish(rollout.EndRollback)
	return "it goes back to stable, traffic first", ""
}

// noWayBack says why it cannot turn round to stable now, or what is done instead; nothing: it can.
func (m *Machine) noWayBack() (done, refusal string) {
	switch back := m.s.Ending == rollout.EndRollback || m.s.Ending == rollout.EndGone; {
	case back && m.s.Trouble != nil:
		return "", "it is on its way back already and has failed: retry continues it, stop to frozen leaves it as it is"
	case back:
		return "", "it is on its way back already: wait until it is over"
	case m.s.Ending == rollout.EndDetached:
		return "", "it is letting go of the workload: start a release of the earlier version when that is over"
	case m.s.Ending == rollout.EndFrozen:
		return "", "it is being frozen: roll it back when that is over"
	case m.s.Stage == stageAdopt && m.s.Trouble != nil:
		return "", "what an earlier release left cannot be brought home: " + m.held().why
	case m.s.Stage == stageAdopt: // that goes home to stable anyway, and is all that is done then
		m.s.Ending = rollout.EndRollback
		return "what an earlier release left is brought home, then it ends", ""
	case m.releasing():
		return "", "it is all but over, the workload is being released: start a release of the earlier version instead"
	}
	return "", ""
}

func (m *Machine) stopToNew() (done, refusal string) {
	switch {
	case m.s.Ending.Side() == rollout.SideNew:
		return "", "it is finishing to the new version already"
	case m.s.Ending != rollout.EndNone:
		return "", "it is on its way back: it cannot be finished to the new version any more"
	case m.s.Stage == stageAdopt || m.setup.BringHome:
		return "", "what an earlier release left is being brought home: wait for the first step"
	}
	m.finish(rollout.EndNew)
	return "it is finished to the new version now", ""
}

// stopToFrozen leaves the split as it is. Half way through finalising there is none, so that only a failed finalising may be left.
func (m *Machine) stopToFrozen() (done, refusal string) {
	if m.s.Superseding {
		return "", "a newer release takes its place: it cannot be frozen, retry brings it home"
	}
	finalising := m.s.Stage == stageFinal || m.s.Stage == stageAdopt
	if finalising && (m.s.Trouble == nil || m.s.Ending == rollout.EndFrozen) {
		return "", "it is being brought to its end: it cannot be frozen now, wait until that is over"
	}
	done = "the split stays as it is: the next release of the workload, or a rollback, brings it home"
	switch {
	case m.s.Adopted != nil:
		done = "what an earlier release left stays as it is now: the next release of the workload, or a rollback, brings it home"
	case m.untouched() && m.leg == nil: // what a leg has done is not known yet
		done = "it has changed nothing yet: what it holds is given back, then it ends"
	}
	m.finish(rollout.EndFrozen)
	return done, ""
}

// rollback goes back to stable: through the steps where the policy says so. What has begun to finish to the new version can still turn
// round; only what is being released already cannot.
func (m *Machine) rollback(now time.Time) (done, refusal string) {
	if t := m.s.Trouble; t != nil && lost(t.Kind) {
		return "", "there is nothing to roll back: " + m.held().why
	}
	if done, refusal = m.noWayBack(); done != "" || refusal != "" {
		return done, refusal
	}
	m.rollBack(now)
	if m.s.Stage == stageBack {
		return "it goes back to stable through the steps", ""
	}
	return "it goes back to stable, traffic first", ""
}

// releasing says whether the last move of finalising is under way, after which nothing of the release is left on the workload.
func (m *Machine) releasing() bool {
	return m.s.Stage == stageFinal && m.s.Status.FinalisingStep == string(rollout.FinalRelease)
}

// supersede gives way to a newer release of the same workload: back to stable first.
func (m *Machine) supersede() (done, refusal string) {
	t := m.s.Trouble
	switch {
	case m.s.Superseding:
		return "", "another release takes its place already: wait until that one has begun"
	case t != nil && lost(t.Kind):
		return "", "it cannot go back to stable: " + m.held().why
	case m.s.Ending == rollout.EndFrozen || m.s.Ending == rollout.EndGone || m.s.Ending == rollout.EndDetached,
		m.s.Ending.Side() == rollout.SideNew && (!m.declared() || m.releasing()):
		return "", "it is being brought to its end: start the release again when that is over"
	case m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen && m.s.Ending == rollout.EndNone:
		return "", "a blue-green release cannot be superseded: roll it back first, then start the newer one"
	case t != nil && (m.s.Ending == rollout.EndRollback || m.s.Stage == stageAdopt):
		return "", "it cannot go back to stable: " + m.held().why
	}
	m.s.Superseding = true
	switch none := m.s.Ending == rollout.EndNone; {
	case none && m.s.Stage == stageAdopt:
		m.s.Ending = rollout.EndRollback
	case none, m.s.Stage == stageBack, m.s.Ending.Side() == rollout.SideNew:
		m.finish(rollout.EndRollback)
	}
	return "it goes back to stable, traffic first; then the newer release begins", ""
}
