package leg_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/leg"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
)

// party completes every call at once and records it. fail holds errors by call; each is returned once.
type party struct {
	calls   []string
	fail    map[string]error
	grace   int64
	updated int32
	// acknowledged is the number of completed parts in each heartbeat that Temporal has acknowledged.
	acknowledged []int
	// first is the Move after the claim, as announced to BeginMoving.
	first *rollout.MoveRequest
	// panics is a call that panics; "": none.
	panics string
	// left is the progress that the last attempt left for the next.
	left *machine.LegProgress
}

func (p *party) called(call string) error {
	p.calls = append(p.calls, call)
	if call == p.panics {
		panic(call)
	}
	err := p.fail[call]
	delete(p.fail, call)
	return attempt.ApplicationError(err)
}

func (p *party) numbers() rollout.MoveResult {
	return rollout.MoveResult{Replicas: 10, Updated: p.updated, UpdatedReady: p.updated, Canary: "new",
		CanaryHash: "new", Template: "digest"}
}

func (p *party) BeginMoving(_ context.Context, _ rollout.BeginRequest,
	first func(rollout.BeginResult) *rollout.MoveRequest) (rollout.BeginResult, error) {
	answer := rollout.BeginResult{Replicas: 10, Stable: "old", StableHash: "old"}
	p.first = first(answer)
	return answer, p.called("begin")
}

func (p *party) Move(_ context.Context, in rollout.MoveRequest) (rollout.MoveResult, error) {
	if in.Inspect {
		return p.numbers(), p.called("look")
	}
	p.updated = max(p.updated, strategy.Target(in.Style, in.Replicas, 10))
	return p.numbers(), p.called("move " + in.Replicas.String())
}

func (p *party) ReportLeftOut(context.Context, rollout.Subject, []string) {}

func (p *party) Finish(_ context.Context, in rollout.FinishRequest) (rollout.MoveResult, error) {
	return p.numbers(), p.called(string(in.Action))
}

func (p *party) Route(_ context.Context, in rollout.RouteRequest) (rollout.RouteResult, error) {
	call := string(in.Action)
	if in.Traffic.Weight != nil {
		call = fmt.Sprintf("route %d%%", *in.Traffic.Weight)
	}
	return rollout.RouteResult{Modified: true, GraceSeconds: p.grace}, p.called(call)
}

// RecordActivityHeartbeat implements heartbeat.Recorder.
func (p *party) RecordActivityHeartbeat(_ context.Context, _ []byte, details ...any) error {
	p.acknowledged = append(p.acknowledged, len(details[0].(machine.LegProgress).Parts))
	return nil
}

// runLeg makes one attempt of a leg.
func (p *party) runLeg(t *testing.T, in machine.LegRequest) (machine.LegResult, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{})
	if p.left != nil {
		env.SetHeartbeatDetails(*p.left)
	}
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		var left machine.LegProgress
		if details.Get(&left) == nil {
			p.left = &left
		}
	})
	acts := leg.New(p, p, leg.Options{Recorder: p})
	env.RegisterActivityWithOptions(acts.Leg, activity.RegisterOptions{Name: machine.ActivityLeg})
	value, err := env.ExecuteActivity(machine.ActivityLeg, in)
	if err != nil {
		return machine.LegResult{}, err
	}
	var out machine.LegResult
	require.NoError(t, value.Get(&out))
	return out, nil
}

// legRequest is the request of a rollout with these steps, at the start of its first leg.
func legRequest(traffic bool, steps ...strategy.Step) machine.LegRequest {
	ref := catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "order"}
	spec := strategy.Spec{Namespace: "shop", Name: "order", WorkloadRef: ref,
		Change:   strategy.Change{Images: map[string]string{"app": "app:2"}},
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: steps},
		Policy:   strategy.Policy{StepDeadlineSeconds: 600}}
	if traffic {
		spec.Strategy.Routings = []strategy.Routing{{Service: "order", HTTPRoute: "order"}}
	}
	m := machine.NewMachine(machine.Setup{Request: machine.Request{Spec: spec, Record: "r"}, Claim: "claim"},
		time.Now())
	a := m.Next(time.Now())
	return m.BeginLeg(&a)
}

func step(percent string, weight *int32, pause *int64) strategy.Step {
	return strategy.Step{Replicas: intstr.FromString(percent), Traffic: weight, PauseSeconds: pause}
}

var passes = new(int64)

func TestLeg_RunsToNextPause(t *testing.T) {
	t.Parallel()
	p := &party{}
	out, err := p.runLeg(t, legRequest(false, step("20%", nil, passes), step("50%", nil, nil), step("100%", nil, nil)))
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "move 20%", "move 50%"}, p.calls, "the second step waits for approval")
	require.Len(t, out.Parts, 3)
	require.Equal(t, "20%", p.first.Replicas.String(), "the claim announces the move that follows it")

	p = &party{}
	out, err = p.runLeg(t, legRequest(false, step("50%", nil, passes), step("100%", nil, passes)))
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "move 50%", "move 100%", "ResumeAndRelease"}, p.calls,
		"no user action is needed until the end")
	require.Len(t, out.Parts, 4)
}

// A retry that repeated the last step after its workload was finalised would find the new template there and take it
// for another client's change.
func TestLeg_RecordsStepsBeforeFinish(t *testing.T) {
	t.Parallel()
	p := &party{}
	_, err := p.runLeg(t, legRequest(true, step("50%", new(int32(50)), passes), step("100%", nil, passes)))
	require.NoError(t, err)
	home := slices.Index(p.calls, string(rollout.FinishResume))
	require.Positive(t, home, p.calls)
	require.Equal(t, []int{home}, p.acknowledged, "Temporal has all that was done before: %s", p.calls)
}

func TestLeg_WaitsUntilRoutesTakeEffect(t *testing.T) {
	t.Parallel()
	p := &party{grace: 1}
	began := time.Now()
	_, err := p.runLeg(t, legRequest(true, step("20%", new(int32(20)), nil), step("100%", nil, nil)))
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "PinStableService", "move 20%", "route 20%"}, p.calls)
	require.GreaterOrEqual(t, time.Since(began), time.Second, "pods do not move before the pinned Service takes effect")
}

func TestLegFailure_CarriesCompletedParts(t *testing.T) {
	t.Parallel()
	p := &party{fail: map[string]error{"move 50%": &failure.Error{Kind: failure.WorkloadFailed,
		Message: "ImagePullBackOff", Data: rollout.MoveResult{Updated: 3}}}}
	_, err := p.runLeg(t, legRequest(false, step("20%", nil, passes), step("50%", nil, nil)))
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(failure.WorkloadFailed), app.Type())
	var details failure.Details
	require.NoError(t, app.Details(&details))
	require.Contains(t, string(details.Data), `"updated":3`, "the failure's own data is kept")
	var parts []machine.Part
	require.NoError(t, json.Unmarshal(details.Leg, &parts))
	require.Len(t, parts, 2)
	require.False(t, details.LegUnknown)
}

// The attempt after a failed one has its heartbeat.
func TestLegRetry_ContinuesAfterCompletedParts(t *testing.T) {
	t.Parallel()
	p := &party{fail: map[string]error{"move 50%": errors.New("no answer")}}
	in := legRequest(false, step("20%", nil, passes), step("50%", nil, nil))
	_, err := p.runLeg(t, in)
	require.ErrorContains(t, err, "no answer")
	out, err := p.runLeg(t, in)
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "move 20%", "move 50%", "move 50%"}, p.calls,
		"completed actions are not repeated")
	require.Len(t, out.Parts, 3, "the result includes what earlier attempts did")
}

// The heartbeat of a worker that died is older than what it has done: the attempt after it sends no traffic back to
// pods that may be gone, and reports that more may have been done.
func TestLegRetry_RepeatsForwardsOnly_WhenWorkerDied(t *testing.T) {
	t.Parallel()
	in := legRequest(true, step("20%", new(int32(20)), passes), step("60%", new(int32(60)), passes),
		step("100%", nil, nil))
	p := &party{fail: map[string]error{"route 60%": errors.New("no answer")}}
	_, err := p.runLeg(t, in)
	require.Error(t, err)
	require.True(t, p.left.Complete, "an attempt that ends by itself has reported all")
	p.left.Complete, p.left.Parts = false, p.left.Parts[:3] // begin, PinStableService, move 20%
	stale := *p.left

	p.calls = nil
	out, err := p.runLeg(t, in)
	require.NoError(t, err)
	require.Equal(t, []string{"look", "PinStableService", "move 20%", "move 60%", "route 60%"}, p.calls[:5])
	require.True(t, out.Parts[3].AfterCrash)

	stale.PartNumber, stale.ElapsedSeconds = 4, 590 // of the action that the dead worker was at
	p.left, p.calls, p.fail = &stale, nil, map[string]error{"look": errors.New("no answer")}
	_, err = p.runLeg(t, in)
	require.Error(t, err)
	require.False(t, p.left.Complete, "nothing more is known after an attempt without results")
	require.Zero(t, p.left.SpentSeconds(), "the inspection has its own deadline")
	require.InDelta(t, 590, p.left.Spent[stale.Action], 0, "and the action keeps what it has used")
	p.fail["look"] = &failure.Error{Kind: failure.WorkloadFailed, Message: "no"}
	_, err = p.runLeg(t, in)
	require.Equal(t, []string{"look", "look"}, p.calls, "the attempt after that inspects the pods, too")
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	var details failure.Details
	require.NoError(t, app.Details(&details))
	require.True(t, details.LegUnknown)
}

// An attempt that panics sends a last heartbeat, like one that fails.
func TestLegRetry_ContinuesAfterCompletedParts_WhenAttemptPanicked(t *testing.T) {
	t.Parallel()
	p := &party{panics: "move 50%"}
	in := legRequest(false, step("20%", nil, passes), step("50%", nil, nil))
	_, err := p.runLeg(t, in)
	require.Error(t, err)
	require.Len(t, p.left.Parts, 2)
	p.panics, p.calls = "", nil
	out, err := p.runLeg(t, in)
	require.NoError(t, err)
	require.Equal(t, []string{"move 50%"}, p.calls)
	require.Len(t, out.Parts, 3)
}

// An action that waits ends the leg if there are results: if the activity were cancelled between two attempts, they
// would be lost. Without results it is retried, which costs no event.
func TestLeg_EndsWithResults_WhenActionWaits(t *testing.T) {
	t.Parallel()
	waits := &failure.Error{Kind: failure.NotReady, Message: "3 of 5 pods"}
	in := legRequest(false, step("20%", nil, passes), step("50%", nil, nil))
	p := &party{fail: map[string]error{"move 50%": waits}}
	out, err := p.runLeg(t, in)
	require.NoError(t, err)
	require.Len(t, out.Parts, 2)
	require.True(t, out.Unfinished)

	p = &party{fail: map[string]error{"begin": waits}}
	_, err = p.runLeg(t, in)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.False(t, app.NonRetryable(), "it is retried")
}

// A leg that is stopped before it has read the workload keeps the deadline that was spent before.
func TestCancelledLeg_KeepsSpentDeadline_WhenNothingBegan(t *testing.T) {
	t.Parallel()
	in := legRequest(false, step("20%", nil, passes))
	m := machine.ResumeMachine(machine.Setup{Request: in.Request, Claim: in.Claim}, in.State)
	m.EndLeg(machine.LegEnd{LegResult: machine.LegResult{SpentSeconds: 70}, Stopped: true}, time.Now())
	again := m.Next(time.Now())
	p := &party{fail: map[string]error{"begin": context.Canceled}}
	_, err := p.runLeg(t, m.BeginLeg(&again))
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	var out machine.LegResult
	require.NoError(t, canceled.Details(&out))
	require.EqualValues(t, 70, out.SpentSeconds)
}

func TestCancelledLeg_ReturnsCompletedParts(t *testing.T) {
	t.Parallel()
	p := &party{fail: map[string]error{"move 50%": context.Canceled}}
	_, err := p.runLeg(t, legRequest(false, step("20%", nil, passes), step("50%", nil, nil)))
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	var out machine.LegResult
	require.NoError(t, canceled.Details(&out))
	require.Len(t, out.Parts, 2)
}
