package rollouts

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/mocks"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/workflows"
)

// These tests are about views that are made of several reads: each shows the rollout as of one moment.

// atStep is a rollout of three steps that waits for an approval at one of them.
func atStep(n int) rollout.Status {
	since := time.Unix(1_700_000_000, 0).UTC()
	s := rollout.Status{Phase: rollout.PhaseProgressing, Reason: "step 2 of 3 waits for an approval",
		CurrentStepIndex: n, NextStepIndex: n + 1, CurrentStepState: rollout.StatePaused,
		Steps:      make([]rollout.StepStatus, 3),
		WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitApproval, Since: since, Gate: "gate"}}
	for i := range s.Steps {
		s.Steps[i] = rollout.StepStatus{Index: i + 1, State: rollout.StepPending}
		switch {
		case i+1 < n:
			s.Steps[i].State = string(rollout.StateCompleted)
		case i+1 == n:
			s.Steps[i].State = string(rollout.StatePaused)
		}
	}
	return s
}

// outline is the same rollout as its record describes it: before its first step.
func outline() rollout.Status {
	s := atStep(1)
	s.CurrentStepState, s.WaitingFor, s.Steps[0].State = rollout.StateBeforeUpgrade, nil, rollout.StepPending
	return s
}

// described is Temporal's description of the workflow, with what it has published of a status.
func described(t *testing.T, published rollout.Status, events int64,
	pending ...*workflowpb.PendingActivityInfo) *workflowservice.DescribeWorkflowExecutionResponse {
	t.Helper()
	payload := func(value any) *commonpb.Payload {
		p, err := converter.GetDefaultDataConverter().ToPayload(value)
		require.NoError(t, err)
		return p
	}
	attributes := map[string]*commonpb.Payload{workflows.AttributeState.GetName(): payload(published.Phase)}
	memo := map[string]*commonpb.Payload{}
	if w := published.WaitingFor; w != nil {
		attributes[workflows.AttributeWaitingFor.GetName()] = payload(w.Kind)
		attributes[workflows.AttributeWaitingSince.GetName()] = payload(w.Since)
		memo[workflows.MemoShown] = payload(workflows.Shown{State: string(published.Phase), Reason: published.Reason,
			WaitingFor: w, Position: published.Position()})
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{PendingActivities: pending,
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
			Execution: &commonpb.WorkflowExecution{WorkflowId: "w", RunId: "r"}, HistoryLength: events,
			Status:           enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING,
			SearchAttributes: &commonpb.SearchAttributes{IndexedFields: attributes},
			Memo:             &commonpb.Memo{Fields: memo}}}
}

// leg is a running leg that reports a status.
func leg(t *testing.T, on rollout.Status, message string) *workflowpb.PendingActivityInfo {
	t.Helper()
	progress := machine.LegProgress{Status: &on, PartNumber: 1}
	progress.Message = message
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(progress)
	require.NoError(t, err)
	return &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: machine.ActivityLeg},
		State: enumspb.PENDING_ACTIVITY_STATE_STARTED, HeartbeatDetails: payloads}
}

// While no worker answers, the step is that of the published wait, not the first one of the record.
func TestUnanswered_ShowsStepOfPublishedWait(t *testing.T) {
	t.Parallel()
	r := &Reader{Handlers: &Handlers{Backend: &backend.Backend{}}}
	shown := outline()
	r.Unanswered(&shown, described(t, atStep(2), 40))
	require.Equal(t, atStep(2).Position(), shown.Position(), "the step belongs to the gate")
	require.Equal(t, "gate", shown.WaitingFor.Gate)
	require.Contains(t, shown.Reason, "does not answer")
}

// A workflow that has published no wait is between two: nothing is known but what its leg reports.
func TestUnanswered_WithoutPublishedWait_ShowsLegOrNothing(t *testing.T) {
	t.Parallel()
	r := &Reader{Handlers: &Handlers{Backend: &backend.Backend{}}}
	working := atStep(2)
	working.CurrentStepState, working.WaitingFor = rollout.StateUpgrade, &rollout.WaitingFor{Kind: rollout.WaitPods}
	published := rollout.Status{Phase: rollout.PhaseProgressing}

	shown := outline()
	r.Unanswered(&shown, described(t, published, 40, leg(t, working, "1 of 2 new pods are ready")))
	require.Equal(t, 2, shown.CurrentStepIndex)
	require.Equal(t, rollout.StateUpgrade, shown.CurrentStepState)
	require.Equal(t, "1 of 2 new pods are ready", shown.WaitingFor.Message)

	shown = outline()
	r.Unanswered(&shown, described(t, published, 40))
	require.Zero(t, shown.CurrentStepIndex, "the first step would be a guess")
	require.Equal(t, rollout.StateUnknown, shown.CurrentStepState)
	require.Nil(t, shown.WaitingFor)
}

// The workflow may go on between Temporal's description and its own answer: what the description says of an activity is
// then of an earlier step.
func TestRunning_OlderDescription_AddsNothing(t *testing.T) {
	t.Parallel()
	now := atStep(2)
	now.CurrentStepState, now.WaitingFor = rollout.StateUpgrade, &rollout.WaitingFor{Kind: rollout.WaitPods,
		Message: "0 of 2 new pods are ready"}
	before := atStep(2)
	before.CurrentStepState, before.WaitingFor = rollout.StateUpgrade, &rollout.WaitingFor{Kind: rollout.WaitPods}
	for asOf, message := range map[int64]string{40: "1 of 1 new pods are ready", 41: "0 of 2 new pods are ready"} {
		temporal, value := &mocks.Client{}, &mocks.Value{}
		value.On("Get", mock.Anything).Return(func(into any) error {
			raw, err := json.Marshal(workflows.RolloutState{Status: now, AsOf: asOf})
			require.NoError(t, err)
			return json.Unmarshal(raw, into)
		})
		temporal.On("QueryWorkflow", mock.Anything, mock.Anything, mock.Anything, mock.Anything).Return(value, nil)
		r := &Reader{Handlers: &Handlers{Backend: &backend.Backend{Temporal: temporal}}}
		shown, err := r.Running(t.Context(), described(t, now, 40, leg(t, before, "1 of 1 new pods are ready")))
		require.NoError(t, err)
		require.Equal(t, message, shown.WaitingFor.Message, "as of event %d of 40", asOf)
	}
}

// A leg that has just begun its next action still reports the pods of the one before.
func TestRunning_LegBetweenTwoActions_ShowsNoPodsOfFirst(t *testing.T) {
	t.Parallel()
	on := atStep(2)
	on.CurrentStepState, on.WaitingFor = rollout.StateUpgrade, &rollout.WaitingFor{Kind: rollout.WaitPods,
		Message: "step 2 of 3 begins"}
	progress := machine.LegProgress{Status: &on, Parts: []machine.Part{{Kind: machine.ActMove}}}
	progress.Message = "1 of 1 new pods are ready"
	payloads, err := converter.GetDefaultDataConverter().ToPayloads(progress)
	require.NoError(t, err)
	shown := atStep(1)
	shown.WaitingFor = &rollout.WaitingFor{Kind: rollout.WaitPods}
	showRolloutProgress(&shown, []*workflowpb.PendingActivityInfo{{HeartbeatDetails: payloads,
		ActivityType: &commonpb.ActivityType{Name: machine.ActivityLeg}}})
	require.Equal(t, 2, shown.CurrentStepIndex)
	require.Equal(t, "step 2 of 3 begins", shown.WaitingFor.Message)
}
