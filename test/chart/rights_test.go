package chart

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// temporalValues returns the chart values for the stack's Temporal.
func temporalValues(stack harness.Stack, namespace string) map[string]any {
	return map[string]any{"address": stack.TemporalAddress, "namespace": namespace, "ui": stack.TemporalUI}
}

// engineValues returns the chart values for an engine on a shared cluster: its servers install the definitions, which
// all engines there share, and the API server cannot reach webhooks.
func engineValues(stack harness.Stack, temporal, servings string, namespaces ...string) map[string]any {
	return map[string]any{
		"temporal": temporalValues(stack, temporal), "watchNamespaces": namespaces,
		"crds":             map[string]any{"install": false, "byServer": true},
		"servingNamespace": map[string]any{"name": servings, "create": false},
		"rollouts":         map[string]any{"enabled": true, "webhook": map[string]any{"enabled": false}},
		"servings":         map[string]any{"enabled": true},
		"server":           map[string]any{"replicas": 1}, "worker": workerValues(stack, 1),
	}
}

// workerValues returns the chart values for workers. They do not report builds if the stack's Temporal does not keep
// them.
func workerValues(stack harness.Stack, replicas int) map[string]any {
	content := map[string]any{"replicas": replicas}
	if !stack.KeepsBuilds {
		content["extraArgs"] = []string{"--worker-versioning=false"}
	}
	return content
}

// TestLongReleases_Succeed_WithChartPermissions runs a plan, a canary with traffic and a serving of two parties, with
// engine and party as two releases of the chart: the processes have the arguments, environment and files of its
// Deployments, and no credential but the tokens of its ServiceAccounts.
func TestLongReleases_Succeed_WithChartPermissions(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	stack := *harness.NewOwnTemporal(t)
	temporal := stack.TemporalNamespace(t)
	home, servings, apps := stack.Namespace(t, "home"), stack.Namespace(t, "servings"), stack.Namespace(t, "apps")
	alice, workers := stack.Namespace(t, "alice"), stack.Namespace(t, "workers")
	centre := install(t, stack, home, engineValues(stack, temporal, servings, apps))
	processes := centre.run("server", "worker")
	party := install(t, stack, workers, map[string]any{"mode": "party", "party": map[string]any{"name": alice},
		"temporal": temporalValues(stack, temporal), "watchNamespaces": []string{alice},
		"servings": map[string]any{"enabled": true}, "worker": workerValues(stack, 1)})
	party.run("worker")
	e := centre.engine(temporal, apps)
	answer := e.Call(http.MethodPut, "/api/v1/parties/"+alice, "namespace: "+alice+"\n")
	require.Equal(t, http.StatusCreated, answer.Status, "%s", answer.Body)

	for _, process := range append(processes, centre.backends()...) {
		require.NotContains(t, process.Output(), "lacks rights")
	}
	t.Run("Names", func(t *testing.T) { centre.acceptsServiceHosts(t) })
	t.Run("Plan", func(t *testing.T) { runPlan(e.WithT(t)) })
	t.Run("Canary", func(t *testing.T) { runCanary(t, e.WithT(t)) })
	t.Run("Serving", func(t *testing.T) { runServing(t, e.WithT(t), servings, alice) })
}

// acceptsServiceHosts sends requests to a server with the host names of its Service, which it must accept, and another
// one, which it must refuse.
func (i *installation) acceptsServiceHosts(t *testing.T) {
	service := i.release + "." + i.namespace
	for host, want := range map[string]int{i.release: http.StatusOK, service + ".svc:8080": http.StatusOK,
		service + ".svc.cluster.local": http.StatusOK,
		"example.test":                 http.StatusForbidden} {
		request, err := http.NewRequest(http.MethodGet, "http://"+i.backends()[0].address+"/api/v1/plans", nil)
		require.NoError(t, err)
		request.Host = host
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		_ = response.Body.Close()
		require.Equal(t, want, response.StatusCode, host)
	}
}

func runPlan(e *harness.Engine) {
	e.Deployment("web", 2, nil)
	e.StatefulSet("db", 2, nil)
	e.WaitReadyPods("web", 2)
	e.WaitReadyPods("db", 2)
	e.PutService("1", "", "Deployment/web")
	e.PutService("2", "", "StatefulSet/db")
	e.PutPlan("restart", "deployPlanItems:\n- {serviceId: 1, deployment: RESTART, containerExecMethod: SEQUENTIAL}\n"+
		"- {serviceId: 2, priority: 1, deployment: RESTART}\n")
	e.WaitTask(e.Execute("restart"), plan.TaskSucceeded)
}

func runCanary(t *testing.T, e *harness.Engine) {
	e.Subject(harness.Deployment, "front", nil)
	e.Route(harness.Nginx, "front")
	e.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: "front",
		Strategy: strategy.Strategy{Style: strategy.StylePartition,
			Routings: e.RoutingOf(harness.Nginx, "front"),
			Steps: []strategy.Step{harness.Step("25%", 20),
				harness.TimedStep(harness.Step("50%", 50), time.Second)}}})
	at := e.WaitForApproval("front", 1)
	require.EqualValues(t, 20, at.Traffic.CanaryWeight)
	e.Approve("front", at)
	e.WaitPhase("front", rollout.PhaseHealthy)
}

func runServing(t *testing.T, e *harness.Engine, namespace, party string) {
	image := harness.RandomName("image")
	createServing(e, "score", image, e.Apps, party)
	e.WaitServingIn(namespace, "score", "Available", harness.ServingAvailable)
	e.MustKuscia("/api/v1/serving/delete", `{"serving_id":"score"}`)
	require.Eventually(t, func() bool {
		return e.Serving(namespace, "score") == nil
	}, harness.Patience, harness.Tick, "the serving was not deleted")
	e.MustKuscia("/api/v1/appimage/delete", fmt.Sprintf(`{"name":%q}`, image))
}

// createServing creates a serving of these parties and the AppImage that it runs.
func createServing(e *harness.Engine, id, image string, parties ...string) {
	e.MustKuscia("/api/v1/appimage/create", fmt.Sprintf(
		`{"name":%q,"image":{"name":"x","tag":"v1"},"config_templates":{"app.conf":"{\"id\":\"{{.SERVING_ID}}\"}"},
		"deploy_templates":[{"name":"app","replicas":1,"containers":[{"name":"app","config_volume_mounts":[{"mount_path":"/etc/app.conf","sub_path":"app.conf"}],
		"ports":[{"name":"service","protocol":"HTTP","scope":"Cluster"}]}]}]}`, image))
	var members []string
	for _, party := range parties {
		members = append(members, fmt.Sprintf(`{"domain_id":%q,"app_image":%q,"replicas":2}`, party, image))
	}
	e.MustKuscia("/api/v1/serving/create", fmt.Sprintf(`{"serving_id":%q,"initiator":%q,"parties":[%s]}`, id,
		parties[0], strings.Join(members, ",")))
}
