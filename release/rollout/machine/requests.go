package machine

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workloadops"
)

// ActionKind says what the workflow has to do.
type ActionKind string

// The kinds of action. All but the last three are one activity each.
const (
	ActBegin     ActionKind = "begin"
	ActAskHolder ActionKind = "askHolder"
	ActHold      ActionKind = "holdTraffic"
	ActMove      ActionKind = "move"
	ActRoute     ActionKind = "route"
	ActFinish    ActionKind = "finish"
	ActLeave     ActionKind = "leaveTraffic"
	ActComplete  ActionKind = "complete"
	ActAskWindow ActionKind = "askWindow"
	// ActRest waits: for a message, and until Until where that is set.
	ActRest ActionKind = "rest"
	// ActClose ends the workflow, ActSupersede has it continue as the newer release.
	ActClose     ActionKind = "close"
	ActSupersede ActionKind = "supersede"
)

// Action is what is to be done next. Exactly the request of its kind is set.
type Action struct {
	Kind ActionKind
	// Summary says it in a few words, for Temporal's UI.
	Summary string
	// Until is when a rest is over by itself; nil: only a message ends it.
	Until  *time.Time
	Begin  *rollout.BeginRequest
	Holder *workloadops.ClaimHolderRequest
	Hold   *rollout.HoldTrafficRequest
	Move   *rollout.MoveRequest
	Route  *rollout.RouteRequest
	Finish *rollout.FinishRequest
	Leave  *rollout.LeaveTrafficRequest
	Window *window.Question
	// NoPickUpTimeout says that the party was found to be unreachable: the action waits for it without a limit.
	NoPickUpTimeout bool

	waits rollout.WaitKind
	// why is the sentence that people read while it lasts.
	why string
	// epoch is the machine's when the action was decided; ending what it was done for.
	epoch  int
	ending rollout.Ending
	// shared says that a Route is the TrafficRouting's, not the rollout's own.
	shared bool
	// restores says that a Route puts back what somebody else has changed.
	restores bool
}

// Activity says whether the action is an activity.
func (a Action) Activity() bool {
	return a.Kind != ActRest && a.Kind != ActClose && a.Kind != ActSupersede
}

func (a Action) party() bool {
	return a.Kind == ActBegin || a.Kind == ActMove || a.Kind == ActRoute || a.Kind == ActFinish
}

// Halts says whether the action brings to rest what an interrupted Move has left.
func (a Action) Halts() bool { return a.Kind == ActMove && a.Move.Halt }

// makes says whether the action narrows a Service to a version or sends traffic, and so waits for pods of that version.
func (a Action) makes() bool {
	return a.Route.Action == rollout.RoutePin || a.Route.Action == rollout.RouteEnsure
}

// stoppable says whether the action may be stopped half way: what may wait for long. What is short would only have to be done again.
func (a Action) stoppable() bool {
	if a.Kind == ActBegin {
		return a.Begin.Unsettled == rollout.UnsettledWait
	}
	return a.Kind == ActHold || a.party()
}

// Result is what an action's activity answered; exactly the field of the action's kind is set. Pods is that of ActMove and ActFinish.
type Result struct {
	Begin  rollout.BeginResult
	Holder workloadops.ClaimHolderResult
	Hold   rollout.HoldTrafficResult
	Pods   rollout.MoveResult
	Route  rollout.RouteResult
	Leave  rollout.LeaveTrafficResult
	Window window.Answer
}

// activity is an activity whose summary, with the place where the rollout is, is also the reason that people read.
func (m *Machine) activity(kind ActionKind, waits rollout.WaitKind, what string) Action {
	text := m.place() + ": " + what
	return Action{Kind: kind, waits: waits, Summary: text, why: text}
}

// move brings the step's pods, or looks after them while it rests.
func (m *Machine) move(look bool) Action {
	step, s := m.step(), m.setup.Spec.Strategy
	back, native := m.s.Stage == stageBack, m.native()
	request := &rollout.MoveRequest{Subject: m.subject(), Step: m.s.Status.CurrentStepIndex, Style: s.Style, Replicas: step.Replicas,
		Change: m.setup.Spec.Change, Template: m.s.Template, PutBack: m.s.PutBack, FailureThreshold: s.FailureThreshold,
		Rest: !native && (m.rests() && !m.briefAt(m.s.Status.CurrentStepIndex) || m.routes()), Native: native, CanaryMetadata: s.PatchPodTemplateMetadata, Look: look, Back: back,
		Foreseen:   m.setup.Foreseen,
		KeepStable: s.Style == strategy.StylePartition && !back && m.s.Pinned != no, TellStuck: !back && !look && m.s.Stuck == ""}
	if back {
		request.From = m.s.From
	} else if m.declared() {
		request.Batch = m.batch(m.s.Status.CurrentStepIndex)
	}
	if look && m.s.Status.CurrentStepState == rollout.StateBeforeUpgrade { // its own pods come later, when its Services are ready for them
		request.Replicas = intstr.FromInt32(m.s.Status.CanaryReplicas)
	}
	a := Action{Kind: ActMove, Move: request, waits: rollout.WaitPods}
	switch {
	case look:
		a.Summary = fmt.Sprintf("%s: look at a change of somebody else", m.stepOf())
		a.why = fmt.Sprintf("%s: somebody else has changed %s: it is looked at", m.stepOf(), m.workload())
	case back:
		a.Summary = fmt.Sprintf("%s: pods back, %s", m.stepOf(), step.Replicas.String())
		a.why = fmt.Sprintf("%s of the way back: waiting for %s of the new pods to be of the stable version again", m.stepOf(),
			step.Replicas.String())
	default:
		a.Summary = fmt.Sprintf("%s: pods to %s", m.stepOf(), step.Replicas.String())
		a.why = fmt.Sprintf("%s: waiting for %s of the pods to be of the new version and ready", m.stepOf(), step.Replicas.String())
		if m.s.Stuck != "" {
			a.why += ": " + m.s.Stuck
		}
	}
	return a
}

// halt brings to rest the pods that a Move has left in the middle of a step: from now on somebody has to decide.
func (m *Machine) halt(since string) Action {
	a := m.move(false)
	a.Move.Halt, a.Move.PutBack, a.Move.TellStuck = true, false, false
	a.Move.Back = a.Move.Back && !m.s.Counting // nothing has gone back yet
	a.Summary = m.place() + ": pods come to rest"
	a.why = fmt.Sprintf("%s: its pods come to rest where they are, since %s", m.place(), since)
	return a
}

// rests says whether the current step rests after its pods, as far as is known now.
func (m *Machine) rests() bool {
	return m.restsAt(m.s.Status.CurrentStepIndex)
}

func (m *Machine) restsAt(n int) bool {
	p := m.setup.Spec.Strategy.Steps[n-1].PauseSeconds
	return !m.s.Promoted && !m.passesAt(n) && (p == nil || *p > 0)
}

// shortRest is how long a rest may be that a leg waits out.
const shortRest = 15 * time.Second

// briefAt says whether a step's rest ends by itself so soon that its pods stay as they are while they move: paused, behind the gate. What is parked is
// harmless for as long as it takes, and takes three writes. Where traffic moves each step comes to rest.
func (m *Machine) briefAt(n int) bool {
	st := m.setup.Spec.Strategy
	p := st.Steps[n-1].PauseSeconds
	return m.s.BriefRests && m.s.Stage == stageSteps && st.Style == strategy.StylePartition && !st.HasTraffic() && p != nil && *p > 0 &&
		time.Duration(*p)*time.Second <= shortRest
}

// native says whether the workload's own controller may go to the end from here, as no number of pods matters any more: no step from this one
// on rests or moves traffic, but a last one that takes all pods. It would not pass by pods that failureThreshold tolerates.
func (m *Machine) native() bool {
	st := m.setup.Spec.Strategy
	if m.s.Stage != stageSteps || st.Style != strategy.StylePartition || st.FailureThreshold != nil || m.s.Pinned != no {
		return false
	}
	for n := m.s.Status.CurrentStepIndex; n <= m.steps(); n++ {
		if m.restsAt(n) || st.HasTraffic() && st.Steps[n-1].Routes() && !m.passesAt(n) {
			return false
		}
	}
	return true
}

func (m *Machine) route(action rollout.RouteAction, traffic strategy.Traffic) Action {
	s := m.setup.Spec.Strategy
	routings, noCanary := s.Routings, s.DisableGenerateCanaryService
	if m.s.Stage == stageAdopt && m.s.Adopted != nil {
		routings, noCanary = m.s.Adopted.Routings, m.s.Adopted.NoCanary
	}
	request := &rollout.RouteRequest{Subject: m.subject(), Action: action, Routings: routings, Traffic: traffic,
		StableHash: m.s.StableHash, CanaryHash: m.s.CanaryHash, NoCanary: noCanary, Declared: m.declared(),
		Overwrite: m.overwrites() || m.s.Ending == rollout.EndRollback || m.s.Ending == rollout.EndGone}
	if s.PatchPodTemplateMetadata != nil {
		request.CanaryLabels = s.PatchPodTemplateMetadata.Labels
	}
	what := routeWords[action]
	if action == rollout.RouteEnsure {
		what = "send " + trafficWords(traffic) + " to the new version"
	}
	a := m.activity(ActRoute, rollout.WaitTraffic, what)
	a.Route = request
	return a
}

// overwrites says whether a retry has routes written over what somebody else has edited.
func (m *Machine) overwrites() bool {
	return m.s.PutBack || m.s.PutBackRoutes && m.s.Stage == stageSteps
}

var routeWords = map[rollout.RouteAction]string{
	rollout.RoutePin:          "pin the stable Service to the stable pods",
	rollout.RouteUnpin:        "give the stable Service its own selector back",
	rollout.RouteToStable:     "give the routes back",
	rollout.RouteToNew:        "send all traffic to the new version",
	rollout.RouteRemoveCanary: "remove the canary Service",
}

func trafficWords(t strategy.Traffic) string {
	if t.Weight != nil {
		return fmt.Sprintf("%d%% of the traffic", *t.Weight)
	}
	return fmt.Sprintf("requests that meet %s", strategy.Plural(len(t.Matches), "match", "matches"))
}

// routeOnly makes a change that asks nothing of the traffic.
func (m *Machine) routeOnly(action rollout.RouteAction) (Action, bool) {
	return m.route(action, strategy.Traffic{}), true
}

// sharedRoute makes a change of the TrafficRouting's routes, under the claim that all its holders share.
func (m *Machine) sharedRoute(action rollout.RouteAction, summary string) Action {
	shared := *m.s.Shared
	subject := m.subject()
	subject.Claim = m.s.SharedClaim
	if former := workloadops.ParseHolder(subject.Claim).WorkflowID; former != subject.Claim && subject.TakeOver == "" {
		subject.TakeOver = former // as an earlier build wrote it, without an engine
	}
	return Action{Kind: ActRoute, shared: true, Summary: summary, waits: rollout.WaitTraffic, why: m.place() + ": " + summary,
		Route: &rollout.RouteRequest{Subject: subject, Action: action, Routings: shared.Routings, Traffic: shared.Traffic,
			StableHash: m.s.StableHash, CanaryHash: m.s.CanaryHash, NoCanary: true, Overwrite: m.overwrites(), Declared: m.declared()}}
}

// table is the finalising that is under way.
func (m *Machine) table() []rollout.FinalMove {
	s := m.setup.Spec.Strategy
	// This release pins autoscalers, or the earlier one did whose remains it was bringing home.
	pins := s.Style == strategy.StyleBlueGreen || m.s.Adopted != nil && m.s.Adopted.Style == strategy.StyleBlueGreen
	b := rollout.Borrowed{Style: s.Style, Traffic: s.HasTraffic() && !m.s.Whole, Services: !s.DisableGenerateCanaryService,
		Shared: s.TrafficRoutingRef != "" && !m.s.Whole, Untouched: m.untouched(), Autoscalers: pins}
	ending := m.s.Ending
	if a := m.s.Adopted; m.s.Stage == stageAdopt && a != nil {
		b = rollout.Borrowed{Style: a.Style, Traffic: len(a.Routings) > 0, Services: !a.NoCanary, Shared: a.TrafficRouting != ""}
		ending = rollout.EndRollback
	}
	return rollout.FinalMoves(b, ending)
}

// untouched says that nothing of this release was changed: it has its claim at most.
func (m *Machine) untouched() bool {
	return m.s.Adopted == nil && !m.s.Moved && m.s.Pinned == no && m.s.Routed == no && !m.s.CanaryServices
}

// finalise is the next move of finalising; after the last the rollout closes, or begins once another's remains are brought home.
func (m *Machine) finalise(now time.Time) (Action, bool) {
	moves := m.table()
	if m.s.FinalMove >= len(moves) {
		m.finalised(now)
		return Action{}, false
	}
	move := moves[m.s.FinalMove]
	m.s.Status.FinalisingStep = string(move)
	if action, routes := move.Route(); routes {
		return m.routeOnly(action)
	}
	if move == rollout.FinalLeave {
		return m.leave(), true
	}
	return m.finishPods(rollout.FinishAction(move)), true
}

func (m *Machine) finalised(now time.Time) {
	m.s.Status.FinalisingStep = ""
	if m.s.Stage != stageAdopt {
		m.close(m.s.Ending.Phase())
		return
	}
	if m.s.Ending == rollout.EndRollback {
		m.close(rollout.PhaseRolledBack)
		return
	}
	m.s.Stage, m.s.Adopted, m.s.FinalMove, m.s.Claimed, m.s.TakeOver = stageBegin, nil, 0, false, ""
	m.s.Pinned, m.s.Routed, m.s.CanaryServices, m.s.Status.Traffic, m.s.Leaving = no, no, false, nil, leavingAsk
	m.s.Shared, m.s.SharedClaim, m.s.SharedRouted = nil, "", false
	m.enterStep(m.s.Status.CurrentStepIndex, now)
}

func (m *Machine) finishPods(action rollout.FinishAction) Action {
	to := m.s.Ending.Side()
	if m.s.Stage == stageAdopt {
		to = rollout.SideStable
	}
	a := m.activity(ActFinish, rollout.WaitPods, map[rollout.FinishAction]string{
		rollout.FinishResume:      "give the workload its settings back and wait until it is whole, of the " + string(to) + " version",
		rollout.FinishRelease:     "take everything of this release off the workload",
		rollout.FinishFreeze:      "give the claim back and leave the split where it is",
		rollout.FinishAutoscalers: "give the autoscalers their limits back",
		rollout.FinishResumeAndRelease: "give the workload its settings back, wait until it is whole, of the " + string(to) +
			" version, and release it",
	}[action])
	a.Finish = &rollout.FinishRequest{Subject: m.subject(), Action: action, To: to, Template: m.s.Template, Change: m.setup.Spec.Change,
		PutBack: m.s.PutBack, Foreseen: m.setup.Foreseen}
	if m.s.Whole {
		a.Finish.Batch = m.batch(m.steps())
	}
	if m.setup.Spec.Strategy.Style == strategy.StyleCanary && m.s.Stage == stageFinal && to == rollout.SideNew {
		a.Finish.Extra = new(m.step().Replicas)
	}
	return a
}

// takePart takes part in a shared TrafficRouting. While another release gives its routes back, it waits as long as pods may take.
func (m *Machine) takePart(name string) Action {
	request := m.holding(name)
	request.DeadlineSeconds = m.setup.Spec.Policy.StepDeadlineSeconds
	return Action{Kind: ActHold, Hold: request, Summary: "take part in TrafficRouting " + name, waits: rollout.WaitTraffic,
		why: m.place() + ": taking part in TrafficRouting " + name}
}

// leave leaves the shared TrafficRouting; the last holder restores its routes.
func (m *Machine) leave() Action {
	name := m.setup.Spec.Strategy.TrafficRoutingRef
	if m.s.Adopted != nil && m.s.Stage == stageAdopt {
		name = m.s.Adopted.TrafficRouting
		if m.s.Shared == nil { // its holder is dead and forgotten: this release takes its place, so that the routes are given back
			return m.takePart(name)
		}
	}
	if m.s.Leaving == leavingRestore {
		return m.sharedRoute(rollout.RouteToStable, "give the routes of TrafficRouting "+name+" back")
	}
	return Action{Kind: ActLeave, Summary: "leave TrafficRouting " + name, waits: rollout.WaitTraffic,
		why:   m.place() + ": leaving TrafficRouting " + name,
		Leave: &rollout.LeaveTrafficRequest{HoldTrafficRequest: *m.holding(name), Restored: m.s.Leaving == leavingTell}}
}

// place says where the rollout is, for sentences.
func (m *Machine) place() string {
	switch m.s.Stage {
	case stageAdopt:
		return "bringing home what an earlier release left"
	case stageFinal:
		return finalWords[m.s.Ending]
	case stageBack:
		return m.stepOf() + " of the way back"
	case stageSteps:
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
	rollout.EndDetached: "letting go",
	rollout.EndGone:     "cleaning up after the deleted workload",
}
