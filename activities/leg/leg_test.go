package leg_test

import (
	"context"
	"encoding/json"
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

// party does at once what it is asked, and writes it down. fail has a call fail, once.
type party struct {
	calls   []string
	fail    map[string]error
	grace   int64
	updated int32
	// certain is how many parts Temporal has for certain, at each call that makes sure of them.
	certain []int
	// first is the Move that came right after the claim, as it was foretold.
	first *rollout.MoveRequest
	// left is what the last attempt has left to the next.
	left *machine.LegProgress
}

func (p *party) called(call string) error {
	p.calls = append(p.calls, call)
	err := p.fail[call]
	delete(p.fail, call)
	return attempt.ApplicationError(err)
}

func (p *party) numbers() rollout.MoveResult {
	return rollout.MoveResult{Replicas: 10, Updated: p.updated, UpdatedReady: p.updated, Canary: "new", CanaryHash: "new", Template: "digest"}
}

func (p *party) BeginMoving(_ context.Context, _ rollout.BeginRequest, first func(rollout.BeginResult) *rollout.MoveRequest) (rollout.BeginResult, error) {
	answer := rollout.BeginResult{Replicas: 10, Stable: "old", StableHash: "old"}
	p.first = first(answer)
	return answer, p.called("begin")
}

func (p *party) Move(_ context.Context, in rollout.MoveRequest) (rollout.MoveResult, error) {
	p.updated = strategy.Target(in.Replicas, 10)
	return p.numbers(), p.called("move " + in.Replicas.String())
}

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

// RecordActivityHeartbeat is Temporal's.
func (p *party) RecordActivityHeartbeat(_ context.Context, _ []byte, details ...any) error {
	p.certain = append(p.certain, len(details[0].(machine.LegProgress).Parts))
	return nil
}

// goes makes one attempt at a leg.
func (p *party) goes(t *testing.T, in machine.LegRequest) (machine.LegResult, error) {
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

// asked is a rollout of such steps, at the beginning of its first leg.
func asked(traffic bool, steps ...strategy.Step) machine.LegRequest {
	ref := catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "order"}
	spec := strategy.Spec{Namespace: "shop", Name: "order", WorkloadRef: ref, Change: strategy.Change{Images: map[string]string{"app": "app:2"}},
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: steps}, Policy: strategy.Policy{StepDeadlineSeconds: 600}}
	if traffic {
		spec.Strategy.Routings = []strategy.Routing{{Service: "order", HTTPRoute: "order"}}
	}
	m := machine.NewMachine(machine.Setup{Asked: machine.Asked{Spec: spec, Record: "r"}, Claim: "claim", OneWrite: true}, time.Now())
	a := m.Next(time.Now())
	return m.BeginLeg(&a)
}

func step(percent string, weight *int32, pause *int64) strategy.Step {
	return strategy.Step{Replicas: intstr.FromString(percent), Traffic: weight, PauseSeconds: pause}
}

var passes = new(int64)

func TestALegGoesToTheNextRest(t *testing.T) {
	t.Parallel()
	p := &party{}
	out, err := p.goes(t, asked(false, step("20%", nil, passes), step("50%", nil, nil), step("100%", nil, nil)))
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "move 20%", "move 50%"}, p.calls, "the second step waits for somebody")
	require.Len(t, out.Parts, 3)
	require.Equal(t, "20%", p.first.Replicas.String(), "the claim knows what comes right after it")

	p = &party{}
	out, err = p.goes(t, asked(false, step("50%", nil, passes), step("100%", nil, passes)))
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "move 50%", "move 100%", "ResumeAndRelease"}, p.calls, "nobody has to do anything until it is over")
	require.Len(t, out.Parts, 4)
}

// An attempt that went through the last step again after its workload has gone home would find the new template there, and take it for somebody else's.
func TestStepsAreCertainBeforeTheWorkloadGoesHome(t *testing.T) {
	t.Parallel()
	p := &party{}
	_, err := p.goes(t, asked(true, step("50%", new(int32(50)), passes), step("100%", nil, passes)))
	require.NoError(t, err)
	home := slices.Index(p.calls, string(rollout.FinishResume))
	require.Positive(t, home, p.calls)
	require.Equal(t, []int{home}, p.certain, "all that is done before is with Temporal: %s", p.calls)
}

func TestALegWaitsForItsRoutesToTakeEffect(t *testing.T) {
	t.Parallel()
	p := &party{grace: 1}
	began := time.Now()
	_, err := p.goes(t, asked(true, step("20%", new(int32(20)), nil), step("100%", nil, nil)))
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "PinStableService", "move 20%", "route 20%"}, p.calls)
	require.GreaterOrEqual(t, time.Since(began), time.Second, "its pods do not move before the Service is pinned in effect")
}

func TestWhatALegHasDoneTravelsWithItsFailure(t *testing.T) {
	t.Parallel()
	p := &party{fail: map[string]error{"move 50%": &failure.Error{Kind: failure.WorkloadFailed, Message: "ImagePullBackOff", Data: rollout.MoveResult{Updated: 3}}}}
	_, err := p.goes(t, asked(false, step("20%", nil, passes), step("50%", nil, nil)))
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(failure.WorkloadFailed), app.Type())
	var details failure.Details
	require.NoError(t, app.Details(&details))
	require.Contains(t, string(details.Data), `"updated":3`, "what the failure says is kept")
	var parts []machine.Part
	require.NoError(t, json.Unmarshal(details.Leg, &parts))
	require.Len(t, parts, 2)
}

func TestTheNextAttemptGoesOnFromThere(t *testing.T) {
	t.Parallel()
	p := &party{fail: map[string]error{"move 50%": &failure.Error{Kind: failure.NotReady, Message: "3 of 5 pods"}}}
	in := asked(false, step("20%", nil, passes), step("50%", nil, nil))
	_, err := p.goes(t, in)
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.False(t, app.NonRetryable(), "it is tried again")
	out, err := p.goes(t, in)
	require.NoError(t, err)
	require.Equal(t, []string{"begin", "move 20%", "move 50%", "move 50%"}, p.calls, "nothing that is done is done again")
	require.Len(t, out.Parts, 3, "what earlier attempts have done is answered as well")
}

func TestALegThatIsCancelledTellsWhatItHasDone(t *testing.T) {
	t.Parallel()
	p := &party{fail: map[string]error{"move 50%": context.Canceled}}
	_, err := p.goes(t, asked(false, step("20%", nil, passes), step("50%", nil, nil)))
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	var out machine.LegResult
	require.NoError(t, canceled.Details(&out))
	require.Len(t, out.Parts, 2)
}
