package machine

import (
	"fmt"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"time"
)

// move brings the step's pods, or looks after them while it rests.
func (m *Machine) move(look bool) Action {
	step, s := m.step(), m.setup.Spec.Strategy
	back := m.c.Stage == StageBack
	request := &rollout.MoveRequest{Subject: m.subject(), Step: m.c.Status.CurrentStepIndex, Style: s.Style, Replicas: step.Replicas,
		Change: m.setup.Spec.Change, Template: m.c.Template, PutBack: m.c.PutBack, FailureThreshold: s.FailureThreshold,
		Rest: m.rests() || m.routes(), CanaryMetadata: s.PatchPodTemplateMetadata, Look: look, Back: back,
		KeepStable: s.Style == strategy.StylePartition && !back && m.c.Pinned != No}
	request.TellStuck = !back && !look && m.c.Stuck == ""
	if back {
		request.From = m.c.From
	}
	a := Action{Kind: ActMove, Move: request, Patient: m.c.Away != "", waits: rollout.WaitPods}
	switch {
	case look:
		a.Summary = fmt.Sprintf("%s: look at a change of somebody else", m.stepOf())
		a.why = fmt.Sprintf("%s: somebody else has changed %s: it is looked at", m.stepOf(), m.workload())
	case back:
		a.Summary = fmt.Sprintf("%s: pods back, %s", m.stepOf(), step.Replicas.String())
		a.why = fmt.Sprintf("%s of the way back: waiting until %s of the new pods are of the stable version again", m.stepOf(), step.Replicas.String())
	default:
		a.Summary = fmt.Sprintf("%s: pods to %s", m.stepOf(), step.Replicas.String())
		a.why = fmt.Sprintf("%s: waiting until %s of the pods are of the new version and ready", m.stepOf(), step.Replicas.String())
		if m.c.Stuck != "" {
			a.why += ": " + m.c.Stuck
		}
	}
	return a
}

// halt brings to rest the pods that a Move has left in the middle of a step: from now on somebody has to decide.
func (m *Machine) halt(since string) Action {
	a := m.move(false)
	a.Move.Halt, a.Move.PutBack, a.Move.TellStuck = true, false, false
	a.Move.Back = a.Move.Back && !m.c.Counting // nothing has gone back yet
	a.Summary = m.place() + ": pods come to rest"
	a.why = fmt.Sprintf("%s: its pods come to rest where they are, since %s", m.place(), since)
	return a
}

// rests says whether the current step rests after its pods, as far as is known now.
func (m *Machine) rests() bool {
	p := m.step().PauseSeconds
	return !m.c.Promoted && !m.passes() && (p == nil || *p > 0)
}

// route makes one change of the rollout's own routes.
func (m *Machine) route(action rollout.RouteAction, traffic strategy.Traffic) Action {
	s := m.setup.Spec.Strategy
	routings, noCanary := s.Routings, s.DisableGenerateCanaryService
	if m.c.Stage == StageAdopt && m.c.Adopted != nil {
		routings, noCanary = m.c.Adopted.Routings, m.c.Adopted.NoCanary
	}
	request := &rollout.RouteRequest{Subject: m.subject(), Action: action, Routings: routings, Traffic: traffic, StableHash: m.c.StableHash, CanaryHash: m.c.CanaryHash,
		NoCanary: noCanary, Overwrite: m.c.PutBack || m.c.Ending == rollout.EndRollback || m.c.Ending == rollout.EndGone}
	if s.PatchPodTemplateMetadata != nil {
		request.CanaryLabels = s.PatchPodTemplateMetadata.Labels
	}
	what := routeWords[action]
	if action == rollout.RouteEnsure {
		what = "send " + trafficWords(traffic) + " to the new version"
	}
	return Action{Kind: ActRoute, Route: request, Patient: m.c.Away != "", waits: rollout.WaitTraffic,
		Summary: m.place() + ": " + what, why: m.place() + ": " + what}
}

var routeWords = map[rollout.RouteAction]string{
	rollout.RoutePin:          "pin the stable Service to the stable pods",
	rollout.RouteUnpin:        "give the stable Service its own selector back",
	rollout.RouteToStable:     "give the routes back",
	rollout.RouteToNew:        "send all traffic to the new version",
	rollout.RouteRemoveCanary: "remove the canary Service",
}

// trafficWords is what a step asks of the traffic, in words.
func trafficWords(t strategy.Traffic) string {
	if t.Weight != nil {
		return fmt.Sprintf("%d%% of the traffic", *t.Weight)
	}
	return fmt.Sprintf("requests that meet %s", strategy.Plural(len(t.Matches), "match", "matches"))
}

// sharedRoute makes a change of the TrafficRouting's routes, under the claim that all its holders share.
func (m *Machine) sharedRoute(action rollout.RouteAction, summary string) Action {
	shared := *m.c.Shared
	subject := m.subject()
	subject.Claim = m.c.SharedClaim
	return Action{Kind: ActRoute, shared: true, Patient: m.c.Away != "", Summary: summary, waits: rollout.WaitTraffic, why: m.place() + ": " + summary,
		Route: &rollout.RouteRequest{Subject: subject, Action: action, Routings: shared.Routings, Traffic: shared.Traffic, StableHash: m.c.StableHash,
			CanaryHash: m.c.CanaryHash, NoCanary: true, Overwrite: m.c.PutBack}}
}

// table is the finalising that is under way.
func (m *Machine) table() []rollout.FinalMove {
	s := m.setup.Spec.Strategy
	b := rollout.Borrowed{Style: s.Style, Traffic: s.HasTraffic(), Services: !s.DisableGenerateCanaryService, Shared: s.TrafficRoutingRef != "",
		Untouched: m.untouched(), Autoscalers: m.pinsAutoscalers()}
	ending := m.c.Ending
	if a := m.c.Adopted; m.c.Stage == StageAdopt && a != nil {
		b = rollout.Borrowed{Style: a.Style, Traffic: len(a.Routings) > 0, Services: !a.NoCanary, Shared: a.TrafficRouting != ""}
		ending = rollout.EndRollback
	}
	return rollout.FinalMoves(b, ending)
}

// pinsAutoscalers says whether this release pins autoscalers, or the earlier one did whose remains it was bringing home.
func (m *Machine) pinsAutoscalers() bool {
	return m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen || m.c.Adopted != nil && m.c.Adopted.Style == strategy.StyleBlueGreen
}

// untouched says that nothing of this release was changed: it has its claim at most.
func (m *Machine) untouched() bool {
	return m.c.Adopted == nil && !m.c.Moved && m.c.Pinned == No && m.c.Routed == No && !m.c.CanaryServices
}

// finalise is the next move of finalising; after the last the rollout closes, or begins once another's remains are brought home.
func (m *Machine) finalise(now time.Time) (Action, bool) {
	moves := m.table()
	if m.c.FinalMove >= len(moves) {
		m.finalised(now)
		return Action{}, false
	}
	move := moves[m.c.FinalMove]
	m.c.Status.FinalisingStep = string(move)
	switch move {
	case rollout.FinalUnpin, rollout.FinalStable, rollout.FinalNew, rollout.FinalRemove:
		return m.route(rollout.RouteAction(move), strategy.Traffic{}), true
	case rollout.FinalLeave:
		return m.leave(), true
	default:
		return m.finishPods(rollout.FinishAction(move)), true
	}
}

func (m *Machine) finalised(now time.Time) {
	m.c.Status.FinalisingStep = ""
	if m.c.Stage != StageAdopt {
		m.close(m.c.Ending.Phase())
		return
	}
	if m.c.Ending == rollout.EndRollback {
		m.close(rollout.PhaseRolledBack)
		return
	}
	m.c.Stage, m.c.Adopted, m.c.FinalMove, m.c.Claimed, m.c.TakeOver = StageBegin, nil, 0, false, ""
	m.c.Pinned, m.c.Routed, m.c.CanaryServices, m.c.Status.Traffic, m.c.Leaving = No, No, false, nil, LeavingAsk
	m.c.Shared, m.c.SharedClaim, m.c.SharedRouted = nil, "", false
	m.enterStep(m.c.Status.CurrentStepIndex, now)
}

func (m *Machine) finishPods(action rollout.FinishAction) Action {
	ending := m.c.Ending
	if m.c.Stage == StageAdopt {
		ending = rollout.EndRollback
	}
	request := &rollout.FinishRequest{Subject: m.subject(), Action: action, To: ending.Side(), Template: m.c.Template, Change: m.setup.Spec.Change, PutBack: m.c.PutBack}
	what := map[rollout.FinishAction]string{
		rollout.FinishResume:           "give the workload its settings back and wait until it is whole, of the " + string(ending.Side()) + " version",
		rollout.FinishRelease:          "take everything of this release off the workload",
		rollout.FinishFreeze:           "give the claim back and leave the split where it is",
		rollout.FinishAutoscalers:      "give the autoscalers their limits back",
		rollout.FinishResumeAndRelease: "give the workload its settings back, wait until it is whole, of the " + string(ending.Side()) + " version, and release it",
	}[action]
	return Action{Kind: ActFinish, Finish: request, Patient: m.c.Away != "", Summary: m.place() + ": " + what, waits: rollout.WaitPods, why: m.place() + ": " + what}
}

// takePart takes part in a shared TrafficRouting. While another release gives its routes back this waits, as long as a step's pods may take.
func (m *Machine) takePart(name string) Action {
	request := m.holding(name)
	request.DeadlineSeconds = m.setup.Spec.Policy.StepDeadlineSeconds
	return Action{Kind: ActHold, Hold: request, Summary: "take part in TrafficRouting " + name, waits: rollout.WaitTraffic,
		why: m.place() + ": taking part in TrafficRouting " + name}
}

// leave leaves the shared TrafficRouting; the last holder restores its routes.
func (m *Machine) leave() Action {
	name := m.setup.Spec.Strategy.TrafficRoutingRef
	if m.c.Adopted != nil && m.c.Stage == StageAdopt {
		name = m.c.Adopted.TrafficRouting
		if m.c.Shared == nil { // its holder is dead and forgotten: this release takes its place, so that the routes are given back
			return m.takePart(name)
		}
	}
	if m.c.Leaving == LeavingRestore {
		return m.sharedRoute(rollout.RouteToStable, "give the routes of TrafficRouting "+name+" back")
	}
	return Action{Kind: ActLeave, Summary: "leave TrafficRouting " + name, waits: rollout.WaitTraffic, why: m.place() + ": leaving TrafficRouting " + name,
		Leave: &rollout.LeaveTrafficRequest{HoldTrafficRequest: *m.holding(name), Restored: m.c.Leaving == LeavingTell}}
}

// place says where the rollout is, for sentences.
func (m *Machine) place() string {
	switch m.c.Stage {
	case StageAdopt:
		return "bringing home what an earlier release left"
	case StageFinal:
		return finalWords[m.c.Ending]
	case StageBack:
		return m.stepOf() + " of the way back"
	case StageSteps:
		return m.stepOf()
	default:
		return "before the first step"
	}
}

var finalWords = map[rollout.Ending]string{
	rollout.EndSuccess:  "finishing",
	rollout.EndNew:      "finishing now",
	rollout.EndRollback: "rolling back",
	rollout.EndFrozen:   "freezing",
	rollout.EndGone:     "cleaning up after the deleted workload",
}
