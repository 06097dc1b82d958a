package harness

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/api/workflowservice/v1"
)

var identities = regexp.MustCompile(`"identity":\s*"[^"]*"`)

// RecordHistory saves the history of a workflow for the replay test, in the folder SLIPWAY_RECORD_HISTORIES; without
// that variable it does nothing. An existing history is not overwritten.
func (e *Engine) RecordHistory(workflowID, name string) {
	e.t.Helper()
	dir := os.Getenv("SLIPWAY_RECORD_HISTORIES")
	if dir == "" {
		return
	}
	path := filepath.Join(dir, name+".json.gz")
	if _, err := os.Stat(path); err == nil {
		return
	}
	var history historypb.History
	it := e.Workflows.GetWorkflowHistory(context.Background(), workflowID, "", false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		event, err := it.Next()
		require.NoError(e.t, err)
		history.Events = append(history.Events, event)
	}
	raw, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(&history)
	require.NoError(e.t, err)
	// the recorder's host and process are not published
	raw = identities.ReplaceAll(raw, []byte(`"identity":"slipway"`))
	require.NoError(e.t, os.MkdirAll(dir, 0o755))
	f, err := os.Create(path)
	require.NoError(e.t, err)
	z := gzip.NewWriter(f)
	_, err = z.Write(raw)
	require.NoError(e.t, err)
	require.NoError(e.t, z.Close())
	require.NoError(e.t, f.Close())
}

// RecordNewestHistory is RecordHistory for the newest completed workflow of a type, for workflows whose ID the test
// does not have.
func (e *Engine) RecordNewestHistory(workflowType, name string) {
	e.t.Helper()
	var id string
	require.Eventually(e.t, func() bool {
		list, err := e.Workflows.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: e.TemporalNamespace, Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Completed'",
				workflowType)})
		if err != nil || len(list.GetExecutions()) == 0 {
			return false
		}
		id = list.GetExecutions()[0].GetExecution().GetWorkflowId()
		return true
	}, Patience, Tick, "no workflow of type %s has completed", workflowType)
	e.RecordHistory(id, name)
}
