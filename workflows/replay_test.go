package workflows

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// Every recorded history replays on this build: a release that an earlier build started finishes on this one. Histories
// are kept per version and never recorded again. With SLIPWAY_RECORD_HISTORIES naming a folder there, the tests of
// test/e2e add the missing ones.
func TestRecordedHistoriesReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*/*.json.gz")
	require.NoError(t, err)
	types := map[string]int{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/histories/"), ".json.gz"), func(t *testing.T) {
			history := readHistory(t, file)
			types[history.Events[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()]++
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
				Interceptors: []interceptor.WorkerInterceptor{NewInterceptor()}})
			require.NoError(t, err)
			replayer.RegisterWorkflowWithOptions(DeployPlan, workflow.RegisterOptions{Name: TypeDeployPlan})
			replayer.RegisterWorkflowWithOptions(ServiceRelease, workflow.RegisterOptions{Name: TypeServiceRelease})
			replayer.RegisterWorkflowWithOptions(Preflight, workflow.RegisterOptions{Name: TypePreflight})
			replayer.RegisterWorkflowWithOptions(Rollout, workflow.RegisterOptions{Name: TypeRollout})
			replayer.RegisterWorkflowWithOptions(Serving, workflow.RegisterOptions{Name: TypeServing})
			replayer.RegisterWorkflowWithOptions(ServingStatus, workflow.RegisterOptions{Name: TypeServingStatus})
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
	for _, name := range []string{TypeDeployPlan, TypeServiceRelease, TypePreflight, TypeRollout, TypeServing,
		TypeServingStatus,
		TypeServingStatuses, TypePackageSweep} {
		require.NotZero(t, types[name], "no history of workflow type %s is recorded", name)
	}
}

func readHistory(t *testing.T, path string) *historypb.History {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	var history historypb.History
	require.NoError(t, temporalproto.CustomJSONUnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, &history))
	return &history
}
