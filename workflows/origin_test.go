package workflows

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
)

// origins plays the centre that knows which workflows the engine has started: it answers with refusal.
type origins struct {
	refusal string
	// awayFor is how often the home cluster does not answer.
	awayFor int
	checked []origin.Request
}

func (o *origins) checkOrigin(_ context.Context, in origin.Request) (origin.Answer, error) {
	if o.awayFor > 0 {
		o.awayFor--
		return origin.Answer{}, temporal.NewApplicationError("the home cluster does not answer",
			string(failure.Unreachable))
	}
	o.checked = append(o.checked, in)
	return origin.Answer{Refusal: o.refusal}, nil
}

// requireNotStarted checks that a workflow has closed as one that the engine has not started.
func requireNotStarted(t *testing.T, err error) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, TypeNotStarted, app.Type())
	require.True(t, app.NonRetryable(), "a retry policy of the forged start must not repeat it")
}

const forged = "there is no record"

// forgedRollout asks for privileged pods.
func forgedRollout() RolloutInput {
	in := rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, -1), stepOf("100%", -1, -1))
	in.Record, in.Task = "rollout-forged", "shop-1"
	in.Spec.Change.TemplatePatch = json.RawMessage(`{"spec":{"hostPID":true}}`)
	return in
}

func TestRollout_DoesNothing_WhenEngineHasNotStartedIt(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.refusal, p.awayFor = forged, 3
	in := forgedRollout()
	p.at(time.Millisecond, func() { p.SignalWorkflow(string(rollout.VerbStop), nil) })
	p.ExecuteWorkflow(TypeRollout, in)
	requireNotStarted(t, p.GetWorkflowError())
	require.ErrorContains(t, p.GetWorkflowError(), forged)
	require.Empty(t, p.calls, "no leg, and no record")
	require.Equal(t, []origin.Request{{WorkflowID: "default-test-workflow-id", Type: TypeRollout, Kind: "rollout",
		Record: "rollout-forged", InputDigest: in.Digest(), Task: "shop-1", ParentType: TypeServiceRelease}}, p.checked)
}

// A home cluster that does not answer is waited for: the release begins when it is known to be the engine's.
func TestRollout_WaitsForTheHomeCluster_BeforeItsFirstWrite(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.awayFor = 5
	s := p.run(rolloutOf(strategy.StylePartition, false, stepOf("100%", -1, 0)))
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Len(t, p.checked, 1)
	require.Equal(t, "begin", p.calls[0])
}

// A state in the input of a start would skip what the engine does at the start.
func TestStartWithAState_DoesNothing_WhenItContinuesNoRun(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := forgedRollout()
	in.State = &machine.State{}
	p.ExecuteWorkflow(TypeRollout, in)
	requireNotStarted(t, p.GetWorkflowError())
	require.Empty(t, p.calls)

	s := newStage(t)
	plan := planOf(1)
	plan.State = &DeployPlanState{}
	s.ExecuteWorkflow(TypeDeployPlan, plan)
	requireNotStarted(t, s.GetWorkflowError())
	require.False(t, s.recorded)

	s = newStage(t)
	item, orders := releaseOf("", 1)
	item.State = &ServiceReleaseState{}
	s.orders = orders
	s.ExecuteWorkflow(TypeServiceRelease, item)
	requireNotStarted(t, s.GetWorkflowError())
	require.Empty(t, s.began)

	parties := newParties(t)
	of := asking()
	of.Continued = &serving.Continued{Begun: true}
	parties.ExecuteWorkflow(TypeServing, of)
	requireNotStarted(t, parties.GetWorkflowError())
	require.Empty(t, parties.calls)
}

// Another client's workflow can continue as new as one of the engine's types: the run before it is checked.
func TestContinuedRun_AsksAboutTheRunBefore(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.refusal = forged
	p.SetContinuedExecutionRunID("evil")
	in := forgedRollout()
	in.State = &machine.State{}
	p.ExecuteWorkflow(TypeRollout, in)
	requireNotStarted(t, p.GetWorkflowError())
	require.Empty(t, p.calls)
	require.Equal(t, []origin.Request{{WorkflowID: "default-test-workflow-id", Type: TypeRollout, FormerRun: "evil"}},
		p.checked)
}

func TestDeployPlan_DoesNothing_WhenEngineHasNotStartedIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.refusal = forged
	s.RegisterDelayedCallback(func() { s.SignalWorkflow("stop", nil) }, 0)
	in := planOf(2, 1)
	s.ExecuteWorkflow(TypeDeployPlan, in)
	requireNotStarted(t, s.GetWorkflowError())
	require.Empty(t, s.began)
	require.False(t, s.recorded, "the record of the real task stays as it is")
	require.Equal(t, in.Digest(), s.checked[0].InputDigest)
	require.Equal(t, "task-"+in.Task, s.checked[0].Record)
}

func TestServiceRelease_DoesNothing_WhenNoTaskHasStartedIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.refusal = forged
	in, orders := releaseOf("", 2)
	s.orders = orders
	s.ExecuteWorkflow(TypeServiceRelease, in)
	requireNotStarted(t, s.GetWorkflowError())
	require.Empty(t, s.began)
	require.Equal(t, "shop-1", s.checked[0].Task)
	require.Equal(t, TypeDeployPlan, s.checked[0].ParentType)
}

func TestPackageSweep_DeletesNothing_WhenNoItemHasStartedIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.refusal = forged
	s.ExecuteWorkflow(TypePackageSweep, PackageSweepInput{Party: "bob", Queue: "slipway.party.bob"})
	requireNotStarted(t, s.GetWorkflowError())
}

func TestServing_DoesNothing_WhenItIsNotWhatTheHomeClusterDeclares(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Foreign: "its version is not the one that the home cluster declares"}
	p.ExecuteWorkflow(TypeServing, asking())
	require.NoError(t, p.GetWorkflowError())
	var result ServingResult
	require.NoError(t, p.GetWorkflowResult(&result))
	require.Contains(t, result.Message, "not the one that the home cluster declares")
	require.Equal(t, []string{"begin update"}, p.calls)
	require.Empty(t, p.asked, "no party was asked")
}

// A worker decodes the input that a server has encoded: both compute the same digest. A run that continues has that of
// the first.
func TestInputDigest_IsTheSame_AfterDecoding(t *testing.T) {
	t.Parallel()
	in := forgedRollout()
	in.CreatedAt = time.Date(2026, 11, 2, 9, 30, 0, 123456000, time.UTC)
	in.Reason = "<a> & b\u2028"
	in.Spec.Change.TemplatePatch = json.RawMessage("{ \"x\": \"<&>\",\n\"n\": 12345678901234567890, \"f\": 1.50 }")
	in.Spec.Strategy.Steps = append(in.Spec.Strategy.Steps, strategy.Step{})
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(in)
	require.NoError(t, err)
	var decoded RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(payloads, &decoded))
	require.Equal(t, in.Digest(), decoded.Digest())
	decoded.State, decoded.Newer = &machine.State{}, &RolloutInput{}
	require.Equal(t, in.Digest(), decoded.Digest())
	decoded.Actor = "cfo@example.com"
	require.NotEqual(t, in.Digest(), decoded.Digest())

	task := planOf(2, 1)
	require.Equal(t, task.Digest(), func() string { task.State = &DeployPlanState{}; return task.Digest() }())
	task.MaxConcurrent++
	require.NotEqual(t, planOf(2, 1).Digest(), task.Digest())
}
