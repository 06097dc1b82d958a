package machine

import (
	"time"

	"slipway.io/slipway/release/rollout"
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

// stoppable says whether the action may be stopped half way: what may wait for long. What is short, and would have to be done again in any
// case, is not.
func (a Action) stoppable() bool {
	if a.Kind == ActBegin {
		return a.Begin.Unsettled == rollout.UnsettledWait
	}
	return a.Kind == ActHold || a.party()
}

// Result is what an action's activity answered; exactly the field of the action's kind is set.
type Result struct {
	Begin  *rollout.BeginResult
	Holder *workloadops.ClaimHolderResult
	Hold   *rollout.HoldTrafficResult
	Move   *rollout.MoveResult
	Route  *rollout.RouteResult
	Finish *rollout.FinishResult
	Leave  *rollout.LeaveTrafficResult
}
