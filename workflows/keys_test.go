package workflows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
)

// keyed sends a verb that many times, always with the same key.
func (s *stage) keyed(times int, request VerbRequest, answers *[]VerbResponse) {
	for i := range times {
		s.UpdateWorkflow(string(plan.VerbPause), fmt.Sprint(request.Reason, i), &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) { require.NoError(s.t, err) },
			OnComplete: func(response any, err error) {
				require.NoError(s.t, err)
				*answers = append(*answers, response.(VerbResponse))
			},
		}, request)
	}
}

// A key is known for the life of a release: also in the run that a task is continued as new in.
func TestDeployPlanKnowsAKeyInItsNextRun(t *testing.T) {
	request := VerbRequest{Actor: "ann", Reason: "lunch", Key: "same", Via: "cli"}
	var answers, others []VerbResponse
	s := newStage(t)
	s.slow(time.Minute)
	s.RegisterDelayedCallback(func() { s.keyed(50, request, &answers) }, 10*time.Second)
	s.RegisterDelayedCallback(func() { s.SetContinueAsNewSuggested(true) }, 30*time.Second)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, s.GetWorkflowError(), &again, "a long history goes on in a new run once nothing runs")
	var in DeployPlanInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	require.NotNil(t, in.State)

	s = newStage(t)
	s.slow(time.Minute)
	s.RegisterDelayedCallback(func() {
		require.Equal(t, plan.TaskPaused, s.task().State, "it is where it was")
		require.Empty(t, s.upserts, "since when it waits stands in its search attributes, which go with it")
		s.keyed(50, request, &answers)
		request.Reason = "dinner"
		s.keyed(1, request, &others)
	}, time.Hour)
	s.RegisterDelayedCallback(func() { s.update(plan.VerbResume, VerbRequest{Actor: "ann", Key: "on"}, nil) }, 2*time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	require.Len(t, answers, 100)
	for _, answer := range answers {
		require.Equal(t, audit.Accepted, answer.Outcome)
		require.Equal(t, answers[0].Message, answer.Message, "a repeat is answered as the first was")
	}
	require.Len(t, others, 1)
	require.Equal(t, audit.Refused, others[0].Outcome, "the same key with another body is no repeat")
	var verbs []plan.Verb
	for _, e := range task.History {
		verbs = append(verbs, e.Verb)
	}
	require.Equal(t, []plan.Verb{plan.VerbPause, plan.VerbPause, plan.VerbResume}, verbs, "one pause, one refusal, one resume")
	require.NotNil(t, task.StartedAt)
	require.Equal(t, plan.ItemSucceeded, task.Services[0].State, "what the first run has done is told")
}

// What a task remembers goes into its next run in one payload: one that is too large for that ends in the run in which it is.
func TestDeployPlanThatIsTooLargeToBeContinuedAsNew(t *testing.T) {
	s := newStage(t)
	s.SetContinueAsNewSuggested(true)
	in := planOf(2, 1)
	in.Comment = strings.Repeat("x", maxCarried)
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError(), "the server would fail a workflow that sends so much")
	require.Equal(t, plan.TaskSucceeded, s.task().State)
}
