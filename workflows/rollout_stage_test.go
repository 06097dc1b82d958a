package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// fakeParty plays a party's worker and the centre: it keeps pods and routes, and records the calls in order.
type fakeParty struct {
	*testsuite.TestWorkflowEnvironment
	origins
	t *testing.T
	// size is the workload's size, updated the number of new pods, share the new version's share of the traffic.
	size, updated, share int32
	pinned               bool
	// calls are the executed activities, as text; upserts counts writes of search attributes.
	calls   []string
	upserts int
	// fail scripts failures of a call, by its text; each failure is used once.
	fail map[string][]error
	// before is called when an activity starts.
	before func(call string)
	// adopted is the state that an earlier release left; holderDead is the centre's answer about another release's
	// claim.
	adopted    *rollout.Adopted
	holderDead bool
	restore    bool
	// grace is how long routes take to become effective, in seconds.
	grace    int64
	recorded *rollout.Status
}

func newParty(t *testing.T, size int32) *fakeParty {
	var suite testsuite.WorkflowTestSuite
	return newPartyOf(t, size, &suite)
}

func newPartyOf(t *testing.T, size int32, suite *testsuite.WorkflowTestSuite) *fakeParty {
	p := &fakeParty{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, size: size,
		fail: map[string][]error{}}
	p.SetWorkerOptions(worker.Options{Interceptors: interceptors()})
	p.RegisterWorkflowWithOptions(Rollout, workflow.RegisterOptions{Name: TypeRollout})
	p.SetStartTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	p.SetTestTimeout(20 * time.Second)
	register := func(name string, fn any) {
		p.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(origin.ActivityCheck, p.checkOrigin)
	register(machine.ActivityLeg, p.leg)
	register(rollout.ActivityHoldTraffic, p.hold)
	register(rollout.ActivityLeaveTraffic, p.leave)
	register(rollout.ActivityCompleteRollout, p.complete)
	register(workload.ActivityClaimHolder, func(context.Context,
		workload.ClaimHolderRequest) (workload.ClaimHolderResult, error) {
		if err := p.called("askHolder"); err != nil {
			return workload.ClaimHolderResult{}, err
		}
		return workload.ClaimHolderResult{Dead: p.holderDead, Reason: "as scripted"}, nil
	})
	p.OnUpsertMemo(mock.Anything).Return(nil).Maybe()
	p.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(mock.Arguments) { p.upserts++ }).Return(nil).Maybe()
	return p
}

// called records a call and returns its scripted failure, if any.
func (p *fakeParty) called(call string) error {
	p.calls = append(p.calls, call)
	if p.before != nil {
		p.before(call)
	}
	if queue := p.fail[call]; len(queue) > 0 {
		p.fail[call] = queue[1:]
		return queue[0]
	}
	return nil
}

// takes makes each leg take some time.
func (p *fakeParty) takes(d time.Duration) {
	p.OnActivity(machine.ActivityLeg, mock.Anything, mock.Anything).After(d).Return(p.leg)
}

func (p *fakeParty) numbers(message string) rollout.MoveResult {
	return rollout.MoveResult{Replicas: p.size, Target: p.updated, Updated: p.updated, UpdatedReady: p.updated,
		StableReady: p.size,
		Canary:      "canary-1", CanaryHash: "c1", Template: "digest", Message: message}
}

// leg executes a leg like a party's worker, except for short pauses, which it leaves to the workflow's timers.
func (p *fakeParty) leg(ctx context.Context, in machine.LegRequest) (machine.LegResult, error) {
	l := machine.NewLeg(in, nil)
	for {
		a, on := l.Next(p.Now())
		if !on {
			return machine.LegResult{Parts: l.Parts()}, nil
		}
		var r machine.Result
		var err error
		switch a.Kind {
		case machine.ActBegin:
			r.Begin, err = p.begin(ctx, *a.Begin)
		case machine.ActMove:
			r.Pods, err = p.move(ctx, *a.Move)
		case machine.ActFinish:
			r.Pods, err = p.finish(ctx, *a.Finish)
		default:
			r.Route, err = p.route(ctx, *a.Route)
		}
		if kindOf(err) == failure.NotReady && len(l.Parts()) > 0 {
			return machine.LegResult{Parts: l.Parts(), Unfinished: true}, nil
		}
		if err != nil {
			return machine.LegResult{}, withParts(err, l.Parts())
		}
		l.Done(a, r, p.Now(), p.Now())
	}
}

// withParts adds the completed actions of a leg to a failure that is not retried.
func withParts(err error, parts []machine.Part) error {
	var app *temporal.ApplicationError
	var details failure.Details
	if !errors.As(err, &app) || !app.NonRetryable() {
		return err
	}
	if app.HasDetails() {
		_ = app.Details(&details)
	}
	details.Leg, _ = json.Marshal(parts)
	return temporal.NewApplicationErrorWithOptions(app.Message(), app.Type(),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{details}})
}

func (p *fakeParty) begin(_ context.Context, in rollout.BeginRequest) (rollout.BeginResult, error) {
	call := "begin"
	if in.TakeOver != "" {
		call = "begin over " + in.TakeOver
	}
	if err := p.called(call); err != nil {
		return rollout.BeginResult{}, err
	}
	r := rollout.BeginResult{Replicas: p.size, Stable: "stable-1", StableHash: "s1", Message: "begun",
		Adopted: p.adopted}
	p.adopted = nil
	return r, nil
}

func (p *fakeParty) move(_ context.Context, in rollout.MoveRequest) (rollout.MoveResult, error) {
	call := fmt.Sprintf("move %s", in.Replicas.String())
	if in.Inspect {
		call = "look"
	}
	if in.Back {
		call = "back " + in.Replicas.String()
	}
	if in.OverwriteDrift {
		call += " put back"
	}
	if in.Halt {
		call = "halt"
	}
	if err := p.called(call); err != nil {
		return rollout.MoveResult{}, err
	}
	if in.Halt {
		return p.numbers("the pods are halted"), nil
	}
	target, err := intstr.GetScaledValueFromIntOrPercent(&in.Replicas, int(p.size), true)
	if err != nil {
		return rollout.MoveResult{}, err
	}
	if in.Back {
		stable, _ := intstr.GetScaledValueFromIntOrPercent(&in.Replicas, int(in.From), true)
		p.updated = in.From - int32(stable)
	} else {
		if p.share > 0 {
			require.LessOrEqual(p.t, p.updated, max(p.updated, int32(target)))
		}
		p.updated = max(p.updated, int32(target))
	}
	return p.numbers("the pods are there"), nil
}

func (p *fakeParty) route(_ context.Context, in rollout.RouteRequest) (rollout.RouteResult, error) {
	call := string(in.Action)
	if in.Action == rollout.RouteEnsure && in.Traffic.Weight != nil {
		call = fmt.Sprintf("route %d%%", *in.Traffic.Weight)
	}
	if in.Overwrite && in.Action == rollout.RouteEnsure {
		call += " overwrite"
	}
	if in.Claim == "shared" {
		call = "shared " + call
	}
	if err := p.called(call); err != nil {
		return rollout.RouteResult{}, err
	}
	switch in.Action {
	case rollout.RoutePin:
		require.Less(p.t, p.updated, p.size, "a Service is pinned only while stable pods exist")
		p.pinned = true
	case rollout.RouteUnpin:
		p.pinned = false
	case rollout.RouteEnsure:
		if in.Claim != "shared" {
			require.NotZero(p.t, p.updated, "traffic is never sent to missing pods")
			if in.Traffic.Weight != nil {
				p.share = *in.Traffic.Weight
			}
		}
	case rollout.RouteToNew:
		p.share = 100
	case rollout.RouteToStable:
		p.share = 0
	}
	return rollout.RouteResult{Modified: true, GraceSeconds: p.grace}, nil
}

func (p *fakeParty) finish(_ context.Context, in rollout.FinishRequest) (rollout.MoveResult, error) {
	call := string(in.Action) + " " + string(in.To)
	if in.Action == rollout.FinishRelease || in.Action == rollout.FinishFreeze {
		call = string(in.Action)
	}
	if err := p.called(call); err != nil {
		return rollout.MoveResult{}, err
	}
	if in.Action == rollout.FinishResume || in.Action == rollout.FinishResumeAndRelease {
		p.updated = 0
		if in.To == rollout.SideNew {
			p.updated = p.size
		}
	}
	return p.numbers("complete"), nil
}

func (p *fakeParty) hold(_ context.Context, in rollout.HoldTrafficRequest) (rollout.HoldTrafficResult, error) {
	weight := int32(10)
	return rollout.HoldTrafficResult{Claim: "shared",
		Shared: rollout.SharedTraffic{Name: in.Name, Traffic: strategy.Traffic{Weight: &weight},
			Routings: []strategy.Routing{{Service: "gateway", HTTPRoute: "gateway"}}}}, p.called("hold " + in.Name)
}

func (p *fakeParty) leave(_ context.Context, in rollout.LeaveTrafficRequest) (rollout.LeaveTrafficResult, error) {
	call := "leave " + in.Name
	if in.Restored {
		call += " restored"
	}
	return rollout.LeaveTrafficResult{Claim: "shared", Restore: p.restore && !in.Restored,
		Shared: rollout.SharedTraffic{Name: in.Name,
			Routings: []strategy.Routing{{Service: "gateway", HTTPRoute: "gateway"}}}}, p.called(call)
}

func (p *fakeParty) complete(_ context.Context, in rollout.CompleteRequest) error {
	if p.recorded = in.Status; in.Status == nil {
		s := p.status()
		p.recorded = &s
	}
	return p.called("record")
}

func (p *fakeParty) status() rollout.Status {
	value, err := p.QueryWorkflow(QueryState)
	require.NoError(p.t, err)
	var s rollout.Status
	require.NoError(p.t, value.Get(&s))
	return s
}

// at calls do after a time that is skipped.
func (p *fakeParty) at(after time.Duration, do func()) { p.RegisterDelayedCallback(do, after) }

// send sends a signal as Temporal's UI does.
func (p *fakeParty) send(after time.Duration, verb rollout.Verb, request RolloutVerbRequest) {
	p.at(after, func() { p.SignalWorkflow(string(verb), request) })
}

// ask sends an Update; the test checks its answer at the end.
func (p *fakeParty) ask(after time.Duration, verb rollout.Verb, request RolloutVerbRequest) *VerbResponse {
	var answer VerbResponse
	p.at(after, func() { p.updateNow(string(verb), request.Key, request, &answer) })
	return &answer
}

func (p *fakeParty) updateNow(name, id string, request any, answer *VerbResponse) {
	p.UpdateWorkflow(name, id, &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { require.NoError(p.t, err, "only malformed verbs are rejected") },
		OnComplete: func(response any, err error) {
			require.NoError(p.t, err)
			*answer = response.(VerbResponse)
		},
	}, request)
}

// run executes the rollout to its end.
func (p *fakeParty) run(in RolloutInput) rollout.Status {
	if in.State != nil {
		p.SetContinuedExecutionRunID("before")
	}
	p.ExecuteWorkflow(TypeRollout, in)
	require.True(p.t, p.IsWorkflowCompleted())
	require.NotNil(p.t, p.recorded, "a rollout that ends writes its record")
	return *p.recorded
}

func (p *fakeParty) count(call string) int {
	n := 0
	for _, c := range p.calls {
		if c == call {
			n++
		}
	}
	return n
}

func failed(kind failure.Kind, message string, details failure.Details) error {
	return temporal.NewApplicationErrorWithOptions(message, string(kind),
		temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{details}})
}

// stepOf is a step "N%" with a weight (negative: none) and a pause in seconds (negative: an approval).
func stepOf(percent string, weight int32, pause int64) strategy.Step {
	s := strategy.Step{Replicas: intstr.FromString(percent)}
	if weight >= 0 {
		s.Traffic = &weight
	}
	if pause >= 0 {
		s.PauseSeconds = &pause
	}
	return s
}

func rolloutOf(style strategy.Style, traffic bool, steps ...strategy.Step) RolloutInput {
	in := RolloutInput{Queue: catalog.PartyQueue("default"),
		Request: machine.Request{Record: "shop.order.1", CreatedAt: time.Date(2026, 3, 1, 8, 59, 0, 0, time.UTC),
			Actor: "ann", Reason: "new", Via: "http", UnreachableBudgetSeconds: 120}}
	in.Spec = strategy.Spec{Namespace: "shop", Name: "order",
		WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "order"},
		Strategy:    strategy.Strategy{Style: style, Steps: steps},
		Change:      strategy.Change{Images: map[string]string{"app": "app:2"}},
		Policy: strategy.Policy{StepDeadlineSeconds: 600, OnFailure: strategy.OnFailurePause,
			OnExpiry: strategy.OnFailurePause}}
	if traffic {
		in.Spec.Strategy.Routings = []strategy.Routing{{Service: "order", GraceSeconds: 3, HTTPRoute: "order"}}
	}
	return in
}
