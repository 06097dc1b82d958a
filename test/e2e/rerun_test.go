package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
)

// rerun runs a task again and returns the ID of the new task.
func rerun(t *testing.T, e *harness.Engine, task, key string) string {
	t.Helper()
	a := e.Call(http.MethodPost, "/api/v1/tasks/"+task+"/rerun", `{"actor":"ann","reason":"the image is there now"}`,
		"Idempotency-Key", key)
	require.Equal(t, http.StatusAccepted, a.Status, "%s", a.Body)
	var started schema.ExecuteResult
	require.NoError(t, json.Unmarshal(a.Body, &started))
	require.Equal(t, "/api/v1/tasks/"+started.ID, a.Header.Get("Location"))
	return started.ID
}

// A task that failed in its second wave is run again: from the failed item on, with the current catalogue, and once
// however often the request is repeated.
func TestRerun_StartsAtFailedItem_WithCurrentCatalogue(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("fine", 1, nil)
	e.Deployment("pale", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Image = "registry.test/pale:bad"
	})
	e.Deployment("late", 1, nil)
	e.WaitReadyPods("fine", 1)
	e.WaitReadyPods("late", 1)
	for _, name := range []string{"fine", "pale", "late"} {
		e.PutService(name, "deadlineSeconds: 5\n", "Deployment/"+name)
	}
	e.PutPlan("again", `deployPlanItems:
- {serviceId: late, priority: 1, deployment: RESTART}
- {serviceId: fine, priority: 3, deployment: RESTART}
- {serviceId: pale, priority: 2, deployment: RESTART}
`)
	failed := e.WaitTask(e.Execute("again"), plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskFailed, failed.State, failed.Reason)

	pale, err := e.Kube.AppsV1().Deployments(e.Apps).Get(context.Background(), "pale", metav1.GetOptions{})
	require.NoError(t, err)
	pale.Spec.Template.Spec.Containers[0].Image = "registry.test/pale:v2"
	_, err = e.Kube.AppsV1().Deployments(e.Apps).Update(context.Background(), pale, metav1.UpdateOptions{})
	require.NoError(t, err)
	e.PutService("pale", "deadlineSeconds: 60\n", "Deployment/pale") // the rerun uses the current catalogue
	uids := e.PodUIDs("fine")
	id := rerun(t, e, failed.ID, "pipeline-7")
	require.Equal(t, id, rerun(t, e, failed.ID, "pipeline-7"), "a repeat is the same task")
	again := e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
	require.Equal(t, failed.ID, again.RerunOf)
	require.Equal(t, []plan.ServiceID{"late", "pale"},
		[]plan.ServiceID{again.Services[0].ServiceID, again.Services[1].ServiceID}, "what succeeded is not run again")
	require.False(t, again.Services[0].StartedAt.Before(*again.Services[1].FinishedAt), "the order of waves is kept")
	require.Equal(t, uids, e.PodUIDs("fine"))

	refused := e.Call(http.MethodPost, "/api/v1/tasks/"+id+"/rerun", "")
	require.Equal(t, http.StatusConflict, refused.Status, "%s", refused.Body)
	require.Contains(t, string(refused.Body), "succeeded, so nothing of it is to be run again")
	require.Equal(t, http.StatusNotFound, e.Call(http.MethodPost, "/api/v1/tasks/nobody/rerun", "").Status)
	require.Equal(t, http.StatusUnprocessableEntity, e.Call(http.MethodPost, "/api/v1/tasks/"+id+"/reverse", "").Status,
		"restarts leave nothing to take back")

	var history schema.TaskList
	require.Eventually(t, func() bool {
		require.NoError(t, json.Unmarshal(e.Call(http.MethodGet, "/api/v1/tasks?plan=again", "").Body, &history))
		return len(history.Items) == 2 && history.Items[0].Services != nil && history.Items[0].Services.Succeeded == 2
	}, harness.Patience, harness.Tick)
	require.Equal(t, "ann", history.Items[0].Actor)
	require.Equal(t, failed.ID, history.Items[0].RerunOf)
	require.Equal(t, &plan.ServiceCounts{Total: 3, Succeeded: 1, Failed: 1, Skipped: 1}, history.Items[1].Services)
}
