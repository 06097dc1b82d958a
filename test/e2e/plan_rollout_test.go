package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/sources"
)

// canaryService releases its deployments by a rollout of two steps, the first of which waits for an approval.
const canaryService = "package: {container: app, mountPath: /app}\n" + canarySteps

const canarySteps = `strategy: {canary: {steps: [{replicas: 1}, {replicas: "100%"}]}}
`

// packageOptions let a worker fetch from this machine.
var packageOptions = []string{"--source-allow", "127.0.0.0/8", "--image", "registry.test/slipway:v1"}

// packageEnvironment has the same options for workers in a separate process.
var packageEnvironment = []string{"SLIPWAY_SOURCE_ALLOW=127.0.0.0/8", "SLIPWAY_IMAGE=registry.test/slipway:v1"}

// planWithCanary is a plan of three waves with a canary in the middle one.
type planWithCanary struct {
	*harness.Engine
	web    *sources.Files
	digest string
	task   string
}

func newPlanWithCanary(t *testing.T, e *harness.Engine, name string) *planWithCanary {
	t.Helper()
	p := &planWithCanary{Engine: e.WithT(t), web: sources.NewFiles(t)}
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
	p.PutPlan(name, "deployPlanItems:\n- {serviceId: "+first+", priority: 3, deployment: RESTART}\n- {serviceId: "+
		canary+
		", priority: 2, deployment: HTTP_UPLOAD_DEPLOY, httpSrcUri: '"+p.web.URL+"/app.zip'}\n- {serviceId: "+last+
		", priority: 1, deployment: STOP}\n")
	p.task = p.Execute(name)
	return p
}

// waitApproval waits until the task shows that its canary waits for an approval.
func (p *planWithCanary) waitApproval(name string) (plan.Task, rollout.Status) {
	task := p.WaitTaskUntil(p.task, "the canary waits for an approval", func(task plan.Task) bool {
		w := task.Services[1].Workloads
		return len(w) == 1 && w[0].Rollout != nil && w[0].Rollout.WaitingFor != nil &&
			w[0].Rollout.WaitingFor.Kind == string(rollout.WaitApproval)
	})
	return task, p.Rollout(name + "-canary")
}

func (p *planWithCanary) markdownReport(t *testing.T) string {
	t.Helper()
	report := p.Call(http.MethodGet, "/api/v1/tasks/"+p.task+"/report", "", "Accept", "text/markdown")
	require.Equal(t, http.StatusOK, report.Status, string(report.Body))
	return string(report.Body)
}

func (p *planWithCanary) packageOf(t *testing.T, name string) string {
	t.Helper()
	d, err := p.Kube.AppsV1().Deployments(p.Apps).Get(context.Background(), name+"-canary", metav1.GetOptions{})
	require.NoError(t, err)
	return source.PackageDigest(d.Spec.Template.Annotations)
}

// The middle wave of a plan is a canary. It waits for an approval without adding events, is shown in the task's tree
// and is approved like any rollout. Pause and stop of the task do not affect it unless the request says so.
func TestPlanWithCanary(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: packageOptions})
	t.Run("Approved", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "approved")
		task, status := p.waitApproval("approved")
		require.Equal(t, plan.ItemSucceeded, task.Services[0].State)
		require.Equal(t, plan.ItemPending, task.Services[2].State, "the next wave waits for the canary")
		require.Contains(t, task.Services[1].Reason, "step 1 of 2 is done: waiting for approval")
		require.Equal(t, p.task, status.Task)
		require.Equal(t, p.digest, status.Package)
		item := plan.ItemWorkflowID(p.task, 2, "approved-canary")
		before := []int{p.Events(plan.WorkflowID(p.task)), p.Events(item)}

		require.Equal(t, http.StatusOK, p.Verb(p.task, "pause", `{"actor":"ann"}`).Status)
		paused := p.Task(p.task)
		require.Equal(t, plan.TaskPausing, paused.State)
		require.Contains(t, paused.Reason, "service approved-canary", "the awaited service is named")
		require.Equal(t, before[1], p.Events(item),
			"neither a waiting rollout nor a pause of the task adds an event to the item")
		p.Approve("approved-canary", status)
		p.WaitTask(p.task, plan.TaskPaused)
		require.Equal(t, p.digest, p.packageOf(t, "approved"))
		require.Equal(t, http.StatusOK, p.Verb(p.task, "resume", "").Status)
		over := p.WaitTask(p.task, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, over.State, over.Reason)
		w := over.Services[1].Workloads[0]
		require.Equal(t, string(rollout.PhaseHealthy), w.Rollout.Phase)
		require.Equal(t, p.digest, w.ToPackage)
		require.True(t, w.Changed)
		markdown := p.markdownReport(t)
		require.Contains(t, markdown, "rollout "+p.Apps+"/approved-canary", "the rollout is named")
		require.Regexp(t, `\| rollout \S+/approved-canary \| approve of step 1 \| accepted \|`, markdown,
			"the approval is listed as a decision of the task")
		require.Regexp(t, `\| ann \| http \| task \| pause \| accepted \|`, markdown)
		require.Contains(t, markdown, "| Deployment "+p.Apps+"/approved-canary | Succeeded | 2 |", "its size is known")

		again := p.WaitTask(p.Execute("approved"), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
		require.Equal(t, "nothing to do", again.Services[1].Reason,
			"the same bytes change nothing and need no approval")

		back := reverse(t, p.Engine, p.task, http.StatusCreated)
		mustSucceed(p.Engine, t, back.Name)
		require.Empty(t, p.packageOf(t, "approved"), "RESTORE reverts the rollout's package, without steps")
	})
	t.Run("Stopped", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "stopped")
		p.waitApproval("stopped")
		stopping := p.Verb(p.task, "stop", `{"actor":"ann"}`)
		require.Equal(t, http.StatusOK, stopping.Status, string(stopping.Body))
		require.Equal(t, rollout.PhaseProgressing, p.Rollout("stopped-canary").Phase,
			"a stop of the task does not stop the rollout")
		require.Contains(t, p.Task(p.task).Reason, "service stopped-canary")
		again := p.Verb(p.task, "stop", `{}`)
		require.Equal(t, http.StatusConflict, again.Status)
		require.Contains(t, string(again.Body), "`to`", "the refusal says how to end it")
		wrong := p.Verb(p.task, "stop", `{"to":"stabel"}`)
		require.Equal(t, http.StatusBadRequest, wrong.Status)

		require.Equal(t, http.StatusOK, p.Verb(p.task, "stop",
			`{"actor":"ann","reason":"called off","to":"stable"}`).Status)
		over := p.WaitTask(p.task, plan.TaskStopped, plan.TaskFailed)
		require.Equal(t, plan.TaskStopped, over.State, over.Reason)
		require.Equal(t, plan.ItemSkipped, over.Services[2].State)
		ended := p.WaitPhase("stopped-canary", rollout.PhaseRolledBack)
		last := ended.History[len(ended.History)-1]
		require.Equal(t, "ann", last.Actor, "the rollout's record names who stopped it")
		require.Empty(t, p.packageOf(t, "stopped"))
	})
	t.Run("Compiled", func(t *testing.T) {
		t.Parallel()
		b := newBuilder(t, e.WithT(t))
		b.Deployment("compiled", 2, nil)
		b.WaitReadyPods("compiled", 2)
		before := imageOf(t, b.Engine, "compiled")
		b.PutService("compiled", buildSpec(`image: "registry.test/order:{{commit}}"`, loginEnv, cloneScript)+
			canarySteps, "Deployment/compiled")
		b.PutPlan("compiled", compilePlan("compiled", b.repository, "main"))
		b.repository.Push("main", map[string]string{"app.txt": "one", "build.sh": imageBuildScript})
		id := b.Execute("compiled")
		b.Approve("compiled", b.WaitForApproval("compiled", 1))
		task := b.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
		require.Equal(t, task.Services[0].Build.Image, imageOf(t, b.Engine, "compiled"),
			"a rollout releases the built image")
		again := b.run(t, "compiled")
		require.Equal(t, plan.TaskSucceeded, again.State, again.Reason)
		require.Equal(t, "nothing to do", again.Services[0].Reason, "the same commit needs no build and no approval")
		back := reverse(t, b.Engine, id, http.StatusCreated)
		mustSucceed(b.Engine, t, back.Name)
		require.Equal(t, before, imageOf(t, b.Engine, "compiled"))
	})
	t.Run("OtherRolloutRuns", func(t *testing.T) {
		t.Parallel()
		e := e.WithT(t)
		e.Deployment("taken", 2, nil)
		e.WaitReadyPods("taken", 2)
		web := sources.NewFiles(t)
		putPackage(t, web, "/app.zip", "taken")
		e.PutService("taken", canaryService, "Deployment/taken")
		e.PutPlan("taken", packagePlan("taken", web.URL+"/app.zip", ""))
		e.StartRollout(harness.Rollout{Name: "taken", Kind: harness.Deployment,
			Strategy: strategy.Strategy{Style: strategy.StylePartition,
				Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}})
		other := e.WaitForApproval("taken", 1)
		diff := e.Call(http.MethodPost, "/api/v1/plans/taken/diff", "")
		require.Equal(t, http.StatusOK, diff.Status, "an execution is accepted: %s", diff.Body)
		require.Contains(t, string(diff.Body), "the item fails if that still runs when it begins")
		over := e.WaitTask(e.Execute("taken"), plan.TaskFailed, plan.TaskSucceeded)
		require.Equal(t, plan.TaskFailed, over.State)
		require.Contains(t, over.Reason, "runs already, and was not started by this task")
		require.Equal(t, other.Record, e.Rollout("taken").Record,
			"the other rollout continues, and there is no record of a second one")
	})
	t.Run("StableByRecord", func(t *testing.T) {
		t.Parallel()
		e := e.WithT(t)
		const name = "recorded"
		e.Deployment(name, 2, nil)
		e.WaitReadyPods(name, 2)
		web := sources.NewFiles(t)
		e.PutService(name, canaryService, "Deployment/"+name)
		execute := func(text string) (task string) {
			putPackage(t, web, "/"+text+".zip", text)
			e.PutPlan(name, packagePlan(name, web.URL+"/"+text+".zip", ""))
			return e.Execute(name)
		}
		image := imageOf(t, e, name)
		task := execute("first")
		e.Approve(name, e.WaitForApproval(name, 1))
		e.WaitTask(task, plan.TaskSucceeded)
		e.SetImage(harness.Deployment, name, "registry.test/order:bad")
		breakPods(t, e, name)
		task = execute("second")
		status := e.WaitRollout(name, "the second release knows its stable version", func(s rollout.Status) bool {
			return s.Task == task && len(s.StableImages) > 0
		})
		require.Equal(t, image, status.StableImages["app"], "the version that its last Healthy release has left")
		e.MustVerb(name, "rollback", `{"actor":"ann"}`) // the template still has the image that does not exist
		require.NoError(t, e.Kube.CoreV1().Pods(e.Apps).DeleteCollection(context.Background(), metav1.DeleteOptions{},
			metav1.ListOptions{LabelSelector: "app=" + name}), "those that came next become ready")
		e.WaitPhase(name, rollout.PhaseRolledBack)
		e.WaitTask(task, plan.TaskFailed)
		require.Equal(t, image, imageOf(t, e, name))
	})
	t.Run("RolledBack", func(t *testing.T) {
		t.Parallel()
		p := newPlanWithCanary(t, e, "back")
		_, status := p.waitApproval("back")
		blocked := p.Call(http.MethodPost, "/api/v1/plans/back/execute", "{}")
		require.Equal(t, http.StatusConflict, blocked.Status)
		p.MustVerb("back-canary", "rollback", `{"actor":"ann","reason":"errors since step 1"}`)
		over := p.WaitTask(p.task, plan.TaskFailed, plan.TaskSucceeded)
		require.Equal(t, plan.TaskFailed, over.State)
		require.Contains(t, over.Reason, "RolledBack", "a rolled-back rollout fails its service")
		require.Equal(t, status.Record, over.Services[1].Workloads[0].Rollout.Record)
		report := string(p.Call(http.MethodGet, "/api/v1/tasks/"+p.task+"/report", "").Body)
		require.Contains(t, report, "RolledBack")
		markdown := p.markdownReport(t)
		require.Regexp(t,
			`\| ann \| http \| rollout \S+/back-canary \| rollback of step 1 \| accepted \| errors since step 1 \|`,
			markdown)
		require.NotContains(t, markdown, "check it before you reverse it by hand", "all pods have the stable version")
		p.Kubectl("delete", "releaserecord", status.Record, "-n", p.Home)
		require.Contains(t, p.markdownReport(t), "The decisions on rollout "+p.Apps+
			"/back-canary are not known: its record is no longer kept.")
	})
}

// breakPods waits until the own update of a workload hangs, and makes its ready pods unready for good.
func breakPods(t *testing.T, e *harness.Engine, name string) {
	t.Helper()
	pods := e.Kube.CoreV1().Pods(e.Apps)
	var seen []corev1.Pod
	eventually := func(is func() bool) {
		require.Eventually(t, func() bool {
			list, err := pods.List(context.Background(), metav1.ListOptions{LabelSelector: "app=" + name})
			require.NoError(t, err)
			seen = list.Items
			return is()
		}, harness.Patience, harness.Tick, "%s", lazily(func() string { return fmt.Sprintf("%+v", seen) }))
	}
	eventually(func() bool {
		return slices.ContainsFunc(seen, func(p corev1.Pod) bool {
			return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				return c.State.Waiting != nil && c.State.Waiting.Reason == noImage.reason
			})
		})
	})
	eventually(func() bool {
		unready := true
		for _, p := range seen {
			at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if at < 0 {
				continue
			}
			unready = false
			// by the image of its containers, a pod of the local stack does not become ready again
			changed, err := pods.Patch(context.Background(), p.Name, types.JSONPatchType, []byte(
				`[{"op":"replace","path":"/spec/containers/0/image","value":"registry.test/order:never-ready"}]`),
				metav1.PatchOptions{})
			if err == nil {
				changed.Status.Conditions[at].Status = corev1.ConditionFalse
				_, _ = pods.UpdateStatus(context.Background(), changed, metav1.UpdateOptions{}) // repeated until it is
			}
		}
		return unready
	})
}

// The canary in the middle of a plan is approved in the Temporal UI, in a real browser, without any other client.
func TestLongPlanWithCanary_IsApproved_InTemporalUI(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: packageOptions})
	p := newPlanWithCanary(t, e, "seen")
	task, status := p.waitApproval("seen")
	b := openBrowser(t)
	b.visit(task.Workflow.URL)
	b.waitUntil("read which service the task waits for",
		`[...document.querySelectorAll("iframe")].some(f => { const s = f.contentDocument?.body?.innerText ?? f.srcdoc; return s.includes("seen-canary, which may wait for an approval"); })`)
	b.screenshot("plan-with-canary.png")
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

// crashedCanary runs a plan whose item is a rollout, with a worker that is killed.
type crashedCanary struct{ *supervised }

// release deploys another package and requires one rollout of it, despite the kill in during.
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
	require.LessOrEqual(c.t, web.Downloads("/app.zip")-downloads, 2,
		"a kill costs at most one more download: there is no package store here")
	require.Greater(c.t, c.DeploymentGeneration("canary"), generation)
	history := c.Call(http.MethodGet, "/api/v1/rollouts/"+c.Apps+"/canary/history", "")
	require.Equal(c.t, http.StatusOK, history.Status)
	require.Equal(c.t, 1, strings.Count(string(history.Body), `"task":"`+id+`"`),
		"one rollout for the task, and one record: %s", history.Body)
}

func TestSoakPlanWithCanary_StartsOneRollout_WhenWorkerKilledAtEveryFailpoint(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killWorkerDuringCanary(t, func(string) bool { return true })
}

func killWorkerDuringCanary(t *testing.T, chosen func(point string) bool) {
	t.Helper()
	c := &crashedCanary{newSupervised(t, "SLIPWAY_SOURCE_ALLOW=127.0.0.0/8", "SLIPWAY_IMAGE=registry.test/slipway:v1")}
	web := sources.NewFiles(t)
	c.Deployment("canary", 2, nil)
	c.WaitReadyPods("canary", 2)
	c.PutService("canary", canaryService, "Deployment/canary")
	c.PutPlan("crash", packagePlan("canary", web.URL+"/app.zip", ""))
	c.release(web, "clean", func() {})
	points, kills := c.passedFailpoints(), 0
	for n, point := range points {
		if !chosen(point) {
			continue
		}
		kills++
		t.Logf("kill at failpoint %d: %s", n+1, point)
		died := c.deathCount()
		require.NoError(t, os.WriteFile(c.armFile, fmt.Appendf(nil, `{"after":%d}`, n), 0o600))
		c.release(web, fmt.Sprintf("killed at %d", n+1), func() {
			// the worker may reach other failpoints only after the approval
			if strings.HasPrefix(point, "rollout.record.begin") {
				require.Eventually(t, func() bool {
					return c.deathCount() > died
				}, harness.Patience, harness.Tick, "the worker never reached failpoint %d, %s", n+1, point)
			}
		})
		require.Greater(t, c.deathCount(), died, "the worker never reached failpoint %d, %s", n+1, point)
	}
	require.Positive(t, kills, "the run without a crash passes failpoints: %v", points)
	harness.Covered(t, kills, "kills of a worker at failpoints of a plan's rollout")
}
