// Package e2e runs Slipway's binary against a real Temporal server and a real Kubernetes API, and tests it through its
// user interfaces.
package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// The example of the source document with its two services: 111 has the larger priority and runs first. START, STOP and
// RESTART take the place of its HTTP_UPLOAD_DEPLOY, which TestSourceDocumentPlan_UploadsBuildsAndStops covers.
func TestSourceDocumentExample_RunsWavesByPriority(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		operation string
		replicas  int32
		want      int
	}{
		"Start":   {"START scales a stopped service to the size in the catalogue", "START", 0, 2},
		"Stop":    {"STOP deletes every pod", "STOP", 2, 0},
		"Restart": {"RESTART replaces every pod", "RESTART", 2, 2},
	}
	for name, tc := range cases { // not parallel: the cases share the service names of the document
		t.Run(name, func(t *testing.T) {
			e := harness.Shared(t)
			e.Deployment("first", tc.replicas, nil)
			e.Deployment("second", 2, nil)
			e.WaitReadyPods("first", int(tc.replicas))
			e.WaitReadyPods("second", 2)
			before := e.PodUIDs("first")
			e.PutService("111", "", "Deployment/first")
			if tc.operation == "START" {
				e.PutService("111", "  replicas: 2\n", "Deployment/first")
			}
			e.PutService("222", "", "Deployment/second")
			e.PutPlan("example", `comment: 这是一个发布计划的注释		# 此次编排发布的备注,可以为空

deployPlanItems:   			# 发布计划的具体内容
 - serviceId: 111  			# !!必填项!! 服务id
   priority: 3					# 该服务在所有待发布服务序列中的优先级
   deployment: `+tc.operation+`   # !!必填项!! 此次服务的发布方式
   containerExecMethod: PARALLEL  # 容器部署的执行方式(串行或并行)
   httpSrcUri: http://exapmle.zip   # http上传部署的代码包地址
   compileRepoPath: http://git...   # 编译部署的git仓库地址
   compileRepoBranch: master        # 编译部署git分支名称

 - serviceId: 222
   priority: 1
   deployment: STOP
   containerExecMethod: PARALLEL

...
`)
			watched := observer.Start(t, e.Kube, e.Apps)
			task := e.WaitTask(e.Execute("example"), plan.TaskSucceeded, plan.TaskFailed)
			require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
			requireFirstDoneBeforeSecond(t, watched.Timeline(t))
			first, second := task.Services[0], task.Services[1]
			require.False(t, second.StartedAt.Before(*first.FinishedAt),
				"222 has the smaller priority: it begins after 111 has finished")
			e.WaitReadyPods("first", tc.want)
			e.WaitReadyPods("second", 0)
			if tc.operation == "RESTART" {
				for uid := range e.PodUIDs("first") {
					require.NotContains(t, before, uid, tc.reason)
				}
			}
		})
	}
}

// requireFirstDoneBeforeSecond requires that 111's Deployment is changed, fully available and released before the first
// change of 222's.
func requireFirstDoneBeforeSecond(t *testing.T, seen *observer.Timeline) {
	t.Helper()
	first, second := observer.Name{Kind: "Deployment", Name: "first"}, observer.Name{Kind: "Deployment", Name: "second"}
	before := seen.Moments[0].Workloads
	for _, m := range seen.Moments {
		if m.Workloads[second].Generation == before[second].Generation {
			continue
		}
		w := m.Workloads[first]
		require.Greater(t, w.Generation, before[first].Generation, "222 is changed before 111 is:\n%s", seen)
		require.Zero(t, w.UnavailablePods(), "222 is changed before 111 is fully available:\n%s", seen)
		require.Empty(t, w.Claim, "222 is changed before the claim of 111 is released:\n%s", seen)
		return
	}
	t.Fatalf("the watch never saw 222 change:\n%s", seen)
}

func TestTaskPauseAndStop_LetRunningServicesFinish(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("one", 2, slowToReady)
	e.Deployment("two", 2, slowToReady)
	e.Deployment("later", 1, nil)
	for name, n := range map[string]int{"one": 2, "two": 2, "later": 1} {
		e.WaitReadyPods(name, n)
		e.PutService(name, "", "Deployment/"+name)
	}
	e.PutPlan("shop", threeServices)
	cases := []struct {
		verb     string
		through  plan.TaskState
		reached  plan.TaskState
		thereYet plan.ItemState
	}{
		{"pause", plan.TaskPausing, plan.TaskPaused, plan.ItemPending},
		{"stop", plan.TaskStopping, plan.TaskStopped, plan.ItemSkipped},
	}
	for _, tc := range cases {
		id := e.Execute("shop")
		e.WaitTaskUntil(id, "two services running", func(task plan.Task) bool {
			return task.Services[0].State == plan.ItemRunning && task.Services[1].State == plan.ItemRunning
		})
		answer := e.Verb(id, tc.verb, `{"actor":"ann","reason":"lunch"}`)
		require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
		require.Contains(t, string(answer.Body), string(tc.through), "running services finish first")
		task := e.WaitTask(id, tc.reached, plan.TaskFailed)
		require.Equal(t, tc.reached, task.State, task.Reason)
		require.Equal(t, []plan.ItemState{plan.ItemSucceeded, plan.ItemSucceeded, tc.thereYet},
			[]plan.ItemState{task.Services[0].State, task.Services[1].State, task.Services[2].State},
			"both finish, nothing new starts")
		require.Equal(t, "ann", task.History[0].Actor)
		if tc.verb == "pause" {
			require.Equal(t, http.StatusConflict, e.Verb(id, "pause", "").Status, "a paused task is not paused again")
			require.Equal(t, http.StatusOK, e.Verb(id, "resume", `{"key":"again"}`).Status)
			require.Equal(t, http.StatusOK, e.Verb(id, "resume", `{"key":"again"}`).Status,
				"the same key is the same command")
			require.Equal(t, plan.TaskSucceeded, e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed).State)
			continue
		}
		refused := e.Verb(id, "resume", "")
		require.Equal(t, http.StatusConflict, refused.Status, "a stopped task is final")
		require.Contains(t, refused.Problem().Detail, "Stopped")
	}
}

func TestTask_Fails_WhenServiceFailsDuringPauseOrStop(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"pause", "stop"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			e := harness.Shared(t)
			e.Deployment("one", 0, badImage)
			e.Deployment("two", 2, slowToReady)
			e.Deployment("later", 1, nil)
			e.PutService("one-"+verb, "  replicas: 1\ndeadlineSeconds: 24\n", "Deployment/one")
			e.PutService("two-"+verb, "", "Deployment/two")
			e.PutService("later-"+verb, "", "Deployment/later")
			e.WaitReadyPods("two", 2)
			e.PutPlan("failing-"+verb, strings.ReplaceAll(`deployPlanItems:
- {serviceId: one-VERB, priority: 2, deployment: START}
- {serviceId: two-VERB, priority: 2, deployment: RESTART}
- {serviceId: later-VERB, priority: 1, deployment: RESTART}
`, "VERB", verb))
			id := e.Execute("failing-" + verb)
			e.WaitTaskUntil(id, "both running", func(task plan.Task) bool {
				return task.Services[0].State == plan.ItemRunning && task.Services[1].State == plan.ItemRunning
			})
			require.Equal(t, http.StatusOK, e.Verb(id, verb, "").Status)
			task := e.WaitTask(id, plan.TaskFailed, plan.TaskStopped, plan.TaskPaused)
			require.Equal(t, plan.TaskFailed, task.State, "a failure during the verb fails the task")
			require.Contains(t, task.Services[0].Reason, "ImagePullBackOff", "the reason has the pod's own message")
			require.Equal(t, plan.ItemSucceeded, task.Services[1].State, "the other running service finishes")
			require.Equal(t, plan.ItemSkipped, task.Services[2].State, "nothing new starts")
		})
	}
}

func TestStart_SucceedsWithoutWrite_WhenAlreadyRunning(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("one", 2, nil)
	e.WaitReadyPods("one", 2)
	e.PutService("idle", "", "Deployment/one")
	e.PutPlan("idle", "deployPlanItems: [{serviceId: idle, deployment: START}]")
	generation := e.DeploymentGeneration("one")
	task := e.WaitTask(e.Execute("idle"), plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	require.Contains(t, task.Services[0].Workloads[0].Message, "nothing to do",
		"a workload in the requested state succeeds with that message")
	require.Equal(t, generation, e.DeploymentGeneration("one"), "nothing was written")
}

func TestIdempotencyKey_MakesOneTaskPerKey(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("one", 1, nil)
	e.WaitReadyPods("one", 1)
	e.PutService("keyed", "", "Deployment/one")
	e.PutPlan("keyed", "deployPlanItems: [{serviceId: keyed, deployment: RESTART}]")
	id := e.Execute("keyed", "Idempotency-Key", "build-17")
	require.Equal(t, id, e.Execute("keyed", "Idempotency-Key", "build-17"), "the same key twice is one task")
	e.WaitTask(id, plan.TaskSucceeded)
	require.Equal(t, id, e.Execute("keyed", "Idempotency-Key", "build-17"), "also after the task has ended")
	other := e.Call(http.MethodPost, "/api/v1/plans/keyed/execute", `{"reason":"another body"}`, "Idempotency-Key",
		"build-17")
	require.Equal(t, http.StatusConflict, other.Status, "the same key with another body is refused")
	require.NotEqual(t, id, e.Execute("keyed", "Idempotency-Key", "build-18"), "another key is another task")
}

func TestReport_HasUsableReversePlan_AndTaskIsDeletable(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("one", 2, nil)
	e.WaitReadyPods("one", 2)
	e.PutService("reported", "", "Deployment/one")
	e.PutPlan("halt", "deployPlanItems: [{serviceId: reported, deployment: STOP}]")
	id := e.Execute("halt")
	require.Equal(t, plan.TaskSucceeded, e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed).State)
	e.WaitReadyPods("one", 0)

	markdown := e.Call(http.MethodGet, "/api/v1/tasks/"+id+"/report", "", "Accept", "text/markdown")
	require.Equal(t, http.StatusOK, markdown.Status)
	require.Contains(t, string(markdown.Body), "Deployment", "the report names the workload")
	reverse := between(t, string(markdown.Body), "```yaml\n", "```")
	e.PutPlan("undo", reverse)
	require.Equal(t, plan.TaskSucceeded, e.WaitTask(e.Execute("undo"), plan.TaskSucceeded, plan.TaskFailed).State)
	e.WaitReadyPods("one", 2)

	require.Equal(t, http.StatusNoContent, e.Call(http.MethodDelete, "/api/v1/tasks/"+id, "").Status)
	require.Equal(t, http.StatusNotFound, e.Call(http.MethodGet, "/api/v1/tasks/"+id, "").Status,
		"a deleted task is not found")
}

// A task runs the plan and the services as stored when it was started; later changes do not affect it.
func TestTask_IgnoresLaterChangesOfPlanAndServices(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("slow", 2, slowToReady)
	e.Deployment("asked", 1, nil)
	e.Deployment("other", 1, nil)
	for name, n := range map[string]int{"slow": 2, "asked": 1, "other": 1} {
		e.WaitReadyPods(name, n)
	}
	e.PutService("first-asked", "", "Deployment/slow")
	e.PutService("changing", "", "Deployment/asked")
	e.PutPlan("catalogue", "deployPlanItems:\n- {serviceId: first-asked, priority: 2, deployment: RESTART}\n- "+
		"{serviceId: changing, priority: 1, deployment: STOP}\n")
	id := e.Execute("catalogue")
	e.WaitTaskUntil(id, "the first wave running", func(task plan.Task) bool {
		return task.Services[0].State == plan.ItemRunning
	})
	e.PutService("changing", "", "Deployment/other")
	e.PutPlan("catalogue", "deployPlanItems: [{serviceId: changing, deployment: STOP}]")

	task := e.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	require.Equal(t, "asked", task.Services[1].Workloads[0].Name)
	e.WaitReadyPods("asked", 0)
	e.WaitReadyPods("other", 1)
}
