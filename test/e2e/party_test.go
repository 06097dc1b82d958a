package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/player"
	"slipway.io/slipway/test/sources"
)

// hosted is a party with its own worker, which has only the permissions of deploy/rbac/party.yaml in one namespace. The
// centre has only those of deploy/rbac/server.yaml, by-server.yaml and centre.yaml.
type hosted struct {
	*harness.Engine
	t      *testing.T
	worker *harness.Process
	// alice is the account of the party's worker, centre is the account of the centre.
	alice, centre harness.Account
}

func newHosted(t *testing.T) *hosted {
	t.Helper()
	h := &hosted{t: t}
	h.Engine = harness.Start(t, harness.Options{Kubeconfig: func(e *harness.Engine) string {
		h.centre = e.EngineAccount(t, e.Home, e.Apps)
		return h.centre.Kubeconfig
	}})
	h.alice = h.Account(t, "party.yaml", h.Apps)
	a := h.Call(http.MethodPut, "/api/v1/parties/alice", "namespace: "+h.Apps+"\n")
	require.Equal(t, http.StatusCreated, a.Status, "%s", a.Body)
	return h
}

// startWorker starts the party's worker and waits until the party is reachable.
func (h *hosted) startWorker() {
	h.t.Helper()
	h.worker = h.PartyWorker("alice", h.alice.Kubeconfig, "--image", "registry.test/slipway:v1", "--source-allow",
		"127.0.0.0/8")
	h.waitReachable(party.Reachable)
}

// waitReachable waits for the party's reachability and returns the reason.
func (h *hosted) waitReachable(want party.Reachability) (reason string) {
	h.t.Helper()
	var state struct {
		Reachable party.Reachability
		Reason    string
	}
	require.Eventually(h.t, func() bool {
		a := h.Call(http.MethodGet, "/api/v1/parties/alice", "")
		return a.Status == http.StatusOK && json.Unmarshal(a.Body, &state) == nil && state.Reachable == want
	}, harness.Patience, harness.Tick, "party alice does not become %s: %+v", want, &state)
	return state.Reason
}

// service creates a service of one workload of the party, and a plan that restarts it.
func (h *hosted) service(kind, name string) {
	h.t.Helper()
	a := h.Call(http.MethodPut, "/api/v1/services/"+name,
		fmt.Sprintf(
			"workloads:\n- {party: alice, namespace: %s, workloadRef: {apiVersion: apps/v1, kind: %s, name: %s}}\n",
			h.Apps, kind, name))
	require.Equal(h.t, http.StatusCreated, a.Status, "%s", a.Body)
	h.PutPlan(name, "deployPlanItems:\n- {serviceId: "+name+", deployment: RESTART}\n")
}

// startTimedRollout starts a rollout of the party whose steps wait only for a second each.
func (h *hosted) startTimedRollout(c cell, name string, change func(r *harness.Rollout)) {
	h.t.Helper()
	h.Subject(c.kind, name, nil)
	h.Route(c.provider, name)
	r := harness.Rollout{Kind: c.kind, Name: name, ExtraFields: map[string]any{"party": "alice"},
		Strategy: strategy.Strategy{Style: c.style, Routings: h.RoutingOf(c.provider, name)}}
	for _, step := range c.steps() {
		r.Strategy.Steps = append(r.Strategy.Steps, harness.TimedStep(step, time.Second))
	}
	if change != nil {
		change(&r)
	}
	h.StartRollout(r)
}

func (h *hosted) waitHealthy(name string) {
	h.t.Helper()
	var last rollout.Status
	require.Eventually(h.t, func() bool {
		a := h.Call(http.MethodGet, "/api/v1/rollouts/"+h.Apps+"/"+name+"?party=alice", "")
		return a.Status == http.StatusOK && json.Unmarshal(a.Body, &last) == nil && last.Phase.Final()
	}, harness.Patience, harness.Tick, "rollout %s does not end: %+v", name, &last)
	require.Equal(h.t, rollout.PhaseHealthy, last.Phase, "%s: %s", name, last.Reason)
}

// A party's worker with only the permissions of deploy/rbac/party.yaml can execute every kind of release in its
// namespace and read nothing else. The centre needs no more than deploy/rbac/centre.yaml.
func TestLongPartyWorker_ExecutesEveryRelease_WithItsRoleOnly(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	h := newHosted(t)
	h.startWorker()
	h.requireNoOtherAccess()
	h.testRestart()
	h.testUpload()
	h.testCompile()
	h.testRollouts()
}

// testUpload makes the party's worker fetch a package. A URL with a query is refused, because the query must not be
// stored in Temporal's histories.
func (h *hosted) testUpload() {
	web := sources.NewFiles(h.t)
	web.Put("/shop.zip", zipOf(h.t, "index.html", "hello"))
	a := h.Call(http.MethodPut, "/api/v1/services/web",
		fmt.Sprintf("workloads:\n- {party: alice, namespace: %s, workloadRef: {apiVersion: apps/v1, "+
			"kind: Deployment, name: web}}\npackage: {container: app, mountPath: /app}\n", h.Apps))
	require.Equal(h.t, http.StatusOK, a.Status, "%s", a.Body)
	h.PutPlan("upload", packagePlan("web", web.URL+"/shop.zip", ""))
	task := h.WaitTask(h.Execute("upload"), plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(h.t, plan.TaskSucceeded, task.State, task.Reason)
	require.Equal(h.t, 1, web.Downloads("/shop.zip"))
	require.NotEmpty(h.t, task.Services[0].Workloads[0].ToPackage)

	h.PutPlan("signed", packagePlan("web", web.URL+"/shop.zip?signature=s3cr3t", ""))
	a = h.Call(http.MethodPost, "/api/v1/plans/signed/execute", "")
	require.Equal(h.t, http.StatusUnprocessableEntity, a.Status, "%s", a.Body)
	require.Contains(h.t, string(a.Body), "key `query`")
	require.NotContains(h.t, string(a.Body), "s3cr3t")
}

// testCompile makes the party's worker build, once it has the permission.
func (h *hosted) testCompile() {
	git := sources.NewGit(h.t, "", "")
	repository := git.Repository(h.t, "order")
	commit := repository.Push("main", map[string]string{"app.txt": "one", "build.sh": imageBuildScript})
	player.Start(h.t, h.Stack, player.Options{Namespace: h.Apps, Images: map[string]string{shellImage: "/bin/bash"}})
	a := h.Call(http.MethodPut, "/api/v1/services/built",
		fmt.Sprintf("workloads:\n- {party: alice, namespace: %s, workloadRef: {apiVersion: apps/v1, "+
			"kind: Deployment, name: web}}\n", h.Apps)+
			buildSpec(`image: "registry.test/web:{{commit}}"`, "", anonymousCloneScript))
	require.Equal(h.t, http.StatusCreated, a.Status, "%s", a.Body)
	h.PutPlan("compile", compilePlan("built", repository, "main"))
	a = h.Call(http.MethodPost, "/api/v1/plans/compile/execute", "")
	require.Equal(h.t, http.StatusUnprocessableEntity, a.Status, "%s", a.Body)
	require.Contains(h.t, string(a.Body), "this party's worker may not create jobs, delete jobs, get jobs")
	h.Grant(h.t, "party-builds.yaml", h.Apps)
	task := h.WaitTask(h.Execute("compile"), plan.TaskSucceeded, plan.TaskFailed)
	require.Equal(h.t, plan.TaskSucceeded, task.State, task.Reason)
	require.Equal(h.t, commit, task.Services[0].Build.Commit)
	require.Equal(h.t, "alice", task.Services[0].Build.Party)
	require.Equal(h.t, task.Services[0].Build.Image, imageOf(h.t, h.Engine, "web"))
}

func (h *hosted) requireNoOtherAccess() {
	elsewhere := h.Namespace(h.t, "elsewhere")
	for _, resource := range []string{"pods", "services", "configmaps", "secrets", "apps/deployments",
		"networking.k8s.io/ingresses"} {
		for _, namespace := range []string{elsewhere, h.Home, ""} {
			for _, verb := range []string{"get", "list", "watch", "patch", "delete"} {
				require.False(h.t, h.alice.May(h.t, verb, resource, namespace),
					"alice's worker may not %s %s in namespace %q", verb, resource, namespace)
			}
		}
	}
	require.True(h.t, h.alice.May(h.t, "list", "pods", h.Apps), "the worker may list pods in its own namespace")
	require.False(h.t, h.alice.May(h.t, "get", "secrets", h.Apps),
		"the worker may not read secrets, even in its own namespace")
	for _, resource := range []string{"pods", "secrets", "apps/deployments"} {
		require.False(h.t, h.centre.May(h.t, "list", resource, h.Apps), "the centre may not list %s of a party",
			resource)
	}
}

func (h *hosted) testRestart() {
	h.Deployment("web", 2, nil)
	h.StatefulSet("db", 2, nil)
	for name, kind := range map[string]string{"web": "Deployment", "db": "StatefulSet"} {
		h.WaitReadyPods(name, 2)
		before := h.PodUIDs(name)
		h.service(kind, name)
		task := h.WaitTask(h.Execute(name), plan.TaskSucceeded, plan.TaskFailed)
		require.Equal(h.t, plan.TaskSucceeded, task.State, task.Reason)
		for uid := range h.PodUIDs(name) {
			require.NotContains(h.t, before, uid, "every pod is replaced")
		}
	}
}

func (h *hosted) testRollouts() {
	h.startTimedRollout(deploymentCell(strategy.StylePartition, harness.Nginx), "in-place", nil)
	h.startTimedRollout(deploymentCell(strategy.StyleCanary, harness.Gateway), "beside", nil)
	h.startTimedRollout(cell{harness.StatefulSet, strategy.StylePartition, harness.Nginx}, "ordered", nil)
	h.Autoscaler(harness.Deployment, "twice")
	h.startTimedRollout(deploymentCell(strategy.StyleBlueGreen, harness.Nginx), "twice", nil)
	h.startTimedRollout(deploymentCell(strategy.StyleCanary, harness.Gateway), "shared", func(r *harness.Rollout) {
		a := h.Call(http.MethodPut, "/api/v1/trafficroutings/"+h.Apps+"/gray",
			fmt.Sprintf(`{"objectRef":[{"service":%q,"gateway":{"httpRouteName":%q},"gracePeriodSeconds":1}],`+
				`"strategy":{"matches":[{"headers":[{"type":"Exact","name":"x-tag","value":"gray"}]}],"requestHeaderModifier":{"set":[{"name":"x-gray","value":"yes"}]}}}`, r.Name, r.Name))
		require.Equal(h.t, http.StatusCreated, a.Status, "%s", a.Body)
		r.Strategy.Routings, r.Strategy.TrafficRoutingRef = nil, "gray"
		for i := range r.Strategy.Steps {
			r.Strategy.Steps[i].Traffic = nil
		}
	})
	for _, name := range []string{"in-place", "beside", "ordered", "twice", "shared"} {
		h.waitHealthy(name)
	}
}

// A party whose worker stopped is shown as unreachable, and a start that needs it reports when the worker was last
// seen.
func TestLongParty_IsUnreachable_WhenWorkerStopped(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	h := newHosted(t)
	require.Contains(t, h.waitReachable(party.Unreachable), "was ever seen")
	h.Subject(harness.Deployment, "web", nil)
	h.service("Deployment", "web")
	r := harness.Rollout{Kind: harness.Deployment, Name: "web", ExtraFields: map[string]any{"party": "alice"},
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: []strategy.Step{harness.Step("100%", -1)}}}
	never := h.requireUnavailable(func() harness.Answer { return h.TryStartRollout(r) })
	require.Contains(t, never, "no worker of queue slipway.party.alice was ever seen")

	h.startWorker()
	require.NoError(t, h.worker.Stop())
	require.Contains(t, h.waitReachable(party.Unreachable), "was stopped at", "a stopped worker is reported at once")
	require.Contains(t, h.requireUnavailable(func() harness.Answer {
		return h.Call(http.MethodPost, "/api/v1/plans/web/execute", "")
	}), "was stopped at")

	h.startWorker()
	h.worker.Kill()
	require.Contains(t, h.waitReachable(party.Unreachable), "has been silent for more than 20s",
		"a killed worker is reported after 20 seconds")
	h.startWorker()
	h.StartRollout(r)
	h.waitHealthy("web")
}

// requireUnavailable requires that a start is answered by a 503 that names the party, and returns its detail.
func (h *hosted) requireUnavailable(start func() harness.Answer) string {
	h.t.Helper()
	var a harness.Answer
	require.Eventually(h.t, func() bool {
		a = start()
		return a.Status == http.StatusServiceUnavailable && json.Valid(a.Body) && len(a.Problem().Errors) > 0
	}, harness.Patience, harness.Tick, "a start is not answered by 503 that names the party: %d %s", &a.Status, &a.Body)
	require.Contains(h.t, a.Problem().Detail, "no worker of party alice takes work", "the detail names the party")
	return a.Problem().Detail
}
