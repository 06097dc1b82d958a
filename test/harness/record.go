package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/test/histories"
)

// maxRecordedEvents bounds the size of a recorded history.
const maxRecordedEvents = 600

var recording sync.Mutex

// recordHistories adds histories of a Temporal namespace's closed workflows to the folder SLIPWAY_RECORD_HISTORIES, for
// the replay test: each that contains something that no recorded history of its type has. Without that variable it does
// nothing.
func recordHistories(t testing.TB, temporal client.Client, namespace string) {
	dir := os.Getenv("SLIPWAY_RECORD_HISTORIES")
	if _, is := unrecorded.Load(t.Name()); is || dir == "" {
		return
	}
	recording.Lock()
	defer recording.Unlock()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	list, err := temporal.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: namespace, Query: "ExecutionStatus != 'Running'"})
	if err != nil {
		t.Logf("no history was recorded: %v", err) // the test has stopped its Temporal server
		return
	}
	recorded, n := recordedContents(t, dir), 0
	for _, closed := range list.GetExecutions() {
		history := &historypb.History{Events: historyOf(t, temporal, closed.GetExecution())}
		if len(history.Events) > maxRecordedEvents || histories.Encrypted(history) || !noteNew(recorded, history) {
			continue
		}
		n++
		name := fmt.Sprintf("%s-%s-%d.json.gz", histories.TypeOf(history),
			strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()), len(recorded)+n)
		require.NoError(t, histories.Write(filepath.Join(dir, name), history))
	}
}

// recordedContents returns what the recorded histories contain, each content behind its workflow type.
func recordedContents(t testing.TB, dir string) map[string]bool {
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	require.NoError(t, err)
	for _, file := range files {
		history, err := histories.Read(file)
		require.NoError(t, err)
		noteNew(found, history)
	}
	return found
}

// noteNew adds the contents of a history to found, and reports whether any of them is new.
func noteNew(found map[string]bool, history *historypb.History) (isNew bool) {
	for _, content := range histories.Contents(history) {
		key := histories.TypeOf(history) + " " + content
		isNew = isNew || !found[key]
		found[key] = true
	}
	return isNew
}

func historyOf(t testing.TB, temporal client.Client, run *commonpb.WorkflowExecution) (events []*historypb.HistoryEvent) {
	it := temporal.GetWorkflowHistory(context.Background(), run.GetWorkflowId(), run.GetRunId(), false,
		enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for it.HasNext() {
		event, err := it.Next()
		require.NoError(t, err)
		events = append(events, event)
	}
	return events
}

// unrecorded are the names of the tests whose workflows are fakes.
var unrecorded sync.Map

// DoNotRecord keeps the histories of a test that runs fake workflows from being recorded.
func DoNotRecord(t testing.TB) { unrecorded.Store(t.Name(), true) }
