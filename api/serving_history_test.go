package api_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
)

func (e *engine) servingHistory(id, query string) schema.ServingHistory {
	e.t.Helper()
	return decode[schema.ServingHistory](e.call("GET", "/api/v1/servings/"+id+"/history"+query, "").is(http.StatusOK,
		"it has a history"))
}

// recordServing writes the record of an operation that began at the given time.
func (e *engine) recordServing(id, run string, started time.Time) string {
	e.t.Helper()
	in := serving.Input{ID: id, Kind: serving.KindUpdate, Generation: 2, TargetDigest: "new",
		Parties: []serving.PartyTarget{{Domain: "alice"}}}
	require.NoError(e.t, e.store.RecordServing(e.t.Context(),
		serving.NewReleaseRequest(in, kuscia.Operation{WorkflowID: serving.WorkflowPrefix(id) + "2", RunID: run},
			started)))
	return v1alpha1.RecordName(v1alpha1.KindServing, run)
}

func (e *engine) endServing(record string, end serving.Ending) {
	e.t.Helper()
	require.NoError(e.t, e.store.CompleteServing(e.t.Context(), record, end, 0))
}

func TestServingHistory_AfterDeletion(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	none := e.call("GET", "/api/v1/servings/missing/history", "").is(http.StatusNotFound, "no serving ever had that ID")
	require.Contains(t, none.problem().Detail, "no operation on one of that ID is recorded")
	e.call("GET", "/api/v1/servings/A_b/history", "").is(http.StatusNotFound, "the ID is illegal")
	e.createServing("quiet", image)
	require.Empty(t, e.servingHistory("quiet", "").Items, "it exists without operations")

	begun := time.Now().Add(-time.Hour)
	for n := range 3 {
		at := begun.Add(time.Duration(n) * time.Minute)
		e.endServing(e.recordServing("missing", fmt.Sprintf("r%d", n), at),
			serving.Ending{State: serving.StateSucceeded, Message: fmt.Sprintf("the %d.", n), At: at.Add(time.Second)})
	}
	e.recordServing("other", uuid.NewString(), begun)
	lost := e.servingHistory("other", "").Items[0]
	require.Equal(t, serving.StateFailed, lost.State)
	require.Contains(t, lost.Message, "it has no recorded outcome, and its workflow no longer exists")
	e.temporalDown.Store(true)
	first := e.servingHistory("missing", "?limit=2")
	require.Len(t, first.Items, 2)
	require.Equal(t, []string{"the 2.", "the 1."}, []string{first.Items[0].Message, first.Items[1].Message},
		"newest first")
	require.Equal(t, "serving-r2", first.Items[0].Record)
	require.Contains(t, first.Items[0].Workflow.URL, "/r2/user-metadata", "with its page in the Temporal UI")
	second := e.servingHistory("missing", "?limit=2&cursor="+first.NextCursor)
	require.Len(t, second.Items, 1)
	require.Equal(t, "the 0.", second.Items[0].Message)
	require.Empty(t, second.NextCursor)
	e.call("GET", "/api/v1/servings/missing/history?limit=0", "").is(http.StatusBadRequest, "a limit of 0 is illegal")
	e.call("GET", "/api/v1/servings/missing/history?cursor=x", "").is(http.StatusBadRequest, "the cursor is illegal")
	e.call("GET", "/api/v1/servings/other/history", "").is(http.StatusServiceUnavailable, "only Temporal has its state")
}

func TestServingHistory_ShowsRunningOperation(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.startWorkers()
	kd := e.createServing("one", image)
	view := e.updateServing(kd)
	now := e.servingHistory("one", "").Items
	require.Len(t, now, 1)
	require.Equal(t, serving.StateProgressing, now[0].State)
	require.NotNil(t, now[0].WaitingFor, "the awaited approval is shown")
	require.Equal(t, view.Operation.WaitingFor.Gate, now[0].WaitingFor.Gate)
	require.Nil(t, now[0].FinishedAt)

	e.call("POST", "/api/v1/servings/one/stop", `{"actor":"ann","reason":"bad numbers"}`, jsonBody).is(http.StatusOK,
		"it is rolled back")
	var past []serving.Release
	require.Eventually(t, func() bool {
		past = e.servingHistory("one", "").Items
		return past[0].State == serving.StateRolledBack
	}, waitTimeout, pollInterval)
	require.Len(t, past, 1)
	require.Equal(t, []string{"ann", "stop", "bad numbers"},
		[]string{past[0].History[0].Actor, past[0].History[0].Verb, past[0].History[0].Reason})
	require.NotNil(t, past[0].FinishedAt)
	require.Nil(t, past[0].WaitingFor)
}

func TestServingHistory_ShowsTerminatedOperationAsFailed(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.startWorkers()
	view := e.updateServing(e.createServing("one", image))
	require.NoError(t, e.temporal.TerminateWorkflow(t.Context(), view.Operation.Workflow.ID, "", "by hand"))
	ended := e.servingHistory("one", "").Items[0]
	require.Equal(t, serving.StateFailed, ended.State)
	require.Contains(t, ended.Message, "its workflow was terminated")
	require.NotNil(t, ended.FinishedAt)
}
