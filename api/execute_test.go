package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// Warnings of a party are returned by validation and execution.
func TestPlan_ReturnsPartyWarnings(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	const budget = "PodDisruptionBudget db lets none of its pods go now"
	e.party.warn("222", budget)
	want := []schema.FieldProblem{{Item: 2, Field: "deployPlanItems[1].serviceId", Reason: budget}}
	checked := decode[schema.ValidateResult](e.call("POST", "/api/v1/plans/validate",
		"deployPlanItems:\n- {serviceId: 111, priority: 3, deployment: RESTART}\n- {serviceId: 222, priority: 1, "+
			"deployment: RESTART}\n", yamlBody).is(http.StatusOK, "it is valid"))
	require.True(t, checked.Valid)
	require.Equal(t, want, checked.Warnings)
	started := decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusAccepted,
		"a warning does not refuse the plan"))
	require.Equal(t, want, started.Warnings)
}

func TestTask_FromExecuteToDelete(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("Shop", "111 3", "222 1", "333 1")
	e.party.hold("222", "333")
	started := e.call("POST", "/api/v1/plans/Shop/execute", `{"actor":"li","reason":"release 2.4"}`, jsonBody,
		"Slipway-Via: cli").is(http.StatusAccepted, "it can run")
	id := decode[schema.ExecuteResult](started).ID
	require.Regexp(t, `^shop-\d{14}-[a-z2-7]{5}$`, id)

	running := e.wait(id, "both of wave 2 with their pods", func(t plan.Task) bool {
		return len(t.Services[1].Workloads) == 1 &&
			t.Services[1].Workloads[0].Message == "222: 2 of 3 pods are ready" &&
			len(t.Services[2].Workloads) == 1 && t.Services[2].Workloads[0].Message == "333: 2 of 3 pods are ready"
	})
	require.Equal(t, plan.TaskRunning, running.State)
	require.Equal(t, "li: release 2.4", running.Actor+": "+running.ExecuteReason, "who executed the plan, and why")
	require.Equal(t, plan.ItemSucceeded, running.Services[0].State)
	require.Equal(t, "task/"+id, running.Workflow.ID)
	require.True(t, strings.HasPrefix(running.Workflow.URL, "http://ui.example/namespaces/test-"), running.Workflow.URL)
	require.Contains(t, running.Workflow.URL, "/workflows/task%2F"+id+"/"+running.Workflow.RunID)

	busy := e.call("POST", "/api/v1/plans/Shop/execute", "").is(http.StatusConflict, "a plan has one live task")
	require.Equal(t, id, busy.problem().Task, "the problem names it")
	require.Contains(t, busy.problem().Detail, "is Running")
	e.call("DELETE", "/api/v1/plans/Shop", "").is(http.StatusConflict, "its task runs")
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusConflict, "it runs")
	e.call("GET", "/api/v1/tasks/"+id+"/report", "").is(http.StatusOK, "a running task has a report, too")

	e.party.open()
	e.waitState(id, plan.TaskSucceeded)
	again := e.execute("Shop") // immediately: a task that only has to write its record does not block the plan
	require.NotEqual(t, id, again)
	e.waitState(again, plan.TaskSucceeded)

	report := e.call("GET", "/api/v1/tasks/"+id+"/report", "", "Accept: text/markdown").is(http.StatusOK,
		"it has ended")
	require.Contains(t, report.body, "# Report of task "+id)
	require.Contains(t, report.body, "- Executed by: li\n- Reason given: release 2.4\n")
	require.Contains(t, e.call("GET", "/api/v1/tasks/"+id+"/report?format=json", "",
		"Accept: text/markdown").header.Get("Content-Type"), "application/json", "format wins")

	e.waitClosed(id)
	ended := e.task(id)
	require.Equal(t, "li: release 2.4", ended.Actor+": "+ended.ExecuteReason, "the record contains it, too")
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusNoContent, "it has ended")
	e.call("GET", "/api/v1/tasks/"+id, "").is(http.StatusNotFound, "it was deleted")
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusNotFound, "it was deleted")
	list := decode[schema.TaskList](e.call("GET", "/api/v1/tasks", ""))
	require.Len(t, list.Items, 1, "the other one remains")
	for _, workflowID := range []string{"task/" + id, "task/" + id + "/1-111", "task/" + id + "/2-222",
		"task/" + id + "/3-333"} {
		_, deleted := e.deleted.Load(workflowID)
		require.True(t, deleted, "Temporal was asked to delete %s", workflowID)
	}
	e.call("DELETE", "/api/v1/plans/Shop", "").is(http.StatusNoContent, "no task is running")
}

func TestTaskWorkflow_HasSearchAttributesAndUserMetadata(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.hold("111")
	id := decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/shop/execute", `{"actor":"li"}`, jsonBody)).ID
	described, err := e.temporal.DescribeWorkflowExecution(t.Context(), "task/"+id, "")
	require.NoError(t, err)
	values := map[string]any{}
	for name, payload := range described.GetWorkflowExecutionInfo().GetSearchAttributes().GetIndexedFields() {
		var value any
		require.NoError(t, converter.GetDefaultDataConverter().FromPayload(payload, &value))
		values[name] = value
	}
	require.Equal(t, "task", values["SlipwayKind"])
	require.Equal(t, "shop", values["SlipwayName"])
	require.Equal(t, []any{"111", "222"}, values["SlipwayServices"])
	require.Equal(t, []any{"default"}, values["SlipwayParties"])
	var summary, details string
	metadata := described.GetExecutionConfig().GetUserMetadata()
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(metadata.GetSummary(), &summary))
	require.NoError(t, converter.GetDefaultDataConverter().FromPayload(metadata.GetDetails(), &details))
	require.Equal(t, "plan shop: 2 services in 2 waves (what it waits for: see User Metadata)", summary)
	for _, expected := range []string{"1. priority 3: RESTART 111", "2. priority 1: RESTART 222", "`pause`",
		"Requested by li"} {
		require.Contains(t, details, expected)
	}
}

func TestExecute_Refuses(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusNotFound, "there is no such plan")
	e.putPlan("shop", "111 3", "222 1")
	e.call("PUT", "/api/v1/plans/two", "deployPlanItems:\n- {serviceId: 998, deployment: STOP}\n- {serviceId: 999, "+
		"deployment: STOP}\n", yamlBody)
	two := e.call("POST", "/api/v1/plans/two/execute", "").is(http.StatusUnprocessableEntity,
		"both are not in the catalogue")
	require.Len(t, two.problem().Errors, 2, "every reason at once")

	e.call("PUT", "/api/v1/plans/upload", "deployPlanItems:\n- {serviceId: 111, deployment: COMPILE_DEPLOY, "+
		"compileRepoPath: 'http://example.com/a.git', compileRepoBranch: main}\n", yamlBody)
	require.Contains(t, e.call("POST", "/api/v1/plans/upload/execute", "").is(http.StatusUnprocessableEntity,
		"the service has no build").reasons(), "service 111 has no `build`")

	stranger := strings.Replace(orderService, "namespace: shop", "namespace: shop\n  party: nobody-at-all", 1)
	e.call("PUT", "/api/v1/services/far", stranger, yamlBody)
	e.call("PUT", "/api/v1/plans/far", "deployPlanItems:\n- {serviceId: far, deployment: STOP}\n", yamlBody)
	require.Contains(t, e.call("POST", "/api/v1/plans/far/execute", "").is(http.StatusUnprocessableEntity,
		"the party does not exist").reasons(),
		"party nobody-at-all is not known")

	e.party.refuse("222", "Deployment shop/222 is not there")
	refused := e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusUnprocessableEntity,
		"the party cannot do it")
	require.Equal(t, "2 deployPlanItems[1].serviceId (line 0): Deployment shop/222 is not there", refused.reasons(),
		"item and workload are named")
	require.Empty(t, decode[schema.TaskList](e.call("GET", "/api/v1/tasks", "")).Items, "nothing was written")
}

// What the catalogue refuses does not hide what the parties refuse, of other items and of the same one.
func TestPlan_NamesReasonsOfEveryItem(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("other", "111 3", "222 1")
	e.call("PUT", "/api/v1/services/nodes", `workloads:
- {namespace: shop, workloadRef: {apiVersion: apps/v1, kind: DaemonSet, name: agent}}
- {namespace: shop, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: paused}}
- {namespace: shop, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: missing}}
`, yamlBody).is(http.StatusCreated, "it is new")
	e.party.refuse("paused", "Deployment shop/paused is paused")
	e.party.refuse("missing", "Deployment shop/missing does not exist")
	e.party.refuse("222", "Deployment shop/222 is paused")
	document := "deployPlanItems:\n- {serviceId: nodes, deployment: STOP}\n- {serviceId: '222', deployment: STOP}\n" +
		"- {serviceId: '999', deployment: STOP}\n- {serviceId: '111', deployment: STOP}\n"
	want := []string{"1 a DaemonSet has no size", "1 Deployment shop/paused is paused",
		"1 Deployment shop/missing does not exist", "2 Deployment shop/222 is paused",
		"3 service 999 is not in the catalogue"}
	requireAll := func(what string, found []schema.FieldProblem) {
		require.Len(t, found, len(want), "%s: %v", what, found)
		for i, one := range want {
			item, reason, _ := strings.Cut(one, " ")
			require.Equal(t, item, fmt.Sprint(found[i].Item), "%s: %v", what, found)
			require.Contains(t, found[i].Reason, reason, what)
		}
	}
	checked := decode[schema.ValidateResult](e.call("POST", "/api/v1/plans/validate", document, yamlBody).is(
		http.StatusOK, "validate always answers"))
	require.False(t, checked.Valid)
	requireAll("validate", checked.Errors)
	e.call("PUT", "/api/v1/plans/all", document, yamlBody).is(http.StatusCreated, "a plan may wait for its services")
	refused := e.call("POST", "/api/v1/plans/all/execute", "").is(http.StatusUnprocessableEntity, "nothing can run")
	requireAll("execute", refused.problem().Errors)
	requireAll("diff", e.call("POST", "/api/v1/plans/all/diff", "").is(http.StatusUnprocessableEntity,
		"what an execution would refuse").problem().Errors)
	require.Empty(t, decode[schema.TaskList](e.call("GET", "/api/v1/tasks", "")).Items, "nothing was written")
}

// A refusal that is known stays one while a party can't be asked.
func TestExecute_IsRefused_WhenPartyOfAnotherItemIsUnreachable(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.putPlan("shop", "111 3")
	e.call("PUT", "/api/v1/plans/two", "deployPlanItems:\n- {serviceId: '111', deployment: STOP}\n"+
		"- {serviceId: '999', deployment: STOP}\n", yamlBody)
	refused := e.call("POST", "/api/v1/plans/two/execute", "").is(http.StatusUnprocessableEntity, "one is unknown")
	require.Contains(t, refused.reasons(), "service 999 is not in the catalogue")
}

func TestExecute_Returns503_WhenNoWorkers(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.putPlan("shop", "111 3")
	refused := e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusServiceUnavailable,
		"no workflow worker runs")
	require.Contains(t, refused.problem().Detail, "no workflow worker of the engine answers")
	ready := e.call("GET", "/readyz", "").is(http.StatusServiceUnavailable, "the worker is missing")
	require.Contains(t, ready.body, "no workflow worker takes work")

	e.startWorkers()
	require.Eventually(t, func() bool {
		return e.call("GET", "/readyz", "").status == http.StatusOK
	}, waitTimeout, pollInterval, "everything is ready")
	e.call("PUT", "/api/v1/services/away", strings.Replace(orderService, "namespace: shop",
		"namespace: shop\n  party: alice", 1), yamlBody)
	e.call("PUT", "/api/v1/plans/away", "deployPlanItems:\n- {serviceId: away, deployment: STOP}\n", yamlBody)
	e.createParty("alice")
	away := e.call("POST", "/api/v1/plans/away/execute", "").is(http.StatusServiceUnavailable,
		"the party exists, but has no worker")
	require.Contains(t, away.problem().Detail, "party alice")
	require.Contains(t, away.problem().Errors[0].Reason, "no worker of queue slipway.party.alice was ever seen",
		"the reason contains what is known about its workers")

	e.temporalDown.Store(true)
	e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusServiceUnavailable, "Temporal is unavailable")
	require.Eventually(t, func() bool {
		ready := e.call("GET", "/readyz", "")
		return ready.status == http.StatusServiceUnavailable && strings.Contains(ready.body, `"ok":false`)
	}, waitTimeout, pollInterval, "Temporal is unavailable")
	records, err := e.store.FindRecords(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, records, "nothing was written")
}

func TestExecute_StartsOneTask_WhenConcurrent(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.party.hold("111")
	var wg sync.WaitGroup
	answers := make([]answer, 8)
	for i := range answers {
		wg.Go(func() { answers[i] = e.call("POST", "/api/v1/plans/shop/execute", "") })
	}
	wg.Wait()
	var accepted []string
	for _, a := range answers {
		if a.status == http.StatusAccepted {
			accepted = append(accepted, decode[schema.ExecuteResult](a).ID)
			continue
		}
		a.is(http.StatusConflict, "another request was faster")
	}
	require.Len(t, accepted, 1, "a plan has one live task")
	records, err := e.store.FindRecords(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, records, 1, "the other requests leave nothing behind")
}

func TestExecute_StartsOneTask_WhenKeyRepeated(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.putPlan("other", "222 3")
	e.party.hold("111")
	const key = "Idempotency-Key: pipeline-4711"
	var wg sync.WaitGroup
	answers := make([]answer, 8)
	for i := range answers {
		wg.Go(func() { answers[i] = e.call("POST", "/api/v1/plans/shop/execute", `{"actor": "li"}`, jsonBody, key) })
	}
	wg.Wait()
	ids := map[string]bool{}
	for _, a := range answers {
		ids[decode[schema.ExecuteResult](a.is(http.StatusAccepted, "the same key is the same task")).ID] = true
	}
	require.Len(t, ids, 1, "the same key is the same task")
	id := decode[schema.ExecuteResult](answers[0]).ID

	repeat := e.call("POST", "/api/v1/plans/shop/execute", `{"reason":"", "actor":"li"}`, jsonBody,
		key).is(http.StatusAccepted, "formatting of the body does not matter")
	require.Equal(t, id, decode[schema.ExecuteResult](repeat).ID)
	require.Equal(t, id, e.call("POST", "/api/v1/plans/shop/execute", `{"actor":"wang"}`, jsonBody,
		key).is(http.StatusConflict, "another body").problem().Task)
	e.call("POST", "/api/v1/plans/other/execute", `{"actor":"li"}`, jsonBody, key).is(http.StatusConflict,
		"another plan")
	e.party.open()
	e.waitState(id, plan.TaskSucceeded)
	repeated := e.call("POST", "/api/v1/plans/shop/execute", `{"actor":"li"}`, jsonBody, key).is(http.StatusAccepted,
		"it has been executed")
	require.Equal(t, id, decode[schema.ExecuteResult](repeated).ID, "and is not executed again")

	e.waitClosed(id)
	e.keepDeleted.Store(true)
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusNoContent, "it has ended")
	fresh := decode[schema.ExecuteResult](e.call("POST", "/api/v1/plans/shop/execute", `{"actor":"li"}`, jsonBody,
		key).is(http.StatusAccepted, "the key is free again")).ID
	require.NotEqual(t, id, fresh, "its old ID is not free while Temporal still has the workflow")
	e.waitState(fresh, plan.TaskSucceeded)
}

// A process that dies during an execution leaves partial results at each step. A repeat with the same key continues
// from there.
func TestExecute_Continues_WhenRepeatedAfterCrash(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"before the record", "before the claim", "after the claim"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t).startWorkers()
			e.putPlan("shop", "111 3")
			const key = "Idempotency-Key: k"
			e.home.breakAt(place, true)
			e.call("POST", "/api/v1/plans/shop/execute", "", key).is(http.StatusInternalServerError, "the process died")
			e.home.breakAt(place, false)
			id := e.execute("shop", key)
			e.waitState(id, plan.TaskSucceeded)
			require.Equal(t, id, e.execute("shop", key), "one key is one task")
			records, err := e.store.FindRecords(t.Context(), nil)
			require.NoError(t, err)
			require.Len(t, records, 1, "one task is one record")
		})
	}
}

func TestPlan_IsBlocked_WhileTaskIsBeingStarted(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3")
	e.home.breakAt("after the claim", true)
	e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusInternalServerError, "the process died")
	e.home.breakAt("after the claim", false)
	busy := e.call("POST", "/api/v1/plans/shop/execute", "").is(http.StatusConflict,
		"the first request may still be starting it")
	require.Contains(t, busy.problem().Detail, "being started")
	id := busy.problem().Task
	pending := e.task(id)
	require.Equal(t, plan.TaskPending, pending.State)
	require.Contains(t, pending.Reason, "being started")
	e.call("POST", "/api/v1/tasks/"+id+"/pause", "").is(http.StatusConflict, "there is nothing to pause yet")
	e.call("DELETE", "/api/v1/tasks/"+id, "").is(http.StatusConflict, "it is being started")
	e.call("DELETE", "/api/v1/plans/shop", "").is(http.StatusConflict, "it is being started")
	e.waitListed("", id, plan.TaskPending)
}

func TestTask_CanBeReplaced_WhenInterrupted(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.fail("111", failure.Unreachable)
	first := e.execute("shop")
	interrupted := e.waitState(first, plan.TaskInterrupted)
	require.Contains(t, interrupted.Reason, "111 cannot: Unreachable")
	e.call("DELETE", "/api/v1/plans/shop", "").is(http.StatusConflict, "it can still be resumed")

	e.party.fail("111", "")
	e.party.hold("111")
	second := e.execute("shop")
	require.NotEqual(t, first, second)
	refused := e.call("POST", "/api/v1/tasks/"+first+"/resume", "").is(http.StatusConflict,
		"another task has replaced it")
	require.Contains(t, refused.problem().Detail, second)
	require.Equal(t, plan.TaskInterrupted, refused.problem().Current.State, "the problem shows the current task")
	e.call("POST", "/api/v1/tasks/"+first+"/stop", "").is(http.StatusOK, "it can be stopped")
	e.party.open()
	e.waitState(second, plan.TaskSucceeded)
}

func TestTask_RunsSnapshot_WhenPlanChanges(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.putPlan("shop", "111 3", "222 1")
	e.party.hold("111")
	id := e.execute("shop")
	used := e.call("DELETE", "/api/v1/services/222", "").is(http.StatusConflict,
		"the plan could not be executed without it")
	require.Contains(t, used.problem().Detail, "service 222 is used by plan shop: remove it there first")
	e.call("PUT", "/api/v1/plans/shop", "deployPlanItems:\n- {serviceId: 111, deployment: STOP}\n",
		yamlBody).is(http.StatusOK, "the plan can be changed")
	e.call("DELETE", "/api/v1/services/222", "").is(http.StatusNoContent, "a service that no plan uses can be deleted")
	e.party.open()
	require.Len(t, e.waitState(id, plan.TaskSucceeded).Services, 2, "the task runs its snapshot")
	snapshot, err := e.store.Snapshot(context.Background(), id)
	require.NoError(t, err)
	require.Len(t, snapshot.Services, 2)
	require.Equal(t, int64(5), snapshot.UnreachableBudgetSeconds)
	require.Equal(t, map[string]string{"default": "slipway.party.default"}, snapshot.Queues)
}

func TestExecute_ThousandItems(t *testing.T) {
	t.Parallel()
	e := newEngine(t).startWorkers()
	e.party.hold("111")
	e.putService("111")
	var document strings.Builder
	document.WriteString("deployPlanItems:\n")
	for i := range 1000 {
		fmt.Fprintf(&document, "- {serviceId: 111, priority: %d, deployment: RESTART}\n", i)
	}
	e.call("PUT", "/api/v1/plans/big", document.String(), yamlBody).is(http.StatusCreated, "it is new")
	id := e.execute("big")
	require.Len(t, e.waitState(id, plan.TaskRunning).Services, 1000)
	e.call("POST", "/api/v1/tasks/"+id+"/stop", "").is(http.StatusOK, "it can be stopped")
	e.party.open()
	e.waitState(id, plan.TaskStopped)
}

func (e *engine) createParty(name string) {
	e.t.Helper()
	object := fmt.Sprintf(`{"apiVersion":"slipway.io/v1alpha1","kind":"Party","metadata":{"name":%q},"spec":{}}`, name)
	err := harnessKube(e.t).Post().AbsPath("/apis/" + v1alpha1.GroupVersion.String() + "/namespaces/" +
		e.store.Namespace() + "/parties").
		Body([]byte(object)).Do(e.t.Context()).Error()
	require.NoError(e.t, err)
}
