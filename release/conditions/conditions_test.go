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

// short returns status and reason of each condition: "False/Paused" for Progressing.
func short(t *testing.T, list []metav1.Condition) map[string]string {
	t.Helper()
	short := map[string]string{}
	for _, c := range list {
		require.Regexp(t, `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`, c.Reason,
			"the reason of %s has the format of metav1.Condition", c.Type)
		require.False(t, c.LastTransitionTime.IsZero(), "%s needs a time", c.Type)
		require.NotContains(t, short, c.Type, "each type occurs once")
		short[c.Type] = string(c.Status) + "/" + c.Reason
	}
	return short
}

func TestOfTask_ByState(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		task   plan.Task
		want   map[string]string
	}{
		{"it runs", plan.Task{State: plan.TaskRunning, StartedAt: &later},
			map[string]string{"Progressing": "True/Running", "Waiting": "False/NothingToWaitFor",
				"Stalled": "False/NoProblem", "Succeeded": "Unknown/NotOver"}},
		{"a user has paused it", plan.Task{State: plan.TaskPaused},
			map[string]string{"Progressing": "False/Paused", "Waiting": "True/Resume", "Stalled": "False/NoProblem",
				"Succeeded": "Unknown/NotOver"}},
		{"a cluster is unreachable", plan.Task{State: plan.TaskInterrupted,
			Interruptions: []plan.Interruption{{At: later}}},
			map[string]string{"Progressing": "False/Interrupted", "Waiting": "True/Resume",
				"Stalled": "True/Interrupted", "Succeeded": "Unknown/NotOver"}},
		{"it succeeded", plan.Task{State: plan.TaskSucceeded, FinishedAt: &later},
			map[string]string{"Progressing": "False/Succeeded", "Waiting": "False/NothingToWaitFor",
				"Stalled": "False/NoProblem", "Succeeded": "True/Succeeded"}},
		{"a service failed", plan.Task{State: plan.TaskFailed, FinishedAt: &later},
			map[string]string{"Progressing": "False/Failed", "Waiting": "False/NothingToWaitFor",
				"Stalled": "False/NoProblem", "Succeeded": "False/Failed"}},
		{"a user stopped it", plan.Task{State: plan.TaskStopped, FinishedAt: &later},
			map[string]string{"Progressing": "False/Stopped", "Waiting": "False/NothingToWaitFor",
				"Stalled": "False/NoProblem", "Succeeded": "False/Stopped"}},
	} {
		c.task.CreatedAt = created
		require.Equal(t, c.want, short(t, conditions.OfTask(c.task)), c.reason)
	}
	over := conditions.OfTask(plan.Task{State: plan.TaskSucceeded, CreatedAt: created, FinishedAt: &later,
		Reason: "all services are released"})
	require.Equal(t, "all services are released", over[0].Message, "the task's reason is the message")
	require.Equal(t, later, over[0].LastTransitionTime.UTC(), "the transition is at its end")
}

func TestOfRollout_ByPhaseAndWait(t *testing.T) {
	t.Parallel()
	waits := &rollout.WaitingFor{Kind: rollout.WaitApproval, Since: later, Message: "approve step 1"}
	for _, c := range []struct {
		reason string
		status rollout.Status
		want   map[string]string
	}{
		{"it waits for an approval", rollout.Status{Phase: rollout.PhaseProgressing,
			CurrentStepState: rollout.StatePaused, WaitingFor: waits},
			map[string]string{"Progressing": "True/StepPaused", "Waiting": "True/Approval",
				"Stalled": "False/NoProblem", "Succeeded": "Unknown/NotOver"}},
		{"a user has paused it", rollout.Status{Phase: rollout.PhaseProgressing, Paused: true,
			WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitResume, Since: later}},
			map[string]string{"Progressing": "False/Paused", "Waiting": "True/Resume", "Stalled": "False/NoProblem",
				"Succeeded": "Unknown/NotOver"}},
		{"a drift stops it until a user decides", rollout.Status{Phase: rollout.PhaseProgressing,
			CurrentStepState: rollout.StatePaused,
			WaitingFor:       &rollout.WaitingFor{Kind: rollout.WaitDrift, Since: later}},
			map[string]string{"Progressing": "True/StepPaused", "Waiting": "True/Drift", "Stalled": "True/Drift",
				"Succeeded": "Unknown/NotOver"}},
		{"the new pods do not start", rollout.Status{Phase: rollout.PhaseFailed,
			WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitResume, Since: later}},
			map[string]string{"Progressing": "False/Failed", "Waiting": "True/Resume", "Stalled": "True/Failed",
				"Succeeded": "False/Failed"}},
		{"it succeeded", rollout.Status{Phase: rollout.PhaseHealthy, FinishedAt: &later},
			map[string]string{"Progressing": "False/Healthy", "Waiting": "False/NothingToWaitFor",
				"Stalled": "False/NoProblem", "Succeeded": "True/Healthy"}},
		{"it was rolled back", rollout.Status{Phase: rollout.PhaseRolledBack, FinishedAt: &later},
			map[string]string{"Progressing": "False/RolledBack", "Waiting": "False/NothingToWaitFor",
				"Stalled": "False/NoProblem", "Succeeded": "False/RolledBack"}},
	} {
		c.status.CreatedAt = created
		require.Equal(t, c.want, short(t, conditions.OfRollout(c.status)), c.reason)
	}
	waiting := conditions.OfRollout(rollout.Status{Phase: rollout.PhaseProgressing, CreatedAt: created,
		WaitingFor: waits})[1]
	require.Equal(t, "approve step 1", waiting.Message)
	require.Equal(t, later, waiting.LastTransitionTime.UTC(), "the transition is at the start of the wait")
}

func TestOfServing_ByPhaseAndOperation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		view   serving.View
		want   map[string]string
	}{
		{"an update waits for an approval while the old version serves",
			serving.View{Phase: kuscia.PhaseProgressing, TotalParties: 2, AvailableParties: 2,
				Operation: &serving.OperationView{StartedAt: &later,
					WaitingFor: &kuscia.WaitingFor{Kind: "approval", Since: metav1.NewTime(later)}}},
			map[string]string{"Available": "True/Progressing", "Progressing": "True/Progressing",
				"Waiting": "True/Approval", "Stalled": "False/NoProblem"}},
		{"some replicas are missing", serving.View{Phase: kuscia.PhasePartialAvailable, TotalParties: 2,
			AvailableParties: 2},
			map[string]string{"Available": "True/PartialAvailable", "Progressing": "False/PartialAvailable",
				"Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem"}},
		{"a party is unreachable", serving.View{Phase: kuscia.PhaseUnknown, TotalParties: 2, AvailableParties: 1},
			map[string]string{"Available": "Unknown/Unknown", "Progressing": "False/Unknown",
				"Waiting": "False/NothingToWaitFor", "Stalled": "False/NoProblem"}},
		{"a party failed", serving.View{Phase: kuscia.PhaseFailed, Reason: "ProgressDeadlineExceeded", TotalParties: 2,
			AvailableParties: 1},
			map[string]string{"Available": "False/Failed", "Progressing": "False/Failed",
				"Waiting": "False/NothingToWaitFor", "Stalled": "True/ProgressDeadlineExceeded"}},
	} {
		c.view.CreatedAt, c.view.UpdatedAt = created, &later
		require.Equal(t, c.want, short(t, conditions.OfServing(c.view, nil)), c.reason)
	}
}

// A status keeps its conditions from one write to the next: the time of a condition changes only with its status.
func TestKeep_ChangesTransitionTime_OnlyWithStatus(t *testing.T) {
	t.Parallel()
	kd := &kuscia.KusciaDeployment{Status: kuscia.KusciaDeploymentStatus{ObservedGeneration: 1, TotalParties: 2,
		Phase:     kuscia.PhaseProgressing,
		Operation: &kuscia.Operation{Kind: serving.KindCreate, Message: "brings up alice"}}}
	kd.Generation = 2
	times := func() map[string]time.Time {
		all := map[string]time.Time{}
		for _, c := range kd.Status.Conditions {
			require.Equal(t, kd.Status.ObservedGeneration, c.ObservedGeneration,
				"the observed generation, not the requested one")
			all[c.Type] = c.LastTransitionTime.UTC()
		}
		return all
	}
	conditions.UpdateStatus(kd, created)
	require.Equal(t, map[string]string{"Available": "False/Progressing", "Progressing": "True/Progressing",
		"Waiting": "False/NothingToWaitFor",
		"Stalled": "False/NoProblem"}, short(t, kd.Status.Conditions))
	first := kd.Status.DeepCopy().Conditions
	conditions.UpdateStatus(kd, later)
	require.Equal(t, first, kd.Status.Conditions, "without a change the conditions stay the same")

	kd.Status.Phase, kd.Status.AvailableParties, kd.Status.Message,
		kd.Status.ObservedGeneration = kuscia.PhaseAvailable, 2, "all parties serve", 2
	kd.Status.Operation.Done = true
	conditions.UpdateStatus(kd, later)
	require.Equal(t, map[string]string{"Available": "True/Available", "Progressing": "False/Available",
		"Waiting": "False/NothingToWaitFor",
		"Stalled": "False/NoProblem"}, short(t, kd.Status.Conditions))
	require.Equal(t, map[string]time.Time{"Available": later, "Progressing": later, "Waiting": created,
		"Stalled": created}, times())
	require.Equal(t, "all parties serve", kd.Status.Conditions[0].Message)

	kd.Status.Phase, kd.Status.Message = kuscia.PhasePartialAvailable, "bob has 1 of 2 replicas"
	conditions.UpdateStatus(kd, later.Add(time.Hour))
	require.Equal(t, "bob has 1 of 2 replicas", kd.Status.Conditions[0].Message, "the message is updated")
	require.Equal(t, later, times()["Available"], "the transition time is unchanged")

	shown := conditions.OfServing(serving.View{Phase: kuscia.PhasePartialAvailable, TotalParties: 2,
		AvailableParties: 2, CreatedAt: created},
		kd.Status.Conditions)
	require.Equal(t, later, shown[0].LastTransitionTime.UTC(), "a view has the transition times of the status")
}

// The CRD of a serving refuses conditions with a message that is too long; it is truncated, so that the status can be
// written.
func TestKeep_TruncatesLongMessage(t *testing.T) {
	t.Parallel()
	kd := &kuscia.KusciaDeployment{Status: kuscia.KusciaDeploymentStatus{Message: strings.Repeat("長", 40_000)}}
	conditions.UpdateStatus(kd, later)
	require.Len(t, []rune(kd.Status.Conditions[0].Message), 32_768)
	require.Equal(t, "Pending", kd.Status.Conditions[0].Reason, "the empty phase has the reason Pending")
}
