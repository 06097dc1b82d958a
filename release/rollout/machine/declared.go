package machine

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// This file is about releases that a Rollout object asks for: the workload's own pod template is the command, and so is what the object says.

// viaObject is the front door of what is asked by a Rollout object or by its workload.
const viaObject = "kubectl"

func (m *Machine) declared() bool { return m.setup.Spec.Change.Declared != nil }

// asksFirst says whether somebody has to approve the release before anything is done.
func (m *Machine) asksFirst() bool {
	return m.setup.Confirm != "" && !m.s.Confirmed && m.s.Ending == rollout.EndNone && m.s.Stage == stageBegin
}

// batch is how the pods of a step are numbered.
func (m *Machine) batch(step int) *rollout.Batch {
	return &rollout.Batch{RolloutID: m.setup.Spec.RolloutID, Step: step}
}

// askFirst waits for the approval of the release as a whole. No pod has moved.
func (m *Machine) askFirst() Action {
	m.s.Status.CurrentStepState = rollout.StatePaused
	return Action{Kind: ActRest, waits: rollout.WaitApproval, Summary: "approval of the release",
		why: m.setup.Confirm + ": it waits for somebody to approve it; no pod has moved"}
}

// isRedeclared takes the edit of a workload's pod template for what it is: not somebody else's interference, but the next command, which
// whoever watches the object is about to send.
func (m *Machine) isRedeclared(a Action, f Failure) bool {
	if f.Kind != failure.Drift || !m.declared() || a.Kind != ActMove && a.Kind != ActFinish {
		return false
	}
	m.s.PodsUnsettled = m.s.PodsUnsettled && a.Kind != ActMove // a Move that fails has brought the workload to rest before
	if a.epoch == m.epoch {
		m.s.Redeclared = f.Message
	}
	return true
}

// redeclared waits for what the edit of the pod template asks for. A blue-green keeps both versions and has no room for a third.
func (m *Machine) redeclared() Action {
	why := fmt.Sprintf("%s: %s: nothing moves until it is clear what that asks for", m.place(), m.s.Redeclared)
	if m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen {
		why = fmt.Sprintf("%s: %s: a blue-green release has no room for a third version, so nothing moves. Set the template back to the version "+
			"that is being released, and it goes on, or to the stable one, and it rolls back", m.place(), m.s.Redeclared)
	}
	return Action{Kind: ActRest, waits: rollout.WaitDrift, why: why}
}

// lookAtDeclared goes on as if the workload declared what is released, and looks whether it does.
func (m *Machine) lookAtDeclared() {
	m.s.Redeclared = ""
	if m.inSteps() && m.s.Moved {
		m.s.Check = checkLook
	}
}

// detach lets go of the workload: what was borrowed is given back at once, and its own controller goes on with the template that stands.
func (m *Machine) detach(c rollout.Command) (done, refusal string) {
	if t := m.s.Trouble; t != nil {
		switch t.Kind {
		case failure.Gone:
			m.finish(rollout.EndGone)
			return "the traffic is given back, then it ends", ""
		case failure.ClaimLost:
			return m.abandon(c, t)
		}
	}
	switch {
	case m.s.Ending == rollout.EndDetached:
		m.s.Trouble = nil // what has failed is tried again
		return "it lets go already", ""
	case m.s.Ending == rollout.EndFrozen:
		return "", "it is being frozen: wait until that is over"
	case m.s.Stage == stageAdopt:
		m.s.Ending = rollout.EndRollback
		return "what an earlier release left is brought home, then it ends", ""
	}
	m.finish(rollout.EndDetached)
	return "it lets go: what it has borrowed is given back, and the workload's own controller goes on", ""
}

// Replan takes the strategy as the object has it now. Steps that ask for something else are made again from where the pods are: from the
// current step if it has as many of them, else from the first that does. It changes nothing, and notes nothing, when the strategy is as it was.
func (m *Machine) Replan(c rollout.Command, s strategy.Strategy, now time.Time) (audit.Outcome, string) {
	m.heard(c)
	if undo := m.setup.Spec.Undo; undo != nil && undo.WithoutSteps {
		return audit.Accepted, "it goes back without steps: the strategy as it is now holds from the next release on"
	}
	was := m.setup.Spec.Strategy
	s.Paused = was.Paused // who pauses says so by a command of its own
	if m.over() || reflect.DeepEqual(was, s) {
		return audit.Accepted, "the strategy is as it was"
	}
	return m.s.Log.Take(c.Entry(now), c, func(*audit.Entry) (done, refusal string) {
		switch {
		case len(s.Steps) != len(was.Steps):
			return "", fmt.Sprintf("the strategy has %d steps now, and had %d when the release began: the number stays", len(s.Steps), len(was.Steps))
		case s.Style != was.Style:
			return "", "the way in which pods are replaced cannot change in the middle of a release"
		case !reflect.DeepEqual(s.Routings, was.Routings) || s.TrafficRoutingRef != was.TrafficRoutingRef ||
			s.DisableGenerateCanaryService != was.DisableGenerateCanaryService:
			return "", "what routes to the workload cannot change in the middle of a release"
		}
		return m.replan(was, s, now), ""
	})
}

func (m *Machine) replan(was, s strategy.Strategy, now time.Time) (done string) {
	m.setup.Spec.Strategy, m.s.Strategy = s, &s
	for i, fresh := range stepStatuses(s.Steps) {
		before := m.s.Status.Steps[i]
		fresh.State, fresh.StartedAt, fresh.FinishedAt = before.State, before.StartedAt, before.FinishedAt
		m.s.Status.Steps[i] = fresh
	}
	if reflect.DeepEqual(was.Steps, s.Steps) {
		return "what the strategy says beside its steps has changed: it holds from now on"
	}
	if m.s.Stage != stageSteps || m.s.Ending != rollout.EndNone {
		return "the steps have changed: they hold from now on"
	}
	at := m.s.Status.CurrentStepIndex
	to := replanned(was.Steps[at-1].Replicas, s.Steps, at, m.s.Status.Replicas)
	paused, by := m.s.Status.Paused, m.s.PausedBy
	m.turn()
	m.s.Status.Paused, m.s.PausedBy = paused, by
	m.goToStep(to, now)
	m.s.Unopened = m.s.Unopened || to != at && m.keepsTimes()
	return fmt.Sprintf("the steps have changed: it goes on with step %d", to)
}

// replanned is the step, from 1, from which edited steps are made when so many pods were asked for: the current one if it asks for at least as
// many, else the first that does, else the last.
func replanned(had intstr.IntOrString, steps []strategy.Step, at int, size int32) int {
	enough := func(i int) bool { return strategy.Target(steps[i].Replicas, size) >= strategy.Target(had, size) }
	if enough(at - 1) {
		return at
	}
	for i := range steps {
		if enough(i) {
			return i + 1
		}
	}
	return len(steps)
}

// heard notes which generation and which state of the object a command was read from.
func (m *Machine) heard(c rollout.Command) {
	m.s.Generation, m.s.Answered = max(m.s.Generation, c.Generation), max(m.s.Answered, c.State)
}

// Object is the Rollout object that asked for the release; nil when there is none.
func (m *Machine) Object() *rollout.ObjectRef { return m.setup.Object }

// View is the release as its object shows it.
func (m *Machine) View() rollout.View {
	v := rollout.View{Status: m.s.Status, Ending: m.s.Ending, Gate: m.gate(), Generation: m.s.Generation, Answered: m.s.Answered,
		Began: m.setup.CreatedAt, PausedByObject: m.s.Status.Paused && m.s.PausedByObject}
	v.Status.History = nil
	if d := m.setup.Spec.Change.Declared; d != nil {
		v.Template = d.Template
	}
	if t := m.s.Trouble; t != nil && !m.over() {
		v.Stalled = t.Message
	} else if m.s.Redeclared != "" {
		v.Stalled, v.Redeclared = m.s.Redeclared, true
	} else if m.over() && m.s.Closing == rollout.PhaseFailed {
		v.Stalled = m.s.Note
	}
	v.Superseding = m.s.Superseding
	if m.over() {
		m.viewEnd(&v)
	}
	return v
}

// viewEnd is what serves at the end. One that was turned round without a change of the workload's template is not to begin again by itself.
func (m *Machine) viewEnd(v *rollout.View) {
	switch m.s.Closing {
	case rollout.PhaseFailed:
	case rollout.PhaseHealthy:
		if m.setup.Spec.Undo != nil { // who declares once more what was undone has to have that approved
			v.RolledBack = m.s.StableTemplate
		}
	case rollout.PhaseRolledBack:
		if !m.s.Superseding && !m.s.SetBack {
			v.RolledBack = v.Template
		}
		v.Template = m.s.StableTemplate
	default:
		v.Template = ""
	}
}
