package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

func harnessKube(t *testing.T) rest.Interface {
	return harness.SharedStack(t).Kube.CoreV1().RESTClient()
}

// waitListed waits until a list contains only that task, in that state: Temporal's lists lag behind the task itself.
func (e *engine) waitListed(query, id string, state plan.TaskState) {
	e.t.Helper()
	var list schema.TaskList
	require.Eventually(e.t, func() bool {
		list = decode[schema.TaskList](e.call("GET", "/api/v1/tasks?"+query, "").is(http.StatusOK, query))
		return len(list.Items) == 1 && list.Items[0].ID == id && list.Items[0].State == state
	}, waitTimeout, pollInterval, "the list of tasks does not contain only %s in %s; it is %+v", id, state, &list)
}

func TestTaskVerbs(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.hold("111")
	id := e.execute("shop")
	path := "/api/v1/tasks/" + id
	e.waitState(id, plan.TaskRunning)

	pausing := decode[plan.Task](e.call("POST", path+"/pause", `{"actor":"wang","reason":"wait","key":"p1"}`, jsonBody,
		"Slipway-Via: console").is(http.StatusOK, "it runs"))
	require.Equal(t, plan.TaskPausing, pausing.State)
	require.Len(t, pausing.History, 1)
	decision := pausing.History[0]
	require.Equal(t, audit.Entry{At: decision.At, Actor: "wang", Via: "console", Verb: plan.VerbPause, Reason: "wait",
		Key:     "p1",
		Outcome: audit.Accepted, Message: decision.Message}, decision)
	repeated := decode[plan.Task](e.call("POST", path+"/pause", `{"actor":"wang","reason":"wait","key":"p1"}`,
		jsonBody).is(http.StatusOK, "the same key is the same command"))
	require.Len(t, repeated.History, 1, "nothing was done twice")
	misused := e.call("POST", path+"/stop", `{"key":"p1"}`, jsonBody).is(http.StatusConflict,
		"the key was used for another verb")
	require.Contains(t, misused.problem().Detail, "was used for pause")
	require.Equal(t, plan.TaskPausing, e.task(id).State, "nothing was done")

	refused := e.call("POST", path+"/pause", "").is(http.StatusConflict, "it is pausing already")
	require.Equal(t, id, refused.problem().Task)
	require.Equal(t, plan.TaskPausing, refused.problem().Current.State, "with the current state")
	require.Equal(t, audit.Refused, refused.problem().Current.History[1].Outcome, "refusals are recorded")

	e.party.open()
	e.waitState(id, plan.TaskPaused)
	e.call("POST", path+"/resume", "").is(http.StatusOK, "it is paused")
	e.waitState(id, plan.TaskSucceeded)
	e.waitClosed(id)
	closed := e.call("POST", path+"/stop", "").is(http.StatusConflict, "it has ended")
	require.Contains(t, closed.problem().Detail, "the task is Succeeded, which is final")
	late := e.call("POST", path+"/pause", `{"key":"p1"}`, jsonBody).is(http.StatusOK,
		"a late repeat gets the first answer")
	require.Equal(t, plan.TaskSucceeded, decode[plan.Task](late).State)
	e.call("POST", path+"/stop", `{"key":"p1"}`, jsonBody).is(http.StatusConflict, "the key was used for another verb")
	e.call("POST", "/api/v1/tasks/nothing/pause", "").is(http.StatusNotFound, "there is no such task")
}

func TestTaskVerb_OutcomeIsUnknown_WhenNoWorkerRuns(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.hold("111")
	id := e.execute("shop")
	e.wait(id, "a running service", func(t plan.Task) bool { return t.Services[0].State == plan.ItemRunning })
	e.party.hold("222")
	e.stopWorkers()

	unknown := e.call("POST", "/api/v1/tasks/"+id+"/stop", `{"key":"s1"}`, jsonBody).is(http.StatusServiceUnavailable,
		"no worker runs")
	require.Contains(t, unknown.problem().Detail, `unknown; repeat with the same key, "s1"`)
	dark := e.task(id)
	require.Equal(t, plan.TaskRunning, dark.State, "the last published state")
	require.Contains(t, dark.Reason, "does not answer")
	require.Len(t, dark.Services, 2)
	e.waitListed("", id, plan.TaskRunning)

	e.startWorkers()
	e.callAgain("POST", "/api/v1/tasks/"+id+"/stop", `{"key":"s1"}`, jsonBody).is(http.StatusOK,
		"the repeat is answered")
	stopped := e.waitState(id, plan.TaskStopped)
	require.Len(t, stopped.History, 1, "and it was one command")
}

// A verb answered by the workflow is reported even if the task cannot be read afterwards; the same holds for a refusal.
func TestTaskVerb_IsAnswered_WhenTaskCannotBeReadAfterwards(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.hold("111")
	id := e.execute("shop")
	e.waitState(id, plan.TaskRunning)
	var sent atomic.Bool
	cutAfter := func(request any) {
		switch request.(type) {
		case *workflowservice.UpdateWorkflowExecutionRequest:
			sent.Store(true)
		case *workflowservice.DescribeWorkflowExecutionRequest:
			e.temporalDown.Store(sent.Load())
		}
	}
	e.onRequest.Store(&cutAfter)
	path := "/api/v1/tasks/" + id + "/pause"
	accepted := decode[plan.Task](e.call("POST", path, `{"key":"p1"}`, jsonBody).is(http.StatusOK, "it was accepted"))
	require.Equal(t, plan.TaskPausing, accepted.State, "as the workflow has answered")
	require.Contains(t, accepted.Reason, "pause was accepted: ")
	require.Contains(t, accepted.Reason, "reading the release afterwards failed")
	require.Len(t, accepted.Services, 2, "the services come from the record")
	sent.Store(false)
	e.temporalDown.Store(false)
	refused := e.call("POST", path, `{"key":"p2"}`, jsonBody).is(http.StatusConflict, "it is pausing already")
	require.Equal(t, id, refused.problem().Task)
	require.Contains(t, refused.problem().Detail, "is Pausing already")
}

// A task whose workflow was continued as new is one task: it started with its first run, and all its runs are deleted
// with it.
func TestTask_WithSeveralRuns(t *testing.T) {
	harness.DoNotRecord(t)
	t.Parallel()
	e := newEngine(t)
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const id, queue = "shop-1", "several-runs"
	runs := worker.New(e.temporal, queue, worker.Options{})
	runs.RegisterWorkflowWithOptions(func(ctx workflow.Context, more int) error {
		if more == 0 {
			workflow.GetSignalChannel(ctx, "end").Receive(ctx, nil)
			return nil
		}
		if err := workflow.UpsertMemo(ctx, map[string]any{workflows.MemoStartedAt: began}); err != nil {
			return err
		}
		return workflow.NewContinueAsNewError(ctx, workflows.TypeDeployPlan, more-1)
	}, workflow.RegisterOptions{Name: workflows.TypeDeployPlan})
	require.NoError(t, runs.Start())
	defer runs.Stop()
	snapshot, err := v1alpha1.EncodeBody(plan.Snapshot{Task: id, Plan: "shop", CreatedAt: began})
	require.NoError(t, err)
	require.NoError(t, e.store.CreateRecord(t.Context(), &v1alpha1.ReleaseRecord{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RecordName(v1alpha1.KindTask, id),
			Labels: map[string]string{v1alpha1.LabelKind: v1alpha1.KindTask, v1alpha1.LabelSubject: "shop"}},
		Spec: v1alpha1.ReleaseRecordSpec{Kind: v1alpha1.KindTask, Subject: "shop", WorkflowID: plan.WorkflowID(id),
			Snapshot:  snapshot,
			CreatedAt: instant.MicroOf(began)}}))
	first, err := e.temporal.ExecuteWorkflow(t.Context(),
		client.StartWorkflowOptions{ID: plan.WorkflowID(id), TaskQueue: queue,
			TypedSearchAttributes: temporal.NewSearchAttributes(workflows.AttributeKind.ValueSet(workflows.KindTask),
				workflows.AttributeState.ValueSet(string(plan.TaskRunning)), workflows.AttributeName.ValueSet("shop"))},
		workflows.TypeDeployPlan, 2)
	require.NoError(t, err)
	e.waitListed("", id, plan.TaskRunning)
	require.Eventually(t, func() bool {
		list := decode[schema.TaskList](e.call("GET", "/api/v1/tasks", "").is(http.StatusOK, "the list of tasks"))
		return list.Items[0].StartedAt != nil && list.Items[0].StartedAt.Equal(began)
	}, waitTimeout, pollInterval, "the task started with its first run")

	var newest *workflowservice.DescribeWorkflowExecutionResponse
	require.Eventually(t, func() bool {
		// a run that continues as new ignores the signal
		_ = e.temporal.SignalWorkflow(t.Context(), plan.WorkflowID(id), "", "end", nil)
		newest, err = e.temporal.DescribeWorkflowExecution(t.Context(), plan.WorkflowID(id), "")
		return err == nil && !execution.IsOpen(newest)
	}, waitTimeout, pollInterval, "the last run ends")
	require.NoError(t, e.store.CompleteTask(t.Context(),
		plan.Task{ID: id, Plan: "shop", State: plan.TaskSucceeded, Services: []plan.ServiceStatus{}}, 0))
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusNoContent, "it has ended")
	deleted := map[any]bool{}
	e.deletedRuns.Range(func(runID, _ any) bool {
		deleted[runID] = true
		return true
	})
	require.Len(t, deleted, 3, "every run is deleted, the one in the middle too")
	require.True(t, deleted[first.GetRunID()], "the first")
	require.True(t, deleted[newest.GetWorkflowExecutionInfo().GetExecution().GetRunId()], "the newest")
}

func TestTask_IsInterrupted_WhenWorkflowTerminated(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.hold("111")
	id := e.execute("shop")
	// The outline, which is returned while a worker is late, shows the workload before its operation starts.
	e.wait(id, "a service at work", func(t plan.Task) bool {
		return len(t.Services[0].Workloads) == 1 && t.Services[0].Workloads[0].Message != ""
	})
	require.NoError(t, e.temporal.TerminateWorkflow(t.Context(), "task/"+id, "", "by the test"))

	lost := e.waitState(id, plan.TaskInterrupted)
	require.Contains(t, lost.Reason, "was terminated")
	require.Contains(t, lost.Reason, "execute the plan again")
	e.waitListed("state=Interrupted", id, plan.TaskInterrupted)
	resume := e.call("POST", "/api/v1/tasks/"+id+"/resume", "").is(http.StatusConflict, "nothing is left to resume")
	require.Contains(t, resume.problem().Detail, "execute the plan again")
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusConflict, "its service is still being released")

	e.party.open()
	e.wait(id, "its service done", func(t plan.Task) bool { return t.Services[0].State == plan.ItemSucceeded })
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusNoContent, "nothing of it runs")
	e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusNotFound, "it was deleted")
	e.waitState(e.execute("shop"), plan.TaskSucceeded)
}

func TestTask_IsReadable_WhenTemporalUnavailable(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	id := e.execute("shop")
	e.waitState(id, plan.TaskSucceeded)
	e.waitClosed(id)
	before := e.task(id)
	e.temporalDown.Store(true)
	require.Equal(t, before, e.task(id), "the record suffices while Temporal is unavailable")
	e.waitListed("", id, plan.TaskSucceeded)
	e.call("GET", "/api/v1/tasks/"+id+"/report", "").is(http.StatusOK, "the record suffices")
	e.call("GET", "/api/v1/tasks/nothing", "").is(http.StatusNotFound, "no record, no task")
}

func TestListTasks(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("a", "111 3")
	e.putPlan("b", "222 3")
	var ids []string
	for range 3 {
		id := e.execute("a")
		e.waitState(id, plan.TaskSucceeded)
		e.waitClosed(id)
		ids = append(ids, id)
	}
	e.party.hold("222")
	running := e.execute("b")
	e.waitState(running, plan.TaskRunning)
	list := func(query string) (got []string, next string) {
		page := decode[schema.TaskList](e.call("GET", "/api/v1/tasks?"+query, "").is(http.StatusOK, query))
		for _, item := range page.Items {
			got = append(got, item.ID)
		}
		return got, page.NextCursor
	}
	slices.Reverse(ids)
	e.waitListed("state=Running", running, plan.TaskRunning)
	for _, c := range []struct {
		reason, query string
		want          []string
	}{
		{"all, newest first", "", append([]string{running}, ids...)},
		{"of one plan", "plan=a", ids},
		{"of a plan that has none", "plan=c", nil},
		{"in one state", "state=Running", []string{running}},
		{"in one of two states", "state=Running&state=Succeeded", append([]string{running}, ids...)},
		{"of one plan and state", "plan=b&state=Succeeded", nil},
	} {
		got, next := list(c.query)
		require.Equal(t, c.want, got, c.reason)
		require.Empty(t, next, c.reason)
	}
	first, cursor := list("limit=3")
	rest, end := list("limit=3&cursor=" + cursor)
	require.Equal(t, append([]string{running}, ids...), append(first, rest...), "in pages")
	require.Empty(t, end)
	page := decode[schema.TaskList](e.call("GET", "/api/v1/tasks?state=Succeeded&limit=1", ""))
	require.Equal(t, "release of the shop", page.Items[0].Comment)
	require.NotNil(t, page.Items[0].FinishedAt)
	require.NotEmpty(t, page.NextCursor, "there are more in that state")
}

// A task that waits for its window has not started, although its workflow runs.
func TestListTasks_StartedAtIsEmpty_WhileWaitingForWindow(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	started := e.call("POST", "/api/v1/plans/shop/execute", `{"notBefore":"2090-01-01T00:00:00Z"}`,
		jsonBody).is(http.StatusAccepted, "it can wait")
	id := decode[schema.ExecuteResult](started).ID
	e.wait(id, "its window", func(t plan.Task) bool { return t.WaitingFor != nil })
	startOf := func(query string) *time.Time {
		list := decode[schema.TaskList](e.call("GET", "/api/v1/tasks"+query, "").is(http.StatusOK, query))
		require.Len(t, list.Items, 1, query)
		return list.Items[0].StartedAt
	}
	for _, query := range []string{"", "?plan=shop"} {
		e.waitListed(strings.TrimPrefix(query, "?"), id, plan.TaskRunning)
		require.Nil(t, startOf(query), "nothing has begun (%q)", query)
	}
	e.call("POST", "/api/v1/tasks/"+id+"/approve", `{"actor":"li","reason":"hotfix"}`, jsonBody).is(http.StatusOK,
		"the approval ends the wait")
	running := e.wait(id, "its first service", func(t plan.Task) bool { return t.StartedAt != nil })
	for _, query := range []string{"", "?plan=shop"} {
		require.True(t, running.StartedAt.Equal(*startOf(query)), "it started with its first service (%q)", query)
	}
}

func TestGetTask_NotFound_WhenRecordDeleted(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("a", "111 3")
	id := e.execute("a")
	e.waitState(id, plan.TaskSucceeded)
	e.waitClosed(id)
	_, err := e.store.PruneRecords(t.Context(), v1alpha1.KindTask, "a", "", 50)
	require.NoError(t, err)
	require.NoError(t, e.store.DeleteRecord(t.Context(), id))
	e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusNotFound,
		fmt.Sprintf("the record of %s was deleted, although Temporal still has its workflow", id))
}
