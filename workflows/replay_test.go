package workflows

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/test/histories"
)

// Every recorded history replays: a change of a workflow's commands is noticed. Until version 0.9.0 is released, such a
// change records the histories anew: delete them, and run test/e2e with SLIPWAY_RECORD_HISTORIES naming the folder.
// After that it needs a version gate.
func TestRecordedHistoriesReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*.json.gz")
	require.NoError(t, err)
	recorded := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json.gz"), func(t *testing.T) {
			history, err := histories.Read(file)
			require.NoError(t, err)
			for _, content := range histories.Contents(history) {
				recorded[histories.TypeOf(history)+" "+content] = true
			}
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
				Interceptors: []interceptor.WorkerInterceptor{NewInterceptor()}})
			require.NoError(t, err)
			replayer.RegisterWorkflowWithOptions(DeployPlan, workflow.RegisterOptions{Name: TypeDeployPlan})
			replayer.RegisterWorkflowWithOptions(ServiceRelease, workflow.RegisterOptions{Name: TypeServiceRelease})
			replayer.RegisterWorkflowWithOptions(Preflight, workflow.RegisterOptions{Name: TypePreflight})
			replayer.RegisterWorkflowWithOptions(Rollout, workflow.RegisterOptions{Name: TypeRollout})
			replayer.RegisterWorkflowWithOptions(Serving, workflow.RegisterOptions{Name: TypeServing})
			replayer.RegisterWorkflowWithOptions(ServingStatuses, workflow.RegisterOptions{Name: TypeServingStatuses})
			replayer.RegisterWorkflowWithOptions(PackageSweep, workflow.RegisterOptions{Name: TypePackageSweep})
			replayer.RegisterWorkflowWithOptions(ServingCheck, workflow.RegisterOptions{Name: TypeServingCheck})
			began := history.Events[0].GetWorkflowExecutionStartedEventAttributes()
			// An approval gate is a token of the workflow's ID and run: a replay needs the real ones.
			require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(nil, history,
				worker.ReplayWorkflowHistoryOptions{
					OriginalExecution: workflow.Execution{ID: began.GetWorkflowId(),
						RunID: began.GetOriginalExecutionRunId()}}))
		})
	}
	for kind, wanted := range wantedContents {
		for _, content := range wanted {
			require.True(t, recorded[kind+" "+content], "no recorded history of workflow type %s has: %s", kind, content)
		}
	}
}

// wantedContents is what the recorded histories of each workflow type must contain: every action and every kind of
// failure that it can meet.
var wantedContents = map[string][]string{
	TypeDeployPlan: {"marker LocalActivity home.CheckOrigin",
		"activity home.BeginTask", "activity home.CompleteRecord", "activity home.NextOpening",
		"child ServiceRelease", "update approve", "update pause", "update resume", "update stop"},
	TypeServiceRelease: {"marker LocalActivity home.CheckOrigin",
		"activity home.LoadItem", "activity workload.Run", "activity workload.Restore",
		"activity home.ClaimHolder", "activity rollout.Preflight", "activity home.RecordRollout",
		"activity home.WithdrawRollout", "child Rollout", "activity source.Fetch", "activity source.Confirm",
		"activity source.Resolve", "activity source.Build", "failure Refused", "failure WorkloadFailed",
		"failure Claimed", "failure ClaimLost", "failure NotFound", "failure Gone", "failure Unreachable",
		"failure Forbidden"},
	TypePreflight: {"activity workload.Preflight", "activity workload.Diff", "activity rollout.Preflight",
		"timeout ScheduleToStart"},
	TypeRollout: {"marker LocalActivity home.CheckOrigin",
		"activity rollout.Leg", "leg begin", "leg move", "leg route", "leg finish", "cancelled rollout.Leg",
		"activity home.ClaimHolder", "activity home.HoldTraffic", "activity home.LeaveTraffic",
		"activity home.NextOpening", "marker LocalActivity home.CompleteRollout",
		"marker LocalActivity PublishRollout", "signal slipway.observed", "update approve", "update pause",
		"update resume", "update stop", "update rollback", "update jump", "update retry", "update promote",
		"update supersede", "update detach", "failure Refused", "failure WorkloadFailed", "failure Claimed",
		"failure ClaimLost", "failure NotFound", "failure Drift", "failure Gone", "failure Unreachable",
		"failure Forbidden"},
	TypeServing: {"activity party.Create", "activity party.Prepare", "activity party.Apply", "activity party.Remove",
		"cancelled party.Apply", "timeout Heartbeat", "marker LocalActivity home.BeginServing",
		"marker LocalActivity home.NoteServing", "marker LocalActivity home.ReleaseServing", "signal presence",
		"signal supersede", "update approve", "update pause", "update resume", "update stop"},
	TypeServingStatuses: {"activity home.ObserveServings", "signal observed-many"},
	TypeServingCheck:    {"activity party.Check", "activity home.ExpectedServings"},
	TypePackageSweep: {"marker LocalActivity home.CheckOrigin",
		"activity home.UnrecordedPackages", "activity source.Unnamed", "activity source.Remove"},
}
