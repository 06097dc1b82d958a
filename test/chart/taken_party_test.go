package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
	"slipway.io/slipway/test/sources"
)

// partyInstallation is a party whose workers are a release of the chart, with an engine that has all permissions.
type partyInstallation struct {
	*installation
	engine *harness.Engine
	party  string
}

// newPartyInstallation creates such a party with workloads of every kind that it may release.
func newPartyInstallation(t *testing.T) *partyInstallation {
	t.Helper()
	e := harness.Start(t, harness.Options{})
	party := e.Apps
	content := map[string]any{"mode": "party", "party": map[string]any{"name": party},
		"temporal": temporalValues(e.Stack, e.TemporalNamespace), "watchNamespaces": []string{party},
		"servings": map[string]any{"enabled": true}, "builds": map[string]any{"enabled": true},
		"guard":    map[string]any{"reader": true},
		"packages": map[string]any{"sourceAllow": []string{"127.0.0.0/8"}},
		"rbac":     map[string]any{"credentials": []string{"credentials"}, "istio": true, "openKruise": true},
		"worker":   workerValues(e.Stack, 1)}
	g := &partyInstallation{installation: install(t, e.Stack, e.Namespace(t, "workers"), content), engine: e,
		party: party}
	answer := e.Call(http.MethodPut, "/api/v1/parties/"+party, "namespace: "+party+"\n")
	require.Equal(t, http.StatusCreated, answer.Status, "%s", answer.Body)
	// the namespace can be guarded, but no guard has this name
	harness.LabelNamespace(t, e.Kube, party, guard.LabelGuard, "nobodys")
	kruise.Install(t, e.REST)
	for _, kind := range harness.Kinds {
		object := e.SubjectObject(kind, strings.ToLower(kind.Title))
		_, err := e.Dynamic(t).Resource(kind.GVR).Namespace(party).Create(context.Background(), object,
			metav1.CreateOptions{})
		require.NoError(t, err)
	}
	e.WaitReadyPods("deployment", harness.SubjectSize)
	e.Autoscaler(harness.Deployment, "deployment")
	for _, provider := range harness.Providers {
		name := strings.ToLower(string(provider))
		e.Subject(harness.Deployment, name, nil)
		e.Route(provider, name)
	}
	g.catalogue(t)
	return g
}

// catalogue stores services and plans for each way of deployment.
func (g *partyInstallation) catalogue(t *testing.T) {
	e := g.engine
	_, err := e.Kube.CoreV1().Secrets(g.party).Create(context.Background(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "credentials"},
			StringData: map[string]string{"token": "t", "hosts": "http://127.0.0.1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	repository := sources.NewGit(t, "", "").Repository(t, "shop")
	repository.Push("main", map[string]string{"app.txt": "one"})
	service := func(id, kind, extra string) {
		ref := fmt.Sprintf("{apiVersion: apps/v1, kind: %s, name: %s}", kind, strings.ToLower(kind))
		a := e.Call(http.MethodPut, "/api/v1/services/"+id,
			fmt.Sprintf("workloads:\n- {party: %s, namespace: %s, workloadRef: %s}\n%s", g.party, g.party, ref, extra))
		require.Equal(t, http.StatusCreated, a.Status, "%s", a.Body)
	}
	service("web", "Deployment", "")
	service("db", "StatefulSet", "")
	service("agent", "DaemonSet", "")
	service("packed", "Deployment", "package: {container: app, mountPath: /app, credentials: credentials}\n")
	service("built", "Deployment", "build:\n  image: \"registry.test/web:{{commit}}\"\n"+
		"  jobTemplate: {spec: {template: {spec: {containers: [{name: build, image: x}]}}}}\n")
	for id, item := range map[string]string{"web": "deployment: RESTART", "db": "deployment: RESTART",
		"agent":  "deployment: RESTART",
		"packed": "deployment: HTTP_UPLOAD_DEPLOY, httpSrcUri: 'http://127.0.0.1/app.zip'",
		"built":  "deployment: COMPILE_DEPLOY, compileRepoPath: '" + repository.URL + "', compileRepoBranch: main"} {
		e.PutPlan(id, "deployPlanItems: [{serviceId: "+id+", "+item+"}]")
	}
}

// startWorker starts a new worker of the party and stops it gracefully at the end of the test: Temporal would wait for
// a killed one to take tasks.
func (g *partyInstallation) startWorker(t *testing.T) *pod {
	node := g.node
	node.t = t
	worker := node.start(g.deployment("worker"))
	t.Cleanup(func() { _ = worker.Stop() })
	g.waitReady(worker)
	return worker
}

// releaseChecks starts a worker of the party and returns its output and the answers of preflight checks.
func (g *partyInstallation) releaseChecks(t *testing.T) []func() string {
	worker, e := g.startWorker(t), g.engine.WithT(t)
	texts := []func() string{worker.Output}
	for _, plan := range []string{"web", "db", "agent", "packed", "built"} {
		texts = append(texts, func() string {
			return string(e.Call(http.MethodPost, "/api/v1/plans/"+plan+"/diff", "").Body)
		})
	}
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		texts = append(texts, func() string {
			return g.validate(e, harness.Deployment, "deployment", style, harness.NoProvider)
		})
	}
	for _, provider := range harness.Providers {
		texts = append(texts, func() string {
			return g.validate(e, harness.Deployment, strings.ToLower(string(provider)), strategy.StyleCanary, provider)
		})
	}
	for _, kind := range harness.Kinds[1:] {
		texts = append(texts, func() string {
			return g.validate(e, kind, strings.ToLower(kind.Title), strategy.StylePartition, harness.NoProvider)
		})
	}
	return texts
}

// releaseReports executes a plan and returns the worker's output: what a release can do without is reported when it is
// missed.
func (g *partyInstallation) releaseReports(t *testing.T) []func() string {
	worker, e := g.startWorker(t), g.engine.WithT(t)
	e.WaitTask(e.Execute("web"), plan.TaskSucceeded)
	return []func() string{worker.Output}
}

// servingReports creates a serving of the party and returns the worker's output and the serving's state.
func (g *partyInstallation) servingReports(t *testing.T) []func() string {
	worker := g.startWorker(t)
	e, id, image := g.engine.WithT(t), harness.RandomName("serving"), harness.RandomName("image")
	createServing(e, id, image, g.party)
	t.Cleanup(func() {
		e.MustKuscia("/api/v1/serving/delete", fmt.Sprintf(`{"serving_id":%q}`, id))
		e.MustKuscia("/api/v1/appimage/delete", fmt.Sprintf(`{"name":%q}`, image))
	})
	return []func() string{worker.Output, func() string {
		return string(e.Call(http.MethodGet, "/api/v1/servings/"+id, "").Body)
	}}
}

func (g *partyInstallation) validate(e *harness.Engine, kind harness.Kind, name string, style strategy.Style,
	provider harness.Provider) string {
	step, routings := harness.Step("25%", -1), []strategy.Routing(nil)
	if provider != harness.NoProvider {
		step, routings = harness.Step("25%", 20), e.RoutingOf(provider, name)
		for i := range routings[0].Custom {
			rule := routings[0].Custom[i]
			rule.Kind = "DestinationRule"
			routings[0].Custom = append(routings[0].Custom, rule)
		}
	}
	r := harness.Rollout{Kind: kind, Name: name, ExtraFields: map[string]any{"party": g.party},
		Strategy: strategy.Strategy{Style: style, Routings: routings, Steps: []strategy.Step{step}}}
	body, _ := json.Marshal(r.Body(g.party))
	return string(e.Call(http.MethodPost, "/api/v1/rollouts/validate", string(body)).Body) + "\n"
}

// reportSources returns the function whose reports must name a missing permission.
func (g *partyInstallation) reportSources(r grantedRule) func(*testing.T) []func() string {
	switch {
	case r.roleSuffix() == "-party-servings":
		return g.servingReports
	case r.permissions[0].Resource == "events":
		return g.releaseReports
	}
	return g.releaseChecks
}

// TestLongMissingPartyPermission_IsReported checks that the check before a release, or the state of a serving, names a
// permission that a party lacks.
func TestLongMissingPartyPermission_IsReported(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	g := newPartyInstallation(t)
	for _, r := range sample(g.grantedRules(), 5) {
		t.Run(r.String(), func(t *testing.T) { r.requireReported(t, false, g.reportSources(r)) })
	}
}

func TestSoakEveryMissingPartyPermission_IsReported(t *testing.T) {
	harness.Soak(t)
	g := newPartyInstallation(t)
	t.Run("none is reported while all are granted", func(t *testing.T) {
		for _, text := range g.releaseChecks(t) {
			require.NotContains(t, text(), "may not")
		}
	})
	table := append(g.grantedRules(), watchRules(g.grantedRules())...)
	for _, r := range table {
		if r.verb == "watch" && (r.roleSuffix() == "-party-servings" || r.permissions[0].Resource == "replicasets") {
			// objects that cannot be watched are listed instead (deploy/rbac/party.yaml), or checked when an operation
			// begins
			continue
		}
		t.Run(r.String(), func(t *testing.T) { r.requireReported(t, false, g.reportSources(r)) })
	}
	harness.Covered(t, len(table), "rights of a party")
}
