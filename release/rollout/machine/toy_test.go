package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

var epoch = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// world is a toy of one workload and its routes. It does what the machine asks and checks, at each action, what must never happen.
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
	gone          bool
	// loose says that the pods are in the middle of a step.
	loose bool
	// placed says that the write of the claim was the first of the Move as well, so that releasing it is not enough. unheard, if it is not nil, says whether
	// that was done although the leg was stopped before it was answered.
	placed  bool
	unheard func() bool
	// taken says that somebody else has let the workload's own controller take the stable pods of a blue-green.
	taken bool
	// adopted is what an earlier release left; the first Begin answers it.
	adopted *rollout.Adopted
	actions []string
	// moves were the Moves.
	moves []rollout.MoveRequest
	// brought says that a Move of a step has answered.
	brought bool
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

// next asks what to do and notes it, starting activities.
func (w *world) next() Action {
	a := w.m.Next(w.now)
	s := w.m.Status()
	require.NotEmpty(w.t, s.Reason, "it is always said why: %v", w.actions)
	if s.FinishedAt == nil {
		require.NotNil(w.t, s.WaitingFor, "it is always said what is waited for")
	}
	if a.Kind == ActRest && a.Until == nil && !w.gone && (s.Paused || w.m.s.Trouble != nil && !w.m.s.Trouble.Pods) && (w.m.s.Stage == stageSteps || w.m.s.Stage == stageBack) {
		require.False(w.t, w.loose, "what is held is at rest: %v", w.actions)
	}
	if a.Kind == ActMove && !a.Move.Halt {
		w.loose = true
	}
	if a.Activity() {
		require.NotEmpty(w.t, a.Summary)
		w.m.Start(a)
	}
	return a
}

// do carries an action out in the world and answers it.
func (w *world) do(a Action) {
	w.brought = w.brought || a.Kind == ActMove && !a.Move.Halt
	w.m.Done(w.perform(a), w.now)
}

// perform carries an action out in the world.
func (w *world) perform(a Action) (r Result) {
	switch a.Kind {
	case ActBegin:
		w.actions = append(w.actions, "begin")
		w.claimed = true
		r.Begin = rollout.BeginResult{Replicas: w.size, Stable: "stable", StableHash: "s", StableTemplate: "stable template", Adopted: w.adopted, Placed: w.placed, Message: "begun"}
		w.adopted = nil
	case ActAskHolder:
		r.Holder = workloadops.ClaimHolderResult{Dead: true, Reason: "closed"}
	case ActHold:
		r.Hold = rollout.HoldTrafficResult{Claim: "shared", Shared: rollout.SharedTraffic{Name: a.Hold.Name, Routings: []strategy.Routing{{Service: "edge"}}}}
	case ActLeave:
		r.Leave = rollout.LeaveTrafficResult{Claim: "shared", Restore: !a.Leave.Restored, Shared: rollout.SharedTraffic{Routings: []strategy.Routing{{Service: "edge"}}}}
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
	if w.m.setup.Spec.Strategy.Style == strategy.StyleBlueGreen && !w.taken {
		stable = w.size
	}
	return rollout.MoveResult{Replicas: w.size, Updated: w.updated, UpdatedReady: w.updated, StableReady: stable, Canary: "canary", CanaryHash: "c", Template: "digest", Message: "numbers"}
}

func (w *world) move(q rollout.MoveRequest) {
	require.True(w.t, w.claimed, "nothing moves without the claim")
	if w.loose = !q.Rest && !q.Halt; q.Halt {
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
		require.False(w.t, w.pinned && target >= w.size, "no traffic ever meets a Service without pods: %v", w.actions)
	}
	if q.Native {
		require.False(w.t, w.pinned, "its own controller leaves no stable pod: %v", w.actions)
		w.loose, target = q.Replicas.StrVal != "100%", w.size // it may be far beyond the step by now
	}
	w.updated = max(w.updated, target)
}

func (w *world) route(a Action) rollout.RouteResult {
	if a.shared {
		w.actions = append(w.actions, "shared "+string(a.Route.Action))
		return rollout.RouteResult{Modified: true, GraceSeconds: 3}
	}
	w.actions = append(w.actions, string(a.Route.Action))
	if w.brought { // one that is stopped to new before its first step has the workload's own pods alone
		require.NotEqual(w.t, "own", a.Route.CanaryHash, "routes go by the pods that the steps have brought")
	}
	switch a.Route.Action {
	case rollout.RoutePin:
		require.False(w.t, w.m.setup.Spec.Strategy.Style == strategy.StylePartition && w.updated >= w.size, "a Service is pinned to pods that are there")
		w.pinned = true
	case rollout.RouteUnpin:
		w.pinned = false
	case rollout.RouteEnsure:
		if a.epoch == w.m.epoch && !a.restores { // it was decided for the step at which the rollout still is
			require.GreaterOrEqual(w.t, w.updated, w.target(w.m.step().Replicas), "pods first, then traffic: %v", w.actions)
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
		require.Zero(w.t, w.share, "a canary Service goes when no traffic goes to it")
		w.services = false
	}
	return rollout.RouteResult{Modified: true, GraceSeconds: 3}
}

func (w *world) finish(q rollout.FinishRequest) {
	w.actions = append(w.actions, string(q.Action)+" "+string(q.To))
	require.True(w.t, w.claimed, "a workload is released once: %v", w.actions)
	if q.Action == rollout.FinishResume || q.Action == rollout.FinishResumeAndRelease {
		switch {
		case q.To == rollout.SideNew && w.m.setup.Spec.Strategy.Style != strategy.StyleCanary:
			require.False(w.t, w.pinned, "the stable pods go only when no Service is pinned to them")
		case q.To == rollout.SideStable:
			require.Zero(w.t, w.share, "traffic leaves the new pods before they go: %v", w.actions)
		}
		w.updated, w.placed = 0, false
		if q.To == rollout.SideNew {
			w.updated = w.size
		}
	}
	switch q.Action {
	case rollout.FinishRelease, rollout.FinishResumeAndRelease:
		require.False(w.t, w.placed, "the new template is not left behind: %v", w.actions)
		require.False(w.t, w.pinned || w.services, "the claim goes last: %v", w.actions)
		w.claimed = false
	case rollout.FinishFreeze:
		w.claimed, w.frozen = false, true
	}
}

// drive goes on until the machine waits for a message, or is over; it lets the time pass that it asks for.
func (w *world) drive() Action {
	for range 1000 {
		a := w.next()
		switch {
		case a.Activity():
			w.do(a)
		case a.Kind == ActRest && a.Until != nil && w.m.Status().WaitingFor.Kind != rollout.WaitApproval:
			w.now = *a.Until
		default:
			return a
		}
	}
	require.Fail(w.t, "it never comes to rest", "%v", w.actions[len(w.actions)-20:])
	return Action{}
}

func (w *world) fail(kind failure.Kind, message string) {
	if r := w.m.running; r != nil && r.Kind == ActMove && !kind.System() {
		w.loose = false
	}
	w.m.Failed(Failure{Kind: kind, Message: message}, w.now)
}

func setupOf(style strategy.Style, traffic bool, steps ...strategy.Step) Setup {
	s := Setup{Claim: "rollout/default/shop/order@1", Asked: Asked{Record: "r1", CreatedAt: epoch, UnreachableBudgetSeconds: 120}}
	s.Spec.Namespace, s.Spec.Name = "shop", "order"
	s.Spec.WorkloadRef.Kind, s.Spec.WorkloadRef.Name = "Deployment", "order"
	s.Spec.Strategy = strategy.Strategy{Style: style, Steps: steps}
	s.Spec.Policy = strategy.Policy{StepDeadlineSeconds: 600, OnFailure: strategy.OnFailurePause, OnExpiry: strategy.OnFailurePause}
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
	require.Equal(t, "[begin PinStableService move 20% EnsureRoutes RestoreStableService move 100% EnsureRoutes RestoreStableService RouteTrafficToStable "+
		"RemoveCanaryService ResumeWorkload new ReleaseWorkloadControl new record]", fmt.Sprint(w.actions))
}
