package conditions_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/conditions"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
)

var (
	created = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)
	later   = created.Add(time.Hour)
)

// short is what conditions say, without sentences: "Progressing=False/Paused".
func short(t *testing.T, list []metav1.Condition) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, c := range list {
		require.Regexp(t, `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`, c.Reason, "a reason of %s as metav1.Condition has it", c.Type)
		require.False(t, c.LastTransitionTime.IsZero(), "%s needs a time", c.Type)
		require.NotContains(t, said, c.Type, "each type once")
		said[c.Type] = string(c.Status) + "/" + c.Reason
	}
	return said
}

func TestConditionsOfTasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		task   plan.Task
		want   map[string]string
	}{
		{"it runs", plan.Task{State: plan.TaskRunning, StartedAt: &later},
			map[string]string{"Progressing": "True/Running", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem", "Succeeded": "Unknown/NotOver"}},
		{"a person holds it", plan.Task{State: plan.TaskPaused},
			map[string]string{"Progressing": "False/Paused", "Waiting": "True/Resume", "Stalled": "False/NoProblem", "Succeeded": "Unknown/NotOver"}},
		{"a cluster is out of reach", plan.Task{State: plan.TaskInterrupted, Interruptions: []plan.Interruption{{At: later}}},
			map[string]string{"Progressing": "False/Interrupted", "Waiting": "True/Resume", "Stalled": "True/Interrupted", "Succeeded": "Unknown/NotOver"}},
		{"it ended well", plan.Task{State: plan.TaskSucceeded, FinishedAt: &later},
			map[string]string{"Progressing": "False/Succeeded", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem", "Succeeded": "True/Succeeded"}},
		{"a service failed", plan.Task{State: plan.TaskFailed, FinishedAt: &later},
			map[string]string{"Progressing": "False/Failed", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem", "Succeeded": "False/Failed"}},
		{"somebody stopped it", plan.Task{State: plan.TaskStopped, FinishedAt: &later},
			map[string]string{"Progressing": "False/Stopped", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem", "Succeeded": "False/Stopped"}},
	} {
		c.task.CreatedAt = created
		require.Equal(t, c.want, short(t, conditions.OfTask(c.task)), c.reason)
	}
	over := conditions.OfTask(plan.Task{State: plan.TaskSucceeded, CreatedAt: created, FinishedAt: &later, Reason: "all services are released"})
	require.Equal(t, "all services are released", over[0].Message, "the sentence for people is the message")
	require.Equal(t, later, over[0].LastTransitionTime.UTC(), "it is over since its end")
}

func TestConditionsOfRollouts(t *testing.T) {
	t.Parallel()
	waits := &rollout.WaitingFor{Kind: rollout.WaitApproval, Since: later, Message: "approve step 1"}
	for _, c := range []struct {
		reason string
		status rollout.Status
		want   map[string]string
	}{
		{"it waits for a person", rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepState: rollout.StatePaused, WaitingFor: waits},
			map[string]string{"Progressing": "True/StepPaused", "Waiting": "True/Approval", "Stalled": "False/NoProblem", "Succeeded": "Unknown/NotOver"}},
		{"somebody has paused it", rollout.Status{Phase: rollout.PhaseProgressing, Paused: true, WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitResume, Since: later}},
			map[string]string{"Progressing": "False/Paused", "Waiting": "True/Resume", "Stalled": "False/NoProblem", "Succeeded": "Unknown/NotOver"}},
		{"somebody else's edit holds it until a person decides", rollout.Status{Phase: rollout.PhaseProgressing, CurrentStepState: rollout.StatePaused,
			WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitDrift, Since: later}},
			map[string]string{"Progressing": "True/StepPaused", "Waiting": "True/Drift", "Stalled": "True/Drift", "Succeeded": "Unknown/NotOver"}},
		{"the new pods do not start", rollout.Status{Phase: rollout.PhaseFailed, WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitResume, Since: later}},
			map[string]string{"Progressing": "False/Failed", "Waiting": "True/Resume", "Stalled": "True/Failed", "Succeeded": "False/Failed"}},
		{"it is done", rollout.Status{Phase: rollout.PhaseHealthy, FinishedAt: &later},
			map[string]string{"Progressing": "False/Healthy", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem", "Succeeded": "True/Healthy"}},
		{"it went back", rollout.Status{Phase: rollout.PhaseRolledBack, FinishedAt: &later},
			map[string]string{"Progressing": "False/RolledBack", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem", "Succeeded": "False/RolledBack"}},
	} {
		c.status.CreatedAt = created
		require.Equal(t, c.want, short(t, conditions.OfRollout(c.status)), c.reason)
	}
	waiting := conditions.OfRollout(rollout.Status{Phase: rollout.PhaseProgressing, CreatedAt: created, WaitingFor: waits})[1]
	require.Equal(t, "approve step 1", waiting.Message)
	require.Equal(t, later, waiting.LastTransitionTime.UTC(), "it waits since then")
}

func TestConditionsOfServings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		view   serving.View
		want   map[string]string
	}{
		{"an update waits for an approval while the old version serves", serving.View{Phase: kuscia.PhaseProgressing, TotalParties: 2, AvailableParties: 2,
			Operation: &serving.OperationView{StartedAt: &later, WaitingFor: &kuscia.WaitingFor{Kind: "approval", Since: metav1.NewTime(later)}}},
			map[string]string{"Available": "True/Progressing", "Progressing": "True/Progressing", "Waiting": "True/Approval", "Stalled": "False/NoProblem"}},
		{"some replicas are missing", serving.View{Phase: kuscia.PhasePartialAvailable, TotalParties: 2, AvailableParties: 2},
			map[string]string{"Available": "True/PartialAvailable", "Progressing": "False/PartialAvailable", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem"}},
		{"a party cannot be reached", serving.View{Phase: kuscia.PhaseUnknown, TotalParties: 2, AvailableParties: 1},
			map[string]string{"Available": "Unknown/Unknown", "Progressing": "False/Unknown", "Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem"}},
		{"a party failed", serving.View{Phase: kuscia.PhaseFailed, Reason: "ProgressDeadlineExceeded", TotalParties: 2, AvailableParties: 1},
			map[string]string{"Available": "False/Failed", "Progressing": "False/Failed", "Waiting": "False/NothingToWaitFor", "Stalled": "True/ProgressDeadlineExceeded"}},
	} {
		c.view.CreatedAt, c.view.UpdatedAt = created, &later
		require.Equal(t, c.want, short(t, conditions.OfServing(c.view, nil)), c.reason)
	}
}

// A status keeps its conditions from one write to the next: their times move when they come to hold or cease to, and then alone.
func TestConditionsAreKeptInAStatus(t *testing.T) {
	t.Parallel()
	kd := &kuscia.KusciaDeployment{Status: kuscia.KusciaDeploymentStatus{ObservedGeneration: 1, TotalParties: 2, Phase: kuscia.PhaseProgressing,
		Operation: &kuscia.Operation{Kind: serving.KindCreate, Message: "brings up alice"}}}
	kd.Generation = 2
	times := func() map[string]time.Time {
		all := map[string]time.Time{}
		for _, c := range kd.Status.Conditions {
			require.Equal(t, kd.Status.ObservedGeneration, c.ObservedGeneration, "what was begun with, not what is asked by now")
			all[c.Type] = c.LastTransitionTime.UTC()
		}
		return all
	}
	conditions.Keep(kd, created)
	require.Equal(t, map[string]string{"Available": "False/Progressing", "Progressing": "True/Progressing", "Waiting": "False/NothingToWaitFor",
		"Stalled": "False/NoProblem"}, short(t, kd.Status.Conditions))
	first := kd.Status.DeepCopy().Conditions
	conditions.Keep(kd, later)
	require.Equal(t, first, kd.Status.Conditions, "nothing has changed, and so nothing is written anew")

	kd.Status.Phase, kd.Status.AvailableParties, kd.Status.Message, kd.Status.ObservedGeneration = kuscia.PhaseAvailable, 2, "all parties serve", 2
	kd.Status.Operation.Done = true
	conditions.Keep(kd, later)
	require.Equal(t, map[string]string{"Available": "True/Available", "Progressing": "False/Available", "Waiting": "False/NothingToWaitFor",
		"Stalled": "False/NoProblem"}, short(t, kd.Status.Conditions))
	require.Equal(t, map[string]time.Time{"Available": later, "Progressing": later, "Waiting": created, "Stalled": created}, times())
	require.Equal(t, "all parties serve", kd.Status.Conditions[0].Message)

	kd.Status.Phase, kd.Status.Message = kuscia.PhasePartialAvailable, "bob has 1 of 2 replicas"
	conditions.Keep(kd, later.Add(time.Hour))
	require.Equal(t, "bob has 1 of 2 replicas", kd.Status.Conditions[0].Message, "the sentence follows")
	require.Equal(t, later, times()["Available"], "it is available since then all the same")

	shown := conditions.OfServing(serving.View{Phase: kuscia.PhasePartialAvailable, TotalParties: 2, AvailableParties: 2, CreatedAt: created},
		kd.Status.Conditions)
	require.Equal(t, later, shown[0].LastTransitionTime.UTC(), "a view has the times that the status has kept")
}

// The definition of a serving refuses a message that is too long; the status is written all the same.
func TestAMessageFitsItsCondition(t *testing.T) {
	t.Parallel()
	kd := &kuscia.KusciaDeployment{Status: kuscia.KusciaDeploymentStatus{Message: strings.Repeat("長", 40_000)}}
	conditions.Keep(kd, later)
	require.Len(t, []rune(kd.Status.Conditions[0].Message), 32_768)
	require.Equal(t, "Pending", kd.Status.Conditions[0].Reason, "a phase that is written as nothing has a name here")
}
