package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

var epoch = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// world simulates one workload and its routes. It executes the machine's actions and checks the invariants at each of
// them.
type world struct {
	t             require.TestingT
	m             *Machine
	now           time.Time
	size, updated int32
	pinned        bool
	share         int32
	services      bool
	claimed       bool
	frozen        bool
	workloadLost  bool
	// noGrace is true if changed routes take effect at once.
	noGrace bool
	// unsettled is true while the pods are in the middle of a step.
	unsettled bool
	// templateWritten is true if the write of the claim also began the Move, so that releasing the claim is not enough.
	// resultLost, if not nil, reports whether that write was made although the leg was stopped before its result
	// arrived.
	templateWritten bool
	resultLost      func() bool
	// crash, if not nil, decides before each part of a leg whether its worker has died: the next attempt keeps this many
	// of the executed parts.
	crash func(done []Part) (kept int)
	// stableReplaced is true if another client let the workload's own controller replace the stable pods of a
	// blue-green.
	stableReplaced bool
	// adopted is what an earlier release left; the first Begin returns it.
	adopted *rollout.Adopted
	actions []string
	// moves are the requests of all Moves.
	moves []rollout.MoveRequest
	// reportedMoves is how many Moves of steps have returned, without those whose results are lost.
	reportedMoves int
}

func newWorld(t require.TestingT, setup Setup, size int32) *world {
	w := &world{t: t, now: epoch, size: size}
	w.m = NewMachine(setup, w.now)
	return w
}

func (w *world) target(r intstr.IntOrString) int32 {
	n, err := intstr.GetScaledValueFromIntOrPercent(&r, int(w.size), true)
	require.NoError(w.t, err)
	if r.Type == intstr.String && r.StrVal != "100%" && w.size > 1 {
		n = min(n, int(w.size)-1)
	}
	return min(int32(n), w.size)
}

// next asks for the next action and starts it.
func (w *world) next() Action {
	a := w.m.Next(w.now)
	s := w.m.Status()
	require.NotEmpty(w.t, s.Reason, "there is always a reason: %v", w.actions)
	if s.FinishedAt == nil {
		require.NotNil(w.t, s.WaitingFor, "the status always has WaitingFor")
	}
	if a.Kind == ActWait && a.Until == nil && !w.workloadLost &&
		(s.Paused || w.m.s.Trouble != nil && !w.m.s.Trouble.Pods) &&
		(w.m.s.Stage == stageSteps || w.m.s.Stage == stageRollback) {
		require.False(w.t, w.unsettled, "a held rollout has settled pods: %v", w.actions)
	}
	if a.Kind == ActMove && !a.Move.Halt {
		w.unsettled = true
	}
	if a.Activity() {
		require.NotEmpty(w.t, a.Summary)
		w.m.Start(a)
	}
	return a
}

// send passes a command to the machine as the workflow does: the running action ends first, stopped if it may take
// long, except for an approval.
func (w *world) send(c rollout.Command, now time.Time) (audit.Outcome, string) {
	if c.Verb != rollout.VerbApprove {
		w.endAction()
	}
	return w.m.Command(c, now)
}

// hint passes a hint to the machine as the workflow does.
func (w *world) hint(o rollout.Observed, now time.Time) {
	w.endAction()
	w.m.Observed(o, now)
}

func (w *world) endAction() {
	switch r := w.m.running; {
	case r == nil:
	case r.Stoppable():
		w.m.Stopped()
	default:
		w.do(*r)
	}
}

// do executes an action and returns its result to the machine.
func (w *world) do(a Action) {
	if a.Kind == ActMove && !a.Move.Halt {
		w.reportedMoves++
	}
	w.m.Done(w.perform(a), w.now)
}

// perform executes an action.
func (w *world) perform(a Action) (r Result) {
	switch a.Kind {
	case ActBegin:
		w.actions = append(w.actions, "begin")
		w.claimed = true
		r.Begin = rollout.BeginResult{Replicas: w.size, Stable: "stable", StableHash: "s",
			StableTemplate: "stable template", Adopted: w.adopted, TemplateWritten: w.templateWritten, Message: "begun"}
		w.adopted = nil
	case ActAskHolder:
		r.Holder = workload.ClaimHolderResult{Dead: true, Reason: "closed"}
	case ActJoinTraffic:
		r.Hold = rollout.HoldTrafficResult{Claim: "shared",
			Shared: rollout.SharedTraffic{Name: a.Hold.Name, Routings: []strategy.Routing{{Service: "edge"}}}}
	case ActLeaveTraffic:
		r.Leave = rollout.LeaveTrafficResult{Claim: "shared", Restore: !a.Leave.Restored,
			Shared: rollout.SharedTraffic{Routings: []strategy.Routing{{Service: "edge"}}}}
	case ActMove:
		w.move(*a.Move)
		w.moves = append(w.moves, *a.Move)
		r.Pods = w.numbers()
	case ActRoute:
		r.Route = w.route(a)
	case ActFinish:
		w.finish(*a.Finish)
		r.Pods = w.numbers()
		switch {
		case a.Finish.Action == rollout.FinishAutoscalers:
			r.Pods = rollout.MoveResult{}
		case a.Finish.To == rollout.SideNew && w.m.setup.Spec.Strategy.Style == strategy.StyleCanary:
			r.Pods.Canary, r.Pods.CanaryHash = "own", "own"
		}
	case ActAskWindow:
		r.Window = w.opening(*a.Window)
	case ActComplete:
		w.actions = append(w.actions, "record")
	}
	return r
}

func (w *world) numbers() rollout.MoveResult {
	stable := w.size - w.updated
	if w.m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen && !w.stableReplaced {
		stable = w.size
	}
	return rollout.MoveResult{Replicas: w.size, Updated: w.updated, UpdatedReady: w.updated, StableReady: stable,
		Canary: "canary", CanaryHash: "c", Template: "digest", Message: "numbers"}
}

func (w *world) move(q rollout.MoveRequest) {
	require.True(w.t, w.claimed, "nothing moves without the claim")
	if w.unsettled = !q.Settle && !q.Halt; q.Halt {
		w.actions = append(w.actions, "halt")
		return
	}
	target := w.target(q.Replicas)
	if q.KeepStable {
		target = max(min(target, w.size-1), 0)
	}
	if q.Back {
		w.actions = append(w.actions, "back "+q.Replicas.String())
		require.Zero(w.t, w.share, "traffic leaves before the pods do")
		n, _ := intstr.GetScaledValueFromIntOrPercent(&q.Replicas, int(q.From), true)
		w.updated = min(w.updated, max(0, q.From-int32(n)))
		return
	}
	w.actions = append(w.actions, "move "+q.Replicas.String())
	if q.Style == strategy.StylePartition && target > w.updated {
		require.False(w.t, w.pinned && target >= w.size, "no Service ever selects zero pods: %v", w.actions)
	}
	if q.Native {
		require.False(w.t, w.pinned, "the workload's own controller leaves no stable pod: %v", w.actions)
		w.unsettled, target = q.Replicas.StrVal != "100%", w.size // it may be far beyond the step by now
	}
	w.updated = max(w.updated, target)
}

func (w *world) route(a Action) rollout.RouteResult {
	if a.shared {
		w.actions = append(w.actions, "shared "+string(a.Route.Action))
		return rollout.RouteResult{Modified: true, GraceSeconds: 3}
	}
	w.actions = append(w.actions, string(a.Route.Action))
	// A rollout that is stopped to new before its first step, or after a lost one, has only the workload's own pods.
	if w.reportedMoves > 0 {
		require.NotEqual(w.t, "own", a.Route.CanaryHash, "routes select the pods that the steps created")
	}
	switch a.Route.Action {
	case rollout.RoutePin:
		require.False(w.t, w.m.setup.Spec.Strategy.Style == strategy.StylePartition && w.updated >= w.size,
			"a Service is pinned only to existing pods")
		w.pinned = true
	case rollout.RouteUnpin:
		w.pinned = false
	case rollout.RouteEnsure:
		if !a.restores {
			require.GreaterOrEqual(w.t, w.updated, w.target(w.m.step().Replicas), "pods first, then traffic: %v",
				w.actions)
		}
		require.NotZero(w.t, w.updated)
		w.services = !a.Route.NoCanary
		if t := a.Route.Traffic.Weight; t != nil {
			w.share = *t
		}
	case rollout.RouteToNew:
		require.GreaterOrEqual(w.t, w.updated, w.target(w.m.step().Replicas))
		w.share = 100
	case rollout.RouteToStable:
		w.share = 0
	case rollout.RouteRemoveCanary:
		require.Zero(w.t, w.share, "a canary Service is deleted only without traffic")
		w.services = false
	}
	return rollout.RouteResult{Modified: !w.noGrace, GraceSeconds: 3}
}

func (w *world) finish(q rollout.FinishRequest) {
	w.actions = append(w.actions, string(q.Action)+" "+string(q.To))
	require.True(w.t, w.claimed, "a workload is released once: %v", w.actions)
	if q.Action == rollout.FinishResume || q.Action == rollout.FinishResumeAndRelease {
		switch {
		case q.To == rollout.SideNew && w.m.setup.Spec.Strategy.Style != strategy.StyleCanary:
			require.False(w.t, w.pinned, "the stable pods are replaced only when no Service is pinned to them")
		case q.To == rollout.SideStable:
			require.Zero(w.t, w.share, "traffic leaves the new pods before they are deleted: %v", w.actions)
		}
		w.updated, w.templateWritten = 0, false
		if q.To == rollout.SideNew {
			w.updated = w.size
		}
	}
	switch q.Action {
	case rollout.FinishRelease, rollout.FinishResumeAndRelease:
		require.False(w.t, w.templateWritten, "the new template is removed before the release: %v", w.actions)
		require.False(w.t, w.pinned || w.services, "the claim is released last: %v", w.actions)
		w.claimed = false
	case rollout.FinishFreeze:
		w.claimed, w.frozen = false, true
	}
}

// drive continues until the machine waits for a command or has ended. It advances the clock through timed waits.
func (w *world) drive() Action {
	for range 1000 {
		a := w.next()
		switch {
		case a.Activity():
			w.do(a)
		case a.Kind == ActWait && a.Until != nil && w.m.Status().WaitingFor.Kind != rollout.WaitApproval:
			w.now = *a.Until
		default:
			return a
		}
	}
	require.Fail(w.t, "it never waits for a command", "%v", w.actions[len(w.actions)-20:])
	return Action{}
}

func (w *world) fail(kind failure.Kind, message string) {
	if r := w.m.running; r != nil && r.Kind == ActMove && !kind.System() {
		w.unsettled = false
	}
	w.m.Failed(Failure{Kind: kind, Message: message}, w.now)
}

func setupOf(style strategy.Style, traffic bool, steps ...strategy.Step) Setup {
	s := Setup{Claim: "rollout/default/shop/order@1",
		Request: Request{Record: "r1", CreatedAt: epoch, UnreachableBudgetSeconds: 120}}
	s.Spec.Namespace, s.Spec.Name = "shop", "order"
	s.Spec.WorkloadRef.Kind, s.Spec.WorkloadRef.Name = "Deployment", "order"
	s.Spec.Strategy = strategy.Strategy{Style: style, Steps: steps}
	s.Spec.Policy = strategy.Policy{StepDeadlineSeconds: 600, OnFailure: strategy.OnFailurePause,
		OnExpiry: strategy.OnFailurePause}
	if traffic {
		s.Spec.Strategy.Routings = []strategy.Routing{{Service: "order", HTTPRoute: "order", GraceSeconds: 3}}
	}
	return s
}

func aStep(replicas string, weight int32, pause int64) strategy.Step {
	s := strategy.Step{Replicas: intstr.Parse(replicas)}
	if weight >= 0 {
		s.Traffic = &weight
	}
	if pause >= 0 {
		s.PauseSeconds = &pause
	}
	return s
}

func TestToyRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setupOf(strategy.StylePartition, true, aStep("20%", 20, 60), aStep("100%", 100, 0)), 10)
	require.Equal(t, ActClose, w.drive().Kind)
	require.Equal(t, "[begin PinStableService move 20% EnsureRoutes RestoreStableService move 100% EnsureRoutes "+
		"RestoreStableService RouteTrafficToStable "+
		"RemoveCanaryService ResumeWorkload new ReleaseWorkloadControl new record]", fmt.Sprint(w.actions))
}
