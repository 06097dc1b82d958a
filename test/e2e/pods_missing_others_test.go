package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// obstacleNamed returns one of obstacles.
func obstacleNamed(name string) obstacle {
	return obstacles[slices.IndexFunc(obstacles, func(o obstacle) bool { return o.name == name })]
}

// requireTaskBlocked waits until a task and the list of tasks say why its pods don't come, and then until it fails with
// that reason.
func requireTaskBlocked(t *testing.T, e *harness.Engine, task string, o obstacle) {
	t.Helper()
	begun := time.Now()
	shown := func() string { return string(e.Call(http.MethodGet, "/api/v1/tasks/"+task, "").Body) }
	quoted, _ := json.Marshal(o.says)
	says := strings.Trim(string(quoted), `"`)
	require.Eventually(t, func() bool { return strings.Contains(shown(), says) }, harness.Patience, harness.Tick,
		"the task never says %s", o.says)
	require.Eventually(t, func() bool {
		listed := string(e.Call(http.MethodGet, "/api/v1/tasks?plan="+e.Task(task).Plan, "").Body)
		return strings.Contains(listed, says)
	}, harness.Patience, harness.Tick, "lists never say %s", o.says)
	took := time.Since(begun)
	t.Logf("reported after %s", took.Round(100*time.Millisecond))
	require.Less(t, took, reportedWithin)
	e.WaitTask(task, plan.TaskFailed)
	took = time.Since(begun)
	t.Logf("failed after %s: %s", took.Round(time.Second), e.Task(task).Services[0].Reason)
	require.Contains(t, shown(), says)
	require.Less(t, took, time.Duration(o.most)*time.Second+reportedWithin)
	require.GreaterOrEqual(t, took, time.Duration(o.patience)*time.Second-time.Second)
}

// testBlockedPlan restarts a workload whose pods an obstacle keeps from coming back.
func testBlockedPlan(t *testing.T, e *harness.Engine, kind harness.Kind, o obstacle) {
	t.Run("Plan/"+o.name+"/"+kind.Title, func(t *testing.T) {
		t.Parallel()
		e := e.ForTest(t)
		e.Subject(kind, "order", nil)
		o.create(t, e)
		id := "blocked-" + e.Apps
		e.PutService(id, fmt.Sprintf("deadlineSeconds: %d\n", o.deadline), kind.Kind+"/order")
		e.PutPlan(id, "deployPlanItems: [{serviceId: "+id+", deployment: RESTART}]")
		requireTaskBlocked(t, e, e.Execute(id), o)
	})
}

// A plan whose pods can't be created says why, and ends as the table in docs/rollouts.md says.
func TestPlanSaysWhyPodsDontCome(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for i, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet} {
		testBlockedPlan(t, e, kind, obstacles[1:][i])
	}
}

// Every obstacle that is not in the pod template, with every kind.
func TestLongPlanSaysWhyPodsDontCome_ForEveryKind(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, o := range obstacles[:4] {
		for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet} {
			testBlockedPlan(t, e, kind, o)
		}
	}
}

// A build whose Job gets no pod says why.
func TestBuildSaysWhyItsPodDoesntCome(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{Args: []string{"--source-allow", "127.0.0.0/8"}})
	b := newBuilder(t, e)
	e.Deployment("order", 1, nil)
	e.WaitReadyPods("order", 1)
	o := obstacleNamed("ValidatingAdmissionPolicy")
	o.create(t, e)
	spec := buildSpec(`image: "registry.test/order:{{commit}}"`, loginEnv, cloneScript)
	e.PutService("111", strings.Replace(spec, "deadlineSeconds: 120", fmt.Sprint("deadlineSeconds: ", o.deadline), 1),
		"Deployment/order")
	e.PutPlan("compile", compilePlan("111", b.repository, "main"))
	b.repository.Push("main", map[string]string{"app.txt": "one", "build.sh": imageBuildScript})
	requireTaskBlocked(t, e, e.Execute("compile"), o)
}

// A serving whose pods can't be created says why, and goes back as the table in docs/rollouts.md says.
func TestServingSaysWhyPodsDontCome(t *testing.T) {
	t.Parallel()
	for _, o := range obstacles[:4] {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			u := newTwoParties(t, harness.Shared(t))
			id := harness.RandomName("blocked")
			u.create(id, serving.Policy{})
			u.WaitServing(id, "Available", harness.ServingAvailable)
			u.policy(id, serving.Policy{ProgressDeadlineSeconds: int64(o.deadline)})
			bob := *u.Engine
			bob.Apps = u.bob
			o.create(t, &bob)
			begun := time.Now()
			u.update(id, u.better, u.better)
			u.WaitServing(id, "the reason", func(kd *kuscia.KusciaDeployment) bool {
				return strings.Contains(kd.Status.PartyDeploymentStatuses[u.bob][id].PodMessage, o.says)
			})
			took := time.Since(begun)
			t.Logf("reported after %s", took.Round(100*time.Millisecond))
			require.Less(t, took, reportedWithin)
			kd := u.WaitServing(id, "the previous version", harness.ServingDone)
			require.Contains(t, kd.Status.Message, o.says)
			took = time.Since(begun)
			require.GreaterOrEqual(t, took, time.Duration(o.patience)*time.Second-time.Second)
			require.Less(t, took, time.Duration(o.most)*time.Second+reportedWithin)
		})
	}
}

// A worker that may not list events releases all the same, and says that it can't see why pods are missing.
func TestRolloutSaysThatItCannotSeeWhy_WithoutEvents(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	roles := h.Kube.RbacV1().Roles(h.Apps)
	role, err := roles.Get(context.Background(), "slipway-party", metav1.GetOptions{})
	require.NoError(t, err)
	i := slices.IndexFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "events") })
	_, err = roles.Patch(context.Background(), role.Name, types.JSONPatchType, []byte(fmt.Sprintf(
		`[{"op":"replace","path":"/rules/%d/verbs","value":["create","patch"]}]`, i)), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !h.alice.May(t, "list", "events", h.Apps) }, harness.Patience,
		harness.Tick)
	h.startWorker()
	c := cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}
	h.startTimedRollout(c, "sighted", func(r *harness.Rollout) { r.Strategy.Routings = nil })
	h.waitHealthy("sighted")
	h.startTimedRollout(c, "blind", func(r *harness.Rollout) {
		r.Policy, r.Strategy.Routings = map[string]any{"stepDeadlineSeconds": 60}, nil
		createPodPolicy(t, h.Engine)
	})
	var last rollout.Status
	require.Eventually(t, func() bool {
		a := h.Call(http.MethodGet, "/api/v1/rollouts/"+h.Apps+"/blind?party=alice", "")
		return a.Status == http.StatusOK && json.Unmarshal(a.Body, &last) == nil && last.WaitingFor != nil &&
			strings.Contains(last.WaitingFor.Message, "may not read them: grant it list on events")
	}, harness.Patience, harness.Tick, "%+v", &last)
	require.Equal(t, rollout.PhaseProgressing, last.Phase, "what is not known ends nothing early")
}
