package workflows

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/window"
)

// asked makes the stage answer questions about release windows as the centre does, and counts them.
func (s *stage) asked() *int {
	asked := new(int)
	s.RegisterActivityWithOptions(func(_ context.Context, q window.Question) (window.Answer, error) {
		*asked++
		return window.NextOpening(q)
	}, activity.RegisterOptions{Name: window.ActivityNextOpening})
	return asked
}

// begins is when the window tests begin.
var begins = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// frozen is a plan of two waves with a freeze of the given duration, which began before the task.
func frozen(s *stage, duration string) DeployPlanInput {
	s.SetStartTime(begins)
	in := planOf(2, 1)
	in.Times = []window.Times{{Freezes: []window.Window{{Start: "2026-11-02T00:00:00Z", Duration: duration}}}}
	return in
}

func TestDeployPlanWaitsForTheEndOfAFreeze(t *testing.T) {
	s := newStage(t)
	asked := s.asked()
	s.RegisterDelayedCallback(func() {
		task := s.task()
		require.Equal(t, plan.TaskRunning, task.State)
		require.NotNil(t, task.WaitingFor)
		require.Equal(t, "window", task.WaitingFor.Kind)
		require.Equal(t, "2026-11-04T12:00:00Z", task.WaitingFor.Until.Format(time.RFC3339))
		require.Contains(t, task.Reason, "a freeze (from 2026-11-02T00:00:00Z for 60h) lasts until "+
			"2026-11-04T12:00:00Z")
		require.Contains(t, task.Reason, "2026-11-04T12:00:00Z")
		require.Nil(t, task.StartedAt, "nothing has begun")
		require.Contains(t, s.metadata().GetCurrentDetails(), "`approve` to begin now")
		waits, _ := s.upserts[len(s.upserts)-1].GetKeyword(AttributeWaitingFor)
		require.Equal(t, "window", waits, "lists can be filtered by waiting tasks")
	}, 47*time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, frozen(s, "60h"))
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, plan.TaskSucceeded, task.State)
	require.Equal(t, begins.Add(48*time.Hour), task.Services[0].StartedAt.UTC(), "48 hours later, to the second")
	require.Equal(t, task.Services[0].StartedAt, task.StartedAt)
	require.Nil(t, task.WaitingFor)
	require.Equal(t, 2, *asked, "once at the start and once after the freeze: no further window has to be awaited")
}

func TestDeployPlan_RunsNoWindowActivity_WithoutTimes(t *testing.T) {
	s := newStage(t)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1)) // the activity is not even registered
	require.NoError(t, s.GetWorkflowError())
	require.NotNil(t, s.task().StartedAt)
}

func TestDeployPlanBeginsEachWaveWithinAWindow(t *testing.T) {
	s := newStage(t)
	s.asked()
	s.slow(2 * time.Hour)
	s.SetStartTime(begins)
	in := planOf(2, 1)
	in.Times = []window.Times{{Windows: []window.Window{{Start: "2026-11-01T11:00:00Z", Duration: "2h",
		RRule: "FREQ=DAILY"}}}}
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, begins, task.Services[0].StartedAt.UTC(), "the window is open")
	require.Equal(t, begins.Add(2*time.Hour), task.Services[0].FinishedAt.UTC(),
		"a running item finishes after the window's end")
	require.Equal(t, "2026-11-03T11:00:00Z", task.Services[1].StartedAt.UTC().Format(time.RFC3339),
		"the next wave begins in the next one")
}

func TestDeployPlanApproveOverridesAFreeze(t *testing.T) {
	s := newStage(t)
	s.asked()
	s.slow(time.Hour)
	var without, approved, again VerbResponse
	s.RegisterDelayedCallback(func() {
		s.update(plan.VerbApprove, VerbRequest{Actor: "ann"}, func(r VerbResponse) { without = r })
	}, time.Hour)
	s.RegisterDelayedCallback(func() {
		s.update(plan.VerbApprove, VerbRequest{Actor: "ann", Reason: "hotfix"}, func(r VerbResponse) { approved = r })
	}, 2*time.Hour)
	s.RegisterDelayedCallback(func() {
		s.update(plan.VerbApprove, VerbRequest{Actor: "ann", Reason: "hotfix"}, func(r VerbResponse) { again = r })
	}, 2*time.Hour+time.Minute)
	in := frozen(s, "2w")
	in.Times[0].Windows = []window.Window{{Start: "2026-11-02T00:00:00Z", Duration: "1d"},
		{Start: "2026-12-01T00:00:00Z", Duration: "1d"}}
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, audit.Refused, without.Outcome)
	require.Contains(t, without.Message, "needs a reason")
	require.Equal(t, audit.Accepted, approved.Outcome, approved.Message)
	require.Contains(t, approved.Message, "until then its release windows do not apply")
	require.Equal(t, audit.Refused, again.Outcome)
	require.Contains(t, again.Message, "waits for no release window")
	task := s.task()
	require.Equal(t, begins.Add(2*time.Hour), task.Services[0].StartedAt.UTC())
	require.Equal(t, begins.Add(3*time.Hour), task.Services[1].StartedAt.UTC(),
		"the approval is valid until the wait would have ended")
	require.Equal(t, "hotfix", task.History[1].Reason, "recorded with the actor and the reason")
	require.Equal(t, "ann", task.History[1].Actor)
}

func TestDeployPlan_RefusesApprove_WhilePaused(t *testing.T) {
	s := newStage(t)
	s.asked()
	var approved VerbResponse
	s.RegisterDelayedCallback(func() {
		s.update(plan.VerbPause, VerbRequest{}, nil)
	}, time.Hour)
	s.RegisterDelayedCallback(func() {
		require.Equal(t, plan.TaskPaused, s.task().State)
		require.Nil(t, s.task().WaitingFor, "a paused task waits for a resume")
		s.update(plan.VerbApprove, VerbRequest{Reason: "hotfix"}, func(r VerbResponse) { approved = r })
	}, 2*time.Hour)
	s.RegisterDelayedCallback(func() {
		require.Equal(t, plan.TaskPaused, s.task().State, "the freeze has ended, but the task is paused")
		s.update(plan.VerbResume, VerbRequest{}, nil)
	}, 40*time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, frozen(s, "24h"))
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, audit.Refused, approved.Outcome)
	require.Contains(t, approved.Message, "resume it, then approve")
	require.Equal(t, begins.Add(40*time.Hour), s.task().Services[0].StartedAt.UTC())
}

func TestDeployPlanIsStoppedWhileItWaits(t *testing.T) {
	s := newStage(t)
	s.asked()
	s.RegisterDelayedCallback(func() { s.update(plan.VerbStop, VerbRequest{}, nil) }, time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, frozen(s, "24h"))
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, plan.TaskStopped, task.State)
	require.Equal(t, plan.ItemSkipped, task.Services[0].State)
	require.Equal(t, begins.Add(time.Hour), task.FinishedAt.UTC(), "nothing is awaited any more")
	require.Empty(t, s.began)
}

// Future windows may have passed while a task was paused: its reason says so, and it waits for a user.
func TestDeployPlan_WaitsForApproval_WhenAllWindowsHavePassed(t *testing.T) {
	s := newStage(t)
	s.asked()
	s.RegisterDelayedCallback(func() { s.update(plan.VerbPause, VerbRequest{}, nil) }, 0)
	s.RegisterDelayedCallback(func() { s.update(plan.VerbResume, VerbRequest{}, nil) }, 40*time.Hour)
	s.RegisterDelayedCallback(func() {
		task := s.task()
		require.Equal(t, plan.TaskRunning, task.State)
		require.Nil(t, task.WaitingFor.Until)
		require.Contains(t, task.Reason, "the last release window has ended, and it does not open again")
		s.update(plan.VerbApprove, VerbRequest{Reason: "anyway"}, nil)
	}, 41*time.Hour)
	in := frozen(s, "1h")
	in.Times[0].Windows = []window.Window{{Start: "2026-11-02T13:00:00Z", Duration: "1h"}}
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, plan.TaskSucceeded, s.task().State)
	require.Equal(t, begins.Add(41*time.Hour), s.task().Services[0].StartedAt.UTC())
}

func TestDeployPlanContinuesAsNewWhileItWaits(t *testing.T) {
	s := newStage(t)
	asked := s.asked()
	s.RegisterDelayedCallback(func() { s.SetContinueAsNewSuggested(true) }, time.Hour)
	s.RegisterDelayedCallback(func() { s.update(plan.VerbApprove, VerbRequest{}, nil) }, 2*time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, frozen(s, "24h"))
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, s.GetWorkflowError(), &again)
	var in DeployPlanInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	require.NotNil(t, in.State.Machine.WindowState)
	require.Equal(t, 1, *asked)

	s = newStage(t)
	asked = s.asked()
	s.SetStartTime(begins.Add(2 * time.Hour))
	s.SetContinuedExecutionRunID("before")
	s.RegisterDelayedCallback(func() {
		require.Equal(t, "window", s.task().WaitingFor.Kind)
		require.Equal(t, begins, s.task().WaitingFor.Since.UTC(), "waiting since the first run")
		require.Zero(t, *asked, "the earlier answer is still valid")
	}, time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, begins.Add(12*time.Hour), s.task().Services[0].StartedAt.UTC())
}
