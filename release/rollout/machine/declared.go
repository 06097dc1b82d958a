package machine

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// This file is about releases that a Rollout object requests: the workload's own pod template and the object's fields
// are the commands.

// viaObject is the front door of requests by a Rollout object or its workload.
const viaObject = "kubectl"

func (m *Machine) declared() bool { return m.setup.Spec.Change.Declared != nil }

// needsConfirmation reports whether an approver has to confirm the release before anything is done.
func (m *Machine) needsConfirmation() bool {
	return m.setup.ConfirmReason != "" && !m.s.Confirmed && m.s.Ending == rollout.EndNone && m.s.Stage == stageBegin
}

// batch is the numbering of a step's pods.
func (m *Machine) batch(step int) *rollout.Batch {
	return &rollout.Batch{RolloutID: m.setup.Spec.RolloutID, Step: step}
}

// stepBatch is the numbering of the current step's pods by the plan of steps.
func (m *Machine) stepBatch() *rollout.Batch {
	b := m.batch(m.s.Status.CurrentStepIndex)
	b.Only = m.onlyNumbers()
	for _, s := range m.setup.Spec.Strategy.Steps[:b.Step] {
		b.Plan = append(b.Plan, s.Replicas)
	}
	return b
}

// onlyNumbers reports whether the steps only number pods, because the release began with a new rollout-id and the same
// pod template: no pod is replaced and no traffic moves, and the steps pause as those of any release.
func (m *Machine) onlyNumbers() bool {
	d := m.setup.Spec.Change.Declared
	return d != nil && d.NewID && m.s.AlreadyComplete && m.s.OverHung == ""
}

// routesTraffic reports whether the steps move traffic.
func (m *Machine) routesTraffic() bool { return m.setup.Spec.Strategy.HasTraffic() && !m.onlyNumbers() }

// awaitConfirmation waits for the approval of the release as a whole. No pod has moved.
func (m *Machine) awaitConfirmation() Action {
	m.s.Status.CurrentStepState = rollout.StatePaused
	return Action{Kind: ActWait, waitKind: rollout.WaitApproval, Summary: "approval of the release",
		reason: m.setup.ConfirmReason + ": waiting for approval; no pod has moved"}
}

// handleRedeclared treats an edit of the workload's pod template not as drift but as the next command. The controller
// that watches the object is about to send it.
func (m *Machine) handleRedeclared(a Action, f Failure) bool {
	if f.Kind != failure.Drift || !m.declared() || a.Kind != ActMove && a.Kind != ActFinish {
		return false
	}
	m.s.Redeclared = f.Message
	return true
}

// awaitRedeclared waits for the command that follows from the edit of the pod template. A blue-green keeps both
// versions and has no room for a third.
func (m *Machine) awaitRedeclared() Action {
	why := fmt.Sprintf("%s: %s: no pod moves until the next command arrives", m.position(), m.s.Redeclared)
	if m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen && !m.onlyNumbers() {
		why = fmt.Sprintf("%s: %s: a blue-green release has no room for a third version, so no pod moves. Set the "+
			"template to the version "+
			"that is being released to continue, or to the stable one to roll back", m.position(), m.s.Redeclared)
	}
	return Action{Kind: ActWait, waitKind: rollout.WaitDrift, reason: why}
}

// recheckDeclared continues as if the workload declared what is released, and inspects whether it does.
func (m *Machine) recheckDeclared() {
	m.s.Redeclared = ""
	if m.inSteps() && m.s.MoveStarted {
		m.s.Recheck = recheckInspect
	}
}

// detach releases the workload: what was borrowed is restored at once, and the workload's own controller continues with
// the current template.
func (m *Machine) detach(c rollout.Command) (done, refusal string) {
	if t := m.s.Trouble; t != nil {
		switch t.Kind {
		case failure.Gone:
			m.startFinalising(rollout.EndDeleted)
			return "the traffic is restored, then the rollout ends", ""
		case failure.ClaimLost:
			return m.abandon(c, t)
		}
	}
	switch {
	case m.s.Ending == rollout.EndDetached:
		m.s.Trouble = nil // retry what has failed
		return "it is detaching already", ""
	case m.s.Ending == rollout.EndFrozen:
		return "", "it is being frozen: wait until that is done"
	case m.s.Stage == stageAdopt:
		m.s.Ending = rollout.EndRollback
		return "what an earlier release left is rolled back, then the rollout ends", ""
	}
	m.startFinalising(rollout.EndDetached)
	return "it detaches: what it has borrowed is restored, and the workload's own controller continues", ""
}

// Replan takes in the strategy as the object has it now. Changed steps are made from where the pods are: from the
// current step if it demands at least as many new pods, else from the first one that does. An unchanged strategy
// changes and logs nothing.
func (m *Machine) Replan(c rollout.Command, s strategy.Strategy, now time.Time) (audit.Outcome, string) {
	m.noteObjectVersion(c)
	if undo := m.setup.Spec.Undo; undo != nil && undo.WithoutSteps {
		return audit.Accepted, "this undo has no steps: the edited strategy applies from the next release on"
	}
	was := m.setup.Spec.Strategy
	s.Paused = was.Paused // a pause is a command of its own
	if m.ended() || reflect.DeepEqual(was, s) {
		return audit.Accepted, "the strategy is unchanged"
	}
	return m.s.Log.Apply(c.Entry(now), c, func(*audit.Entry) (done, refusal string) {
		switch {
		case len(s.Steps) != len(was.Steps):
			return "", fmt.Sprintf("the strategy has %d steps now, and had %d when the release began: the number "+
				"cannot change in the middle of a release", len(s.Steps), len(was.Steps))
		case s.Style != was.Style:
			return "", "the style cannot change in the middle of a release"
		case !reflect.DeepEqual(s.Routings, was.Routings) || s.TrafficRoutingRef != was.TrafficRoutingRef ||
			s.DisableGenerateCanaryService != was.DisableGenerateCanaryService:
			return "", "what routes to the workload cannot change in the middle of a release"
		}
		return m.replan(was, s, now), ""
	})
}

func (m *Machine) replan(was, s strategy.Strategy, now time.Time) (done string) {
	m.setup.Spec.Strategy, m.s.EditedStrategy = s, &s
	for i, fresh := range stepStatuses(s.Steps) {
		before := m.s.Status.Steps[i]
		fresh.State, fresh.StartedAt, fresh.FinishedAt = before.State, before.StartedAt, before.FinishedAt
		m.s.Status.Steps[i] = fresh
	}
	if reflect.DeepEqual(was.Steps, s.Steps) {
		return "the strategy has changed outside its steps: it applies from now on"
	}
	if m.s.Stage != stageSteps || m.s.Ending != rollout.EndNone {
		return "the steps have changed: they apply from now on"
	}
	at := m.s.Status.CurrentStepIndex
	to := replanStep(was.Steps[at-1].Replicas, s, at, m.s.Status.Replicas)
	paused, by := m.s.Status.Paused, m.s.PausedBy
	m.s.clearForTurn()
	m.s.Status.Paused, m.s.PausedBy = paused, by
	m.goToStep(to, now)
	m.s.WindowPending = m.s.WindowPending || to != at && m.hasTimes()
	return fmt.Sprintf("the steps have changed: the rollout continues with step %d", to)
}

// replanStep returns the step, from 1, at which edited steps continue if had pods were demanded before: the current one
// if it demands at least as many, else the first one that does, else the last.
func replanStep(had intstr.IntOrString, s strategy.Strategy, at int, size int32) int {
	target := func(n intstr.IntOrString) int32 { return strategy.Target(s.Style, n, size) }
	enough := func(i int) bool { return target(s.Steps[i].Replicas) >= target(had) }
	if enough(at - 1) {
		return at
	}
	for i := range s.Steps {
		if enough(i) {
			return i + 1
		}
	}
	return len(s.Steps)
}

// noteObjectVersion records the generation and state of the object that a command was read from.
func (m *Machine) noteObjectVersion(c rollout.Command) {
	m.s.ObjectGeneration = max(m.s.ObjectGeneration, c.Generation)
	if c.State == 0 || c.State < m.s.AnsweredState {
		return
	}
	if c.State > m.s.AnsweredState {
		m.s.AnsweredState, m.s.AnsweredCommands = c.State, nil
	}
	if answered := (rollout.AnsweredCommand{Verb: c.Verb, ToStep: c.ToStep}); !slices.Contains(m.s.AnsweredCommands,
		answered) {
		m.s.AnsweredCommands = append(slices.Clip(m.s.AnsweredCommands), answered)
	}
}

// Object returns the Rollout object that requested the release; nil: none.
func (m *Machine) Object() *rollout.ObjectRef { return m.setup.Object }

// View returns the release as its object shows it.
func (m *Machine) View() rollout.View {
	v := rollout.View{Status: m.s.Status, Ending: m.s.Ending, Gate: m.gate(), Generation: m.s.ObjectGeneration,
		AnsweredState: m.s.AnsweredState, AnsweredCommands: m.s.AnsweredCommands,
		CreatedAt: m.setup.CreatedAt, PausedByObject: m.s.Status.Paused && m.s.PausedByObject}
	v.Status.History = nil
	if d := m.setup.Spec.Change.Declared; d != nil {
		v.Template = d.Template
	}
	if t := m.s.Trouble; t != nil && !m.ended() {
		v.Stalled = t.Message
	} else if m.s.Redeclared != "" {
		v.Stalled, v.Redeclared = m.s.Redeclared, true
	} else if m.ended() && m.s.FinalPhase == rollout.PhaseFailed {
		v.Stalled = m.s.LastMessage
	}
	v.Superseding = m.s.Superseding
	if m.ended() {
		m.viewEnd(&v)
	}
	return v
}

// viewEnd sets which template serves at the end. A release that a command rolled back without a change of the
// workload's template must not begin again by itself.
func (m *Machine) viewEnd(v *rollout.View) {
	switch m.s.FinalPhase {
	case rollout.PhaseFailed:
	case rollout.PhaseHealthy:
		if m.setup.Spec.Undo != nil { // declaring again what was undone needs an approval
			v.RolledBack = m.s.Status.StableTemplateDigest
		}
	case rollout.PhaseRolledBack:
		if !m.s.Superseding && !m.s.RolledBackByTemplate && !m.onlyNumbers() {
			v.RolledBack = v.Template
		}
		v.Template = m.s.Status.StableTemplateDigest
	default:
		v.Template = ""
	}
}
