package machine

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Done takes what an action's activity answered. Facts count in any case; the way goes on only in the same direction.
func (m *Machine) Done(r Result, now time.Time) {
	a := *m.running
	m.running, m.interrupted = nil, false
	m.reached()
	same := a.epoch == m.epoch
	// A retry of routes that looks at the pods first puts back the routes as well.
	beforeRoutes := a.Kind == ActMove && m.s.Check == checkMove && m.s.Status.CurrentStepState == rollout.StateTrafficRouting
	switch a.Kind {
	case ActBegin:
		m.begun(r.Begin)
	case ActAskHolder:
		m.holderKnown(r.Holder)
	case ActHold:
		m.s.Shared, m.s.SharedClaim = &r.Hold.Shared, r.Hold.Claim
	case ActMove:
		if r.Pods.Stuck != "" {
			m.stuck(r.Pods, same)
			return
		}
		m.podsKnown(a, r.Pods)
		if a.Halts() {
			return
		}
		m.moved(a, same)
	case ActRoute:
		if a.restores {
			m.routesRestored(a, r.Route, same, now)
			return
		}
		m.routed(a, r.Route, same, now)
	case ActFinish:
		if a.Finish.Action != rollout.FinishAutoscalers { // the workload that had the numbers is gone
			m.takeNumbers(r.Pods)
		}
		m.finishedPods(a, same, now)
	case ActLeave:
		m.left(r.Leave, same)
	case ActAskWindow:
		m.windowKnown(r.Window)
	case ActComplete:
		m.s.Stage = stageOver
	}
	if same && !beforeRoutes && m.putsBackBy(a) {
		m.isPutBack(a)
	}
}

// isPutBack notes what an action has put back.
func (m *Machine) isPutBack(a Action) {
	m.s.PutBack, m.s.PutBackPods = false, false
	if a.Kind == ActRoute && a.Route.Action == rollout.RouteEnsure {
		m.s.PutBackRoutes = false
	}
}

// putsBackBy says whether what was to be put back was so by an action. A claim puts nothing back: the Move behind it does.
func (m *Machine) putsBackBy(a Action) bool {
	return (a.Kind != ActBegin || !m.s.OneWrite) && (a.Kind != ActRoute || !m.s.PutBackPods)
}

// podsKnown takes what a Move tells of the pods.
func (m *Machine) podsKnown(a Action, r rollout.MoveResult) {
	// Behind a last step of all pods there is nothing to bring to rest.
	m.s.PodsUnsettled = !a.Move.Rest && !a.Move.Halt && (!a.Move.Native || m.s.Status.CurrentStepIndex < m.steps() || !m.routes())
	// Of a step that was halted before anybody knew its new revision, the numbers are not known.
	if !a.Halts() || r.Canary != "" {
		m.takeNumbers(r)
	}
}

// stuck notes that a new pod is in trouble. The Move goes on where it was: its deadline too.
func (m *Machine) stuck(r rollout.MoveResult, same bool) {
	m.s.PodsUnsettled = true
	m.takeNumbers(r)
	if same {
		m.s.Stuck, m.s.SpentSeconds = r.Stuck, r.SpentSeconds
	}
}

// Stuck says that pods are waited for of which one is in trouble.
func (m *Machine) Stuck() bool { return m.s.Stuck != "" }

func (m *Machine) begun(r rollout.BeginResult) {
	s := &m.s.Status
	s.Replicas, s.ObservedWorkloadGeneration, m.s.UID = r.Replicas, r.Generation, r.UID
	if m.s.Unsettled = r.Unsettled; r.Unsettled != "" {
		m.s.Claimed = false
		return
	}
	if r.Adopted != nil {
		m.s.Adopted, m.s.Stage, m.s.FinalMove, m.s.Leaving, m.s.StableHash = r.Adopted, stageAdopt, 0, leavingAsk, r.StableHash
		if m.s.Ending == rollout.EndFrozen {
			m.s.Stage = stageFinal // it stays as it was found
		}
		return
	}
	if m.setup.BringHome { // nothing of an earlier release is there: nothing was claimed either
		m.s.Claimed, m.s.Note = false, r.Message
		m.close(rollout.PhaseRolledBack)
		return
	}
	s.StableRevision, m.s.StableHash, m.s.TakeOver = r.Stable, r.StableHash, ""
	m.s.StableTemplate, s.StableTemplateDigest, s.StableImages = r.StableTemplate, r.StableTemplate, r.StableImages
	s.StablePackage = r.StablePackage
	if m.s.OneWrite && r.Placed {
		m.s.Moved, m.s.PodsUnsettled = true, true
	}
	if m.s.Whole = r.Whole; r.Whole && m.s.Ending == rollout.EndNone {
		m.s.Ending, s.Paused, m.s.PausedBy = rollout.EndSuccess, false, ""
	}
	if m.s.Ending != rollout.EndNone {
		m.s.Stage, m.s.FinalMove = stageFinal, 0
		return
	}
	m.s.Stage = stageHold
}

// holderKnown decides on the claim in the way: only a dead workflow's is taken over.
func (m *Machine) holderKnown(r workloadops.ClaimHolderResult) {
	holder := m.s.Holder
	m.s.Holder = ""
	if r.Dead {
		m.s.TakeOver = holder
		return
	}
	switch {
	case m.s.Stage != stageBegin:
		m.s.Trouble = &trouble{Kind: failure.Claimed,
			Message: fmt.Sprintf("an object that routes to %s is held by %s: %s", m.workload(), workloadops.Told(m.setup.Claim, holder), r.Reason)}
		m.s.Status.Phase = rollout.PhaseFailed
	case m.s.Ending == rollout.EndNone || m.s.Ending == rollout.EndNew || m.setup.BringHome:
		m.giveUp(fmt.Sprintf("%s is claimed by %s: %s; nothing was changed", m.workload(), workloadops.Told(m.setup.Claim, holder), r.Reason))
	}
}

func (m *Machine) giveUp(why string) {
	m.s.Claimed, m.s.Note = false, why
	m.close(rollout.PhaseFailed)
}

func (m *Machine) takeNumbers(r rollout.MoveResult) {
	s := &m.s.Status
	s.Replicas, s.CanaryReplicas, s.CanaryReadyReplicas = r.Replicas, r.Updated, r.UpdatedReady
	if r.Generation > 0 {
		s.ObservedWorkloadGeneration = r.Generation
	}
	if r.Canary != "" {
		s.CanaryRevision = r.Canary
	}
	if r.CanaryHash != "" {
		s.PodTemplateHash = r.CanaryHash
		if m.s.Stage != stageFinal || m.s.CanaryHash == "" { // at the end it is the workload's own; the routes are those of the pods that the steps have brought
			m.s.CanaryHash = r.CanaryHash
		}
	}
	if r.Template != "" {
		m.s.Template, s.TemplateDigest = r.Template, r.Template
	}
	if len(r.Images) > 0 {
		s.Images = r.Images
	}
	m.s.StableGone = m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen && r.Replicas > 0 && r.Updated >= r.Replicas && r.StableReady == 0
	m.s.Note = r.Message
}

func (m *Machine) moved(a Action, same bool) {
	if !same {
		return
	}
	checked := m.s.Check != checkNone || a.Move.Look
	m.s.Check = checkNone
	_, needed := m.before()
	switch {
	case checked && m.s.Status.CurrentStepState == rollout.StateBeforeUpgrade:
	case m.routes() && needed: // the workload was scaled meanwhile to a size at which the Services have to select otherwise
		m.s.Status.CurrentStepState = rollout.StateBeforeUpgrade
	case checked && m.routes() && m.misrouted():
		m.s.Status.CurrentStepState = rollout.StateTrafficRouting
	case checked:
	case m.routes() && m.s.PutBackPods: // the pods that its Services are to select are there again
		m.s.Status.CurrentStepState = rollout.StateBeforeUpgrade
	case m.routes():
		m.s.Status.CurrentStepState = rollout.StateTrafficRouting
	default:
		m.s.Status.CurrentStepState = rollout.StatePaused
	}
}

// misrouted says that the routes are not those of the pods: the party's worker gave them back, since no new pod was ready, or the workload was
// scaled to a size at which there is no new pod, or from such a size.
func (m *Machine) misrouted() bool {
	return m.s.Routed == maybe || (m.s.Routed == no) != (m.s.Status.CanaryReplicas == 0)
}

func (m *Machine) routed(a Action, r rollout.RouteResult, same bool, now time.Time) {
	m.allowGrace(r, now)
	switch {
	case a.shared && a.Route.Action == rollout.RouteEnsure:
		m.s.SharedRouted = true
		return
	case a.shared:
		m.s.Leaving = leavingTell
		return
	}
	m.routeFacts(a)
	switch {
	case !same:
	case m.s.Stage == stageFinal || m.s.Stage == stageAdopt:
		m.s.FinalMove++
	case a.Route.Action == rollout.RouteEnsure:
		m.s.Status.CurrentStepState = rollout.StatePaused
	}
}

// allowGrace leaves changed routes the time to take effect.
func (m *Machine) allowGrace(r rollout.RouteResult, now time.Time) {
	if !r.Modified || r.GraceSeconds <= 0 {
		return
	}
	until := now.Add(time.Duration(r.GraceSeconds) * time.Second)
	if m.s.GraceUntil == nil || m.s.GraceUntil.Before(until) {
		m.s.GraceUntil = &until
	}
}

func (m *Machine) routeFacts(a Action) {
	split := func(done triState, canary int32, matches []strategy.Match) {
		m.s.Routed = done
		m.s.Status.Traffic = &rollout.TrafficStatus{CanaryWeight: canary, StableWeight: 100 - canary, Matches: matches}
	}
	switch a.Route.Action {
	case rollout.RoutePin:
		m.s.Pinned = yes
	case rollout.RouteUnpin:
		m.s.Pinned = no
	case rollout.RouteEnsure:
		m.s.Sent = &a.Route.Traffic
		if w := a.Route.Traffic.Weight; w != nil {
			split(yes, *w, nil)
		} else {
			split(yes, 0, a.Route.Traffic.Matches)
		}
	case rollout.RouteToNew:
		split(yes, 100, nil)
	case rollout.RouteToStable:
		split(no, 0, nil)
	case rollout.RouteRemoveCanary:
		m.s.CanaryServices = false
	}
}

// finishedPods goes on in the table. A release that was already through when somebody turned the rollout round cannot be taken back.
func (m *Machine) finishedPods(a Action, same bool, now time.Time) {
	switch {
	case same:
		m.s.FinalMove++
	case a.Finish.Action == rollout.FinishRelease || a.Finish.Action == rollout.FinishResumeAndRelease:
		if m.s.Adopted == nil {
			m.policyDecides(rollout.VerbStop, "the release was already through: it stays as it is", now)
			m.s.Ending = a.ending
			m.close(a.ending.Phase())
		}
	}
}

func (m *Machine) left(r rollout.LeaveTrafficResult, same bool) {
	if !same {
		return
	}
	if m.s.Leaving == leavingAsk && r.Restore {
		if len(r.Shared.Routings) > 0 || m.s.Shared == nil { // a TrafficRouting that was deleted no longer says what it asked
			m.s.Shared = &r.Shared
		}
		m.s.SharedClaim, m.s.Leaving = r.Claim, leavingRestore
		if len(m.s.Shared.Routings) > 0 {
			return
		}
	}
	m.nextMove()
}

func (m *Machine) nextMove() {
	m.s.FinalMove++
	m.s.Leaving = leavingAsk
}

// Stopped says that the action was stopped half way, as Interrupts asked.
func (m *Machine) Stopped() {
	m.running, m.interrupted, m.s.Stuck = nil, false, ""
}
