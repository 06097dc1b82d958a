package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// canaryService has its deploys released by a Rollout of two steps, the first of which waits for a person.
const canaryService = `package: {container: app, mountPath: /app}
strategy: {canary: {steps: [{replicas: 1}, {replicas: "100%"}]}}
`

// planWithCanary has a canary in its middle wave, behind one and before another service.
type planWithCanary struct {
	*harness.Engine
	web    *sources.Files
	digest string
	task   string
}

func newPlanWithCanary(t *testing.T, e *harness.Engine, name string) *planWithCanary {
	t.Helper()
	p := &planWithCanary{Engine: e.In(t), web: sources.NewFiles(t)}
	first, canary, last := name+"-first", name+"-canary", name+"-last"
	for _, workload := range []string{first, canary, last} {
		p.Deployment(workload, 2, nil)
	}
	for _, workload := range []string{first, canary, last} {
		p.WaitReadyPods(workload, 2)
	}
	p.PutService(first, "", "Deployment/"+first)
	p.PutService(canary, canaryService, "Deployment/"+canary)
	p.PutService(last, "", "Deployment/"+last)
	p.digest = putPackage(t, p.web, "/app.zip", name)
	p.PutPlan(name, "deployPlanItems:\n- {serviceId: "+first+", priority: 3, deployment: RESTART}\n- {serviceId: "+canary+
		", priority: 2, deployment: HTTP_UPLOAD_DEPLOY, httpSrcUri: '"+p.web.URL+"/app.zip'}\n- {serviceId: "+last+", priority: 1, deployment: STOP}\n")
	p.task = p.Execute(name)
	return p
}

// waits waits until the task shows that its canary waits for an approval.
func (p *planWithCanary) waits(name string) (plan.Task, rollout.Status) {
	task := p.WaitFor(p.task, "the canary waits for an approval", func(task plan.Task) bool {
		w := task.Services[1].Workloads
		return len(w) == 1 && w[0].Rollout != nil && w[0].Rollout.WaitingFor != nil && w[0].Rollout.WaitingFor.Kind == string(rollout.WaitApproval)
	})
	return task, p.Rollout(name + "-canary")
}

func (p *planWithCanary) packaged(t *testing.T, name string) string {
	t.Helper()
	d, err := p.Kube.AppsV1().Deployments(p.Apps).Get(context.Background(), name+"-canary", metav1.GetOptions{})
	require.NoError(t, err)
	return source.Packaged(d.Spec.Template.Annotations)
}

// The middle wave of a plan is a canary: it waits for a person without an event, is shown in the task's tree, is approved as any rollout, and pause and
// stop of the task leave it alone unless they say otherwise.
func TestPlanWithCanary(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: []string{"--source-allow", "127.0.0.0/8", "--image", "registry.test/slipway:v1"}})
	t.Run("Approved", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "approved")
		task, status := p.waits("approved")
		require.Equal(t, plan.ItemSucceeded, task.Services[0].State)
		require.Equal(t, plan.ItemPending, task.Services[2].State, "the next wave waits for the canary")
		require.Contains(t, task.Services[1].Reason, "waits for somebody (approval)")
		require.Equal(t, p.task, status.Task)
		require.Equal(t, p.digest, status.Package)
		item := plan.ItemWorkflowID(p.task, 2, "approved-canary")
		before := []int{p.Events(plan.WorkflowID(p.task)), p.Events(item)}

		require.Equal(t, http.StatusOK, p.Verb(p.task, "pause", `{"actor":"ann"}`).Status)
		paused := p.Task(p.task)
		require.Equal(t, plan.TaskPausing, paused.State)
		require.Contains(t, paused.Reason, "service approved-canary", "who is waited for is named")
		require.Equal(t, before[1], p.Events(item), "a rollout that waits costs its item no event, and a pause is not its business")
		p.Approve("approved-canary", status)
		p.WaitTask(p.task, plan.TaskPaused)
		require.Equal(t, p.digest, p.packaged(t, "approved"))
		require.Equal(t, http.StatusOK, p.Verb(p.task, "resume", "").Status)
		over := p.WaitTask(p.task, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, over.State, over.Reason)
		w := over.Services[1].Workloads[0]
		require.Equal(t, string(rollout.PhaseHealthy), w.Rollout.Phase)
		require.Equal(t, p.digest, w.ToPackage)
		require.True(t, w.Changed)

		again := p.WaitTask(p.Execute("approved"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
		require.Equal(t, "nothing to do", again.Services[1].Reason, "the same bytes roll nothing, and need no approval")
	})
	t.Run("Stopped", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "stopped")
		p.waits("stopped")
		stopping := p.Verb(p.task, "stop", `{"actor":"ann"}`)
		require.Equal(t, http.StatusOK, stopping.Status, string(stopping.Body))
		require.Equal(t, rollout.PhaseProgressing, p.Rollout("stopped-canary").Phase, "a stop of the task leaves the rollout alone")
		require.Contains(t, p.Task(p.task).Reason, "service stopped-canary")
		again := p.Verb(p.task, "stop", `{}`)
		require.Equal(t, http.StatusConflict, again.Status)
		require.Contains(t, string(again.Body), "`to`", "the refusal says how to end it")
		wrong := p.Verb(p.task, "stop", `{"to":"stabel"}`)
		require.Equal(t, http.StatusBadRequest, wrong.Status)

		require.Equal(t, http.StatusOK, p.Verb(p.task, "stop", `{"actor":"ann","reason":"called off","to":"stable"}`).Status)
		over := p.WaitTask(p.task, plan.TaskStopped, plan.TaskFailed)
		require.Equal(t, plan.TaskStopped, over.State, over.Reason)
		require.Equal(t, plan.ItemSkipped, over.Services[2].State)
		ended := p.WaitPhase("stopped-canary", rollout.PhaseRolledBack)
		last := ended.History[len(ended.History)-1]
		require.Equal(t, "ann", last.Actor, "the rollout's record names who stopped it")
		require.Empty(t, p.packaged(t, "stopped"))
	})
	t.Run("RolledBack", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "back")
		_, status := p.waits("back")
		blocked := p.Call(http.MethodPost, "/api/v1/plans/back/execute", "{}")
		require.Equal(t, http.StatusConflict, blocked.Status)
		p.MustVerb("back-canary", "rollback", `{"actor":"ann"}`)
		over := p.WaitTask(p.task, plan.TaskFailed, plan.TaskSucceeded)
		require.Equal(t, plan.TaskFailed, over.State)
		require.Contains(t, over.Reason, "RolledBack", "a rollout that is rolled back fails its service")
		require.Equal(t, status.Record, over.Services[1].Workloads[0].Rollout.Record)
		report := string(p.Call(http.MethodGet, "/api/v1/tasks/"+p.task+"/report", "").Body)
		require.True(t, strings.Contains(report, "RolledBack"), report)
	})
}
