package machine

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workload"
)

// ActionKind is what the workflow has to do.
type ActionKind string

// The kinds of action. All but the last three are one activity each.
const (
	ActBegin        ActionKind = "begin"
	ActAskHolder    ActionKind = "askHolder"
	ActJoinTraffic  ActionKind = "holdTraffic"
	ActMove         ActionKind = "move"
	ActRoute        ActionKind = "route"
	ActFinish       ActionKind = "finish"
	ActLeaveTraffic ActionKind = "leaveTraffic"
	ActComplete     ActionKind = "complete"
	ActAskWindow    ActionKind = "askWindow"
	// ActWait waits for a command or signal, and until Until if that is set.
	ActWait ActionKind = "rest"
	// ActClose ends the workflow, ActSupersede continues it as the newer release.
	ActClose     ActionKind = "close"
	ActSupersede ActionKind = "supersede"
)

// Action is what to do next. Exactly the request of its kind is set.
type Action struct {
	Kind ActionKind
	// Summary describes it in a few words, for Temporal's UI.
	Summary string
	// Until is when a wait ends by itself; nil: only a command or signal ends it.
	Until  *time.Time
	Begin  *rollout.BeginRequest
	Holder *workload.ClaimHolderRequest
	Hold   *rollout.HoldTrafficRequest
	Move   *rollout.MoveRequest
	Route  *rollout.RouteRequest
	Finish *rollout.FinishRequest
	Leave  *rollout.LeaveTrafficRequest
	Window *window.Question
	// NoPickUpTimeout is true if the party was found unreachable: the activity waits for a worker without a time limit.
	NoPickUpTimeout bool

	waitKind rollout.WaitKind
	// reason is the sentence that the status shows while the action lasts.
	reason string
	// shared is true if a Route is the TrafficRouting's, not the rollout's own.
	shared bool
	// restores is true if a Route reverts a change by another client.
	restores bool
}

// Activity reports whether the action is an activity.
func (a Action) Activity() bool {
	return a.Kind != ActWait && a.Kind != ActClose && a.Kind != ActSupersede
}

// OnParty reports whether the party's worker executes the action, as part of a leg.
func (a Action) OnParty() bool {
	return a.Kind == ActBegin || a.Kind == ActMove || a.Kind == ActRoute || a.Kind == ActFinish
}

// deadline returns the part of a leg's action that limits its time, and the key under which its used time is kept: it
// differs between the actions of a step. nil for other actions.
func (a Action) deadline() (subject *rollout.Subject, key string) {
	switch a.Kind {
	case ActBegin:
		return &a.Begin.Subject, string(a.Kind)
	case ActMove:
		return &a.Move.Subject, fmt.Sprintf("%s %t %t", a.Kind, a.Move.Halt, a.Move.Inspect)
	case ActRoute:
		return &a.Route.Subject, fmt.Sprintf("%s %t %t", a.Route.Action, a.shared, a.restores)
	case ActFinish:
		return &a.Finish.Subject, string(a.Finish.Action)
	}
	return nil, ""
}

// SpentSeconds returns how much of its deadline an action of a leg had used before it was started.
func (a Action) SpentSeconds() int64 {
	if subject, _ := a.deadline(); subject != nil {
		return subject.SpentSeconds
	}
	return 0
}

// Halts reports whether the action settles what an interrupted Move has left.
func (a Action) Halts() bool { return a.Kind == ActMove && a.Move.Halt }

// Stoppable reports whether the action is stopped half way for a command. Only what may wait for long is, as what asks
// the home cluster may while that is unreachable: a short action would have to be repeated anyway.
func (a Action) Stoppable() bool { return a.Kind == ActJoinTraffic || a.OnParty() || a.Asks() }

// Asks reports whether the action only asks the centre and changes nothing: the next action need not wait for its end.
func (a Action) Asks() bool { return a.Kind == ActAskHolder || a.Kind == ActAskWindow }

// Result is the result of an action's activity. Exactly the field of the action's kind is set; Pods is that of ActMove
// and ActFinish.
type Result struct {
	Begin  rollout.BeginResult
	Holder workload.ClaimHolderResult
	Hold   rollout.HoldTrafficResult
	Pods   rollout.MoveResult
	Route  rollout.RouteResult
	Leave  rollout.LeaveTrafficResult
	Window window.Answer
}

// activity returns an activity. Its summary, prefixed by the rollout's position, is also the reason in the status.
func (m *Machine) activity(kind ActionKind, waits rollout.WaitKind, what string) Action {
	text := m.position() + ": " + what
	return Action{Kind: kind, waitKind: waits, Summary: text, reason: text}
}

// move returns the Move that creates the step's pods, or inspects them while the step pauses.
func (m *Machine) move(look bool) Action {
	step, s := m.step(), m.setup.Spec.Strategy
	// The step's own pods come later, when its Services are prepared. After a crash the leg goes on at once: settling
	// would only make more writes.
	lookBefore := look && m.s.Status.CurrentStepState == rollout.StateBeforeUpgrade
	goesOn := lookBefore && m.s.RepeatsSteps
	back, native := m.s.Stage == stageRollback, m.native() && !lookBefore
	request := &rollout.MoveRequest{Subject: m.subject(), Step: m.s.Status.CurrentStepIndex, Style: s.Style,
		Replicas: step.Replicas, Change: m.setup.Spec.Change, Template: m.s.Status.TemplateDigest,
		OverwriteDrift: m.s.OverwriteDrift, FailureThreshold: s.FailureThreshold, Settle: !native && !goesOn &&
			(m.pauses() && !m.briefPauseAt(m.s.Status.CurrentStepIndex) || m.stepRoutes()),
		Native: native, CanaryMetadata: s.PatchPodTemplateMetadata, Inspect: look, Back: back,
		Predicted: m.setup.Predicted, KeepStable: s.Style == strategy.StylePartition && !back &&
			m.s.Pinned != no, ReportStuck: !back && !look && m.s.StuckPod == ""}
	if back {
		request.From = m.s.RollbackFrom
	} else if m.declared() {
		request.Batch = m.stepBatch()
	}
	if m.onlyNumbers() {
		request.Settle = true // it leaves nothing to settle
	} else if lookBefore {
		request.Replicas = intstr.FromInt32(m.s.Status.CanaryReplicas)
	}
	a := Action{Kind: ActMove, Move: request, waitKind: rollout.WaitPods}
	m.describeMove(&a, look)
	return a
}

// describeMove sets what users read about a Move.
func (m *Machine) describeMove(a *Action, look bool) {
	step := m.step()
	replicas := step.Replicas.String()
	switch {
	case look && m.s.RepeatsSteps:
		a.Summary = fmt.Sprintf("%s: inspect the pods after a crash", m.stepLabel())
		a.reason = fmt.Sprintf("%s: a worker died in the middle of it: inspecting the pods of %s", m.stepLabel(),
			m.workloadName())
	case look:
		a.Summary = fmt.Sprintf("%s: inspect a change by another client", m.stepLabel())
		a.reason = fmt.Sprintf("%s: another client has changed %s: inspecting it", m.stepLabel(), m.workloadName())
	case m.onlyNumbers():
		a.Summary = fmt.Sprintf("%s: number pods up to %s", m.stepLabel(), replicas)
		a.reason = fmt.Sprintf("%s: giving the rollout-id %s to %s of the pods; none is replaced, as the pod template is "+
			"the same", m.stepLabel(), m.setup.Spec.RolloutID, replicas)
		if m.s.StuckPod != "" {
			a.reason += ": " + m.s.StuckPod
		}
	case m.s.Stage == stageRollback:
		a.Summary = fmt.Sprintf("%s: pods back, %s", m.stepLabel(), replicas)
		a.reason = fmt.Sprintf("%s of the rollback: waiting for %s of the new pods to be of the stable version again",
			m.stepLabel(), replicas)
	default:
		a.Summary = fmt.Sprintf("%s: pods to %s", m.stepLabel(), replicas)
		a.reason = fmt.Sprintf("%s: waiting for %s of the pods to be of the new version and ready", m.stepLabel(),
			replicas)
		if m.s.StuckPod != "" {
			a.reason += ": " + m.s.StuckPod
		}
	}
}

// halt returns the Move that settles the pods that a Move left in the middle of a step: from now on the rollout waits.
func (m *Machine) halt(since string) Action {
	a := m.move(false)
	a.Move.Halt, a.Move.OverwriteDrift, a.Move.ReportStuck = true, false, false
	a.Move.Back = a.Move.Back && !m.s.CountPending // no pod was rolled back yet
	a.Summary = m.position() + ": settle the pods"
	a.reason = fmt.Sprintf("%s: settling its pods where they are, since %s", m.position(), since)
	return a
}

// pauses reports whether the current step pauses after its pods, as far as is known now.
func (m *Machine) pauses() bool {
	return m.pausesAt(m.s.Status.CurrentStepIndex)
}

func (m *Machine) pausesAt(n int) bool {
	p := m.setup.Spec.Strategy.Steps[n-1].PauseSeconds
	return !m.s.Promoted && !m.skipsPauseAt(n) && (p == nil || *p > 0)
}

// maxBriefPause is the longest pause that a leg waits through.
const maxBriefPause = 15 * time.Second

// briefPauseAt reports whether a step's pause ends so soon that its pods stay in the state in which they move: paused,
// behind the minReadySeconds gate. A settled workload is safe for any time, but settling takes three writes. Where
// traffic moves, each step settles.
func (m *Machine) briefPauseAt(n int) bool {
	st := m.setup.Spec.Strategy
	p := st.Steps[n-1].PauseSeconds
	return !m.singleActionLegs() && m.s.Stage == stageSteps && st.Style == strategy.StylePartition &&
		!st.HasTraffic() && p != nil && *p > 0 && time.Duration(*p)*time.Second <= maxBriefPause
}

// native reports whether the workload's own controller may replace all remaining pods from here, because no
// intermediate number of pods matters any more: no step from this one on pauses or moves traffic, except a last one
// that takes all pods. Not with failureThreshold: the controller would not skip the pods that it tolerates.
func (m *Machine) native() bool {
	st := m.setup.Spec.Strategy
	if m.s.Stage != stageSteps || st.Style != strategy.StylePartition || st.FailureThreshold != nil ||
		m.s.Pinned != no || m.onlyNumbers() {
		return false
	}
	for n := m.s.Status.CurrentStepIndex; n <= m.steps(); n++ {
		if m.pausesAt(n) || st.HasTraffic() && st.Steps[n-1].Routes() && !m.skipsPauseAt(n) {
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
		LeaveOut:  m.declared(),
		Overwrite: m.overwrites() || m.s.Ending == rollout.EndRollback || m.s.Ending == rollout.EndDeleted}
	if s.PatchPodTemplateMetadata != nil {
		request.CanaryLabels = s.PatchPodTemplateMetadata.Labels
	}
	what := routeSummaries[action]
	if action == rollout.RouteEnsure {
		what = "send " + describeTraffic(traffic) + " to the new version"
	}
	a := m.activity(ActRoute, rollout.WaitTraffic, what)
	a.Route = request
	return a
}

// overwrites reports whether a retry has routes written over edits by another client.
func (m *Machine) overwrites() bool {
	return m.s.OverwriteDrift || m.s.OverwriteRouteDrift && m.s.Stage == stageSteps
}

var routeSummaries = map[rollout.RouteAction]string{
	rollout.RoutePin:          "pin the stable Service to the stable pods",
	rollout.RouteUnpin:        "restore the stable Service's selector",
	rollout.RouteToStable:     "restore the routes",
	rollout.RouteToNew:        "send all traffic to the new version",
	rollout.RouteRemoveCanary: "delete the canary Service",
}

func describeTraffic(t strategy.Traffic) string {
	if t.Weight != nil {
		return fmt.Sprintf("%d%% of the traffic", *t.Weight)
	}
	return fmt.Sprintf("requests that meet %s", phrase.Count(len(t.Matches), "match"))
}

// routeOnly returns a route change that requests no traffic split.
func (m *Machine) routeOnly(action rollout.RouteAction) (Action, bool) {
	return m.route(action, strategy.Traffic{}), true
}

// sharedRoute returns a change of the TrafficRouting's routes, under the claim that all its holders share.
func (m *Machine) sharedRoute(action rollout.RouteAction, summary string) Action {
	shared := *m.s.Shared
	subject := m.subject()
	subject.Claim = m.s.SharedClaim
	if former := workload.ParseHolder(subject.Claim).WorkflowID; former != subject.Claim && subject.TakeOver == "" {
		subject.TakeOver, subject.Ended = former, false // an earlier build wrote the claim without an engine
	}
	return Action{Kind: ActRoute, shared: true, Summary: summary, waitKind: rollout.WaitTraffic,
		reason: m.position() + ": " + summary, Route: &rollout.RouteRequest{Subject: subject, Action: action,
			Routings: shared.Routings, Traffic: shared.Traffic, StableHash: m.s.StableHash,
			CanaryHash: m.s.CanaryHash, NoCanary: true, Overwrite: m.overwrites(), Declared: m.declared()}}
}

// finalMoves returns the finalising table that applies now.
func (m *Machine) finalMoves() []rollout.FinalMove {
	s := m.setup.Spec.Strategy
	// Autoscalers were pinned by this release, or by the earlier one whose remains it was rolling back.
	pins := s.Style == strategy.StyleBlueGreen || m.s.Adopted != nil && m.s.Adopted.Style == strategy.StyleBlueGreen
	b := rollout.Borrowed{Style: s.Style, Traffic: s.HasTraffic() && !m.s.AlreadyComplete,
		Services: !s.DisableGenerateCanaryService,
		Shared:   s.TrafficRoutingRef != "" && !m.s.AlreadyComplete, Untouched: m.untouched(), Autoscalers: pins}
	ending := m.s.Ending
	if a := m.s.Adopted; m.s.Stage == stageAdopt && a != nil {
		b = rollout.Borrowed{Style: a.Style, Traffic: len(a.Routings) > 0, Services: !a.NoCanary,
			Shared: a.TrafficRouting != ""}
		ending = rollout.EndRollback
	}
	return rollout.FinalMoves(b, ending)
}

// untouched reports whether this release has changed nothing: it has its claim at most.
func (m *Machine) untouched() bool {
	return m.s.Adopted == nil && !m.s.MoveStarted && m.s.untouched()
}

// finalise returns the next move of finalising. After the last one the rollout closes, or begins, if it was an earlier
// release's remains that were rolled back.
func (m *Machine) finalise(now time.Time) (Action, bool) {
	moves := m.finalMoves()
	if m.s.FinalMoveIndex >= len(moves) {
		m.finalised(now)
		return Action{}, false
	}
	move := moves[m.s.FinalMoveIndex]
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
	m.s.clearForBeginning()
	m.s.Stage = stageBegin
	m.enterStep(m.s.Status.CurrentStepIndex, now)
}

func (m *Machine) finishPods(action rollout.FinishAction) Action {
	to := m.s.Ending.Side()
	if m.s.Stage == stageAdopt {
		to = rollout.SideStable
	}
	a := m.activity(ActFinish, rollout.WaitPods, map[rollout.FinishAction]string{
		rollout.FinishResume: "restore the workload's settings and wait until every pod is of the " + string(to) +
			" version",
		rollout.FinishRelease:     "remove everything of this release from the workload",
		rollout.FinishFreeze:      "release the claim and leave the split in place",
		rollout.FinishAutoscalers: "restore the autoscalers' limits",
		rollout.FinishResumeAndRelease: "restore the workload's settings, wait until every pod is of the " +
			string(to) +
			" version, and release it",
	}[action])
	a.Finish = &rollout.FinishRequest{Subject: m.subject(), Action: action, To: to, Template: m.s.Status.TemplateDigest,
		StableTemplate: m.s.Status.StableTemplateDigest, Change: m.setup.Spec.Change,
		OverwriteDrift: m.s.OverwriteDrift, Predicted: m.setup.Predicted}
	if m.s.AlreadyComplete && to == rollout.SideNew {
		a.Finish.Batch = m.batch(m.steps())
	}
	if m.setup.Spec.Strategy.Style == strategy.StyleCanary && m.s.Stage == stageFinal && to == rollout.SideNew {
		a.Finish.ExtraReplicas = new(m.step().Replicas)
	}
	return a
}

// joinRequest returns the action that joins a shared TrafficRouting. It waits, within the step deadline, while another
// release restores the routes.
func (m *Machine) joinRequest(name string) Action {
	request := m.holdRequest(name)
	request.DeadlineSeconds = m.setup.Spec.Policy.StepDeadlineSeconds
	return Action{Kind: ActJoinTraffic, Hold: request, Summary: "join TrafficRouting " + name,
		waitKind: rollout.WaitTraffic, reason: m.position() + ": joining TrafficRouting " + name}
}

// leave returns the next action of leaving the shared TrafficRouting. The last holder restores its routes.
func (m *Machine) leave() Action {
	name := m.setup.Spec.Strategy.TrafficRoutingRef
	if m.s.Adopted != nil && m.s.Stage == stageAdopt {
		name = m.s.Adopted.TrafficRouting
		// its holder is dead and forgotten: this release replaces it, so that the routes get restored
		if m.s.Shared == nil {
			return m.joinRequest(name)
		}
	}
	if m.s.Leaving == leavingRestore {
		return m.sharedRoute(rollout.RouteToStable, "restore the routes of TrafficRouting "+name)
	}
	return Action{Kind: ActLeaveTraffic, Summary: "leave TrafficRouting " + name, waitKind: rollout.WaitTraffic,
		reason: m.position() + ": leaving TrafficRouting " + name,
		Leave: &rollout.LeaveTrafficRequest{HoldTrafficRequest: *m.holdRequest(name),
			Restored: m.s.Leaving == leavingReport}}
}

// position returns where the rollout is, for sentences.
func (m *Machine) position() string {
	switch m.s.Stage {
	case stageAdopt:
		return "rolling back what an earlier release left"
	case stageFinal:
		return endingNames[m.s.Ending]
	case stageRollback:
		return m.stepLabel() + " of the rollback"
	case stageSteps:
		return m.stepLabel()
	default:
		return "before the first step"
	}
}

var endingNames = map[rollout.Ending]string{
	rollout.EndSuccess:  "finishing",
	rollout.EndNew:      "finishing now",
	rollout.EndRollback: "rolling back",
	rollout.EndFrozen:   "freezing",
	rollout.EndDetached: "detaching",
	rollout.EndDeleted:  "cleaning up after the deleted workload",
}
