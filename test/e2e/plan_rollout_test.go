package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// canaryService has its deploys released by a Rollout of two steps, the first of which waits for a person.
const canaryService = "package: {container: app, mountPath: /app}\n" + canarySteps

const canarySteps = `strategy: {canary: {steps: [{replicas: 1}, {replicas: "100%"}]}}
`

// packageOptions let a worker fetch from this machine.
var packageOptions = []string{"--source-allow", "127.0.0.0/8", "--image", "registry.test/slipway:v1"}

// packageEnvironment are the same options for workers that run apart.
var packageEnvironment = []string{"SLIPWAY_SOURCE_ALLOW=127.0.0.0/8", "SLIPWAY_IMAGE=registry.test/slipway:v1"}

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

func (p *planWithCanary) markdownReport(t *testing.T) string {
	t.Helper()
	report := p.Call(http.MethodGet, "/api/v1/tasks/"+p.task+"/report", "", "Accept", "text/markdown")
	require.Equal(t, http.StatusOK, report.Status, string(report.Body))
	return string(report.Body)
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
	e := harness.Start(t, harness.Options{Args: packageOptions})
	t.Run("Approved", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "approved")
		task, status := p.waits("approved")
		require.Equal(t, plan.ItemSucceeded, task.Services[0].State)
		require.Equal(t, plan.ItemPending, task.Services[2].State, "the next wave waits for the canary")
		require.Contains(t, task.Services[1].Reason, "step 1 of 2 is done: it waits for somebody to approve it")
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
		told := p.markdownReport(t)
		require.Contains(t, told, "rollout "+p.Apps+"/approved-canary", "the rollout is named")
		require.Regexp(t, `\| rollout \S+/approved-canary \| approve of step 1 \| accepted \|`, told, "who approved it is a decision of the task")
		require.Regexp(t, `\| ann \| http \| task \| pause \| accepted \|`, told)
		require.Contains(t, told, "| Deployment "+p.Apps+"/approved-canary | Succeeded | 2 |", "its size is known")
		p.Record(item, "service-release-rollout")
		p.Record(plan.WorkflowID(p.task), "task-rollout-paused")
		p.Record(p.RolloutID("approved-canary"), "rollout-of-a-plan-package")

		again := p.WaitTask(p.Execute("approved"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
		require.Equal(t, "nothing to do", again.Services[1].Reason, "the same bytes roll nothing, and need no approval")

		back := reverse(t, p.Engine, p.task, http.StatusCreated)
		succeeds(p.Engine, t, back.Name)
		require.Empty(t, p.packaged(t, "approved"), "RESTORE takes back what a rollout has brought, without steps")
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
		p.Record(plan.ItemWorkflowID(p.task, 2, "stopped-canary"), "service-release-rollout-stopped")
		p.Record(plan.WorkflowID(p.task), "task-rollout-stopped")
	})
	t.Run("Compiled", func(t *testing.T) {
		t.Parallel()
		b := newBuilder(t, e.In(t))
		b.Deployment("compiled", 2, nil)
		b.WaitReadyPods("compiled", 2)
		before := imageOf(t, b.Engine, "compiled")
		b.PutService("compiled", buildOf(`image: "registry.test/order:{{commit}}"`, loggedIn, clone)+canarySteps, "Deployment/compiled")
		b.PutPlan("compiled", compilePlan("compiled", b.repository, "main"))
		b.repository.Push("main", map[string]string{"app.txt": "one", "build.sh": makesAnImage})
		id := b.Execute("compiled")
		b.Approve("compiled", b.WaitRest("compiled", 1))
		task := b.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		require.Equal(t, task.Services[0].Build.Image, imageOf(t, b.Engine, "compiled"), "what was built is released by a rollout")
		again := b.run(t, "compiled")
		require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
		require.Equal(t, "nothing to do", again.Services[0].Reason, "the same commit needs no build and no approval")
		back := reverse(t, b.Engine, id, http.StatusCreated)
		succeeds(b.Engine, t, back.Name)
		require.Equal(t, before, imageOf(t, b.Engine, "compiled"))
	})
	t.Run("Taken", func(t *testing.T) {
		t.Parallel()
		e := e.In(t)
		e.Deployment("taken", 2, nil)
		e.WaitReadyPods("taken", 2)
		web := sources.NewFiles(t)
		putPackage(t, web, "/app.zip", "taken")
		e.PutService("taken", canaryService, "Deployment/taken")
		e.PutPlan("taken", packagePlan("taken", web.URL+"/app.zip", ""))
		e.StartRollout(harness.Rollout{Name: "taken", Kind: harness.Deployment,
			Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}})
		other := e.WaitRest("taken", 1)
		diff := e.Call(http.MethodPost, "/api/v1/plans/taken/diff", "")
		require.Equal(t, http.StatusOK, diff.Status, "an execution is accepted: %s", diff.Body)
		require.Contains(t, string(diff.Body), "the item fails if that still runs when it begins")
		over := e.WaitTask(e.Execute("taken"), plan.TaskFailed, plan.TaskSucceeded)
		require.Equal(t, plan.TaskFailed, over.State)
		require.Contains(t, over.Reason, "runs already, and was not started by this task")
		require.Equal(t, other.Record, e.Rollout("taken").Record, "the other rollout goes on, and no record of another is left")
	})
	t.Run("RolledBack", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "back")
		_, status := p.waits("back")
		blocked := p.Call(http.MethodPost, "/api/v1/plans/back/execute", "{}")
		require.Equal(t, http.StatusConflict, blocked.Status)
		p.MustVerb("back-canary", "rollback", `{"actor":"ann","reason":"errors since step 1"}`)
		over := p.WaitTask(p.task, plan.TaskFailed, plan.TaskSucceeded)
		require.Equal(t, plan.TaskFailed, over.State)
		require.Contains(t, over.Reason, "RolledBack", "a rollout that is rolled back fails its service")
		require.Equal(t, status.Record, over.Services[1].Workloads[0].Rollout.Record)
		report := string(p.Call(http.MethodGet, "/api/v1/tasks/"+p.task+"/report", "").Body)
		require.Contains(t, report, "RolledBack")
		told := p.markdownReport(t)
		require.Regexp(t, `\| ann \| http \| rollout \S+/back-canary \| rollback of step 1 \| accepted \| errors since step 1 \|`, told)
		require.NotContains(t, told, "look at it before you reverse it by hand", "everything is of the stable version")
		p.Kubectl("delete", "releaserecord", status.Record, "-n", p.Home)
		require.Contains(t, p.markdownReport(t), "It is not known what was decided on rollout "+p.Apps+"/back-canary: its record is not kept any more.")
	})
}

// The canary in the middle of a plan is approved from the Temporal UI, in a real browser, with nothing but its page.
func TestLongPlanWithCanaryInTheTemporalUI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: packageOptions})
	p := newPlanWithCanary(t, e, "seen")
	task, status := p.waits("seen")
	b := openBrowser(t)
	b.visit(task.Workflow.URL)
	b.until("read whom the task waits for", `[...document.querySelectorAll("iframe")].some(f => { const s = f.contentDocument?.body?.innerText ?? f.srcdoc; return s.includes("seen-canary, which may wait for an approval"); })`)
	b.shoot("plan-with-canary.png")
	b.visit(status.Workflow.URL)
	b.sendSignal("approve", []string{"approve", "rollback", "stop"})
	over := p.WaitTask(p.task, plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, over.State, over.Reason)
	approvals := 0
	for _, entry := range p.Rollout("seen-canary").History {
		if entry.Verb == rollout.VerbApprove {
			require.Equal(t, "temporal", entry.Via)
			approvals++
		}
	}
	require.Equal(t, 1, approvals)
}

// crashedCanary runs a plan whose item is a rollout, with a worker that dies.
type crashedCanary struct{ *supervised }

// release deploys another package, and wants one rollout of it, whatever died.
func (c *crashedCanary) release(web *sources.Files, text string, during func()) {
	c.t.Helper()
	digest := putPackage(c.t, web, "/app.zip", text)
	downloads, generation := web.Downloads("/app.zip"), c.DeploymentGeneration("canary")
	id := c.Execute("crash")
	during()
	status := c.WaitRollout("canary", "its approval", func(s rollout.Status) bool {
		return s.Task == id && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitApproval
	})
	c.Approve("canary", status)
	task := c.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
	require.Equal(c.t, plan.TaskSucceeded, task.State, task.Reason)
	require.Equal(c.t, digest, task.Services[0].Workloads[0].ToPackage)
	require.LessOrEqual(c.t, web.Downloads("/app.zip")-downloads, 2, "a death costs one more download at most: the package has no store here")
	require.Greater(c.t, c.DeploymentGeneration("canary"), generation)
	history := c.Call(http.MethodGet, "/api/v1/rollouts/"+c.Apps+"/canary/history", "")
	require.Equal(c.t, http.StatusOK, history.Status)
	require.Equal(c.t, 1, strings.Count(string(history.Body), `"task":"`+id+`"`), "one rollout for the task, and one record: %s", history.Body)
}

func TestSoakPlanWithCanaryKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killCanaryAt(t, func(string) bool { return true })
}

func killCanaryAt(t *testing.T, chosen func(point string) bool) {
	t.Helper()
	c := &crashedCanary{newSupervised(t, "SLIPWAY_SOURCE_ALLOW=127.0.0.0/8", "SLIPWAY_IMAGE=registry.test/slipway:v1")}
	web := sources.NewFiles(t)
	c.Deployment("canary", 2, nil)
	c.WaitReadyPods("canary", 2)
	c.PutService("canary", canaryService, "Deployment/canary")
	c.PutPlan("crash", packagePlan("canary", web.URL+"/app.zip", ""))
	c.release(web, "clean", func() {})
	points, kills := c.points(), 0
	for n, point := range points {
		if !chosen(point) {
			continue
		}
		kills++
		t.Logf("kill at failpoint %d: %s", n+1, point)
		died := c.dead()
		require.NoError(t, os.WriteFile(c.arm, fmt.Appendf(nil, `{"after":%d}`, n), 0o600))
		c.release(web, fmt.Sprintf("killed at %d", n+1), func() {
			if strings.HasPrefix(point, "rollout.record.begin") { // others may come only with the approval
				require.Eventually(t, func() bool { return c.dead() > died }, harness.Patience, harness.Tick, "the worker never came by failpoint %d, %s", n+1, point)
			}
		})
		require.Greater(t, c.dead(), died, "the worker never came by failpoint %d, %s", n+1, point)
	}
	require.Positive(t, kills, "the run without a crash passes failpoints: %v", points)
	harness.Covered(t, kills, "kills of a worker at failpoints of a plan's rollout")
}
