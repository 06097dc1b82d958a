package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/harness"
)

func TestInvalidRequests_AreRefused(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("one", 1, nil)
	e.WaitReadyPods("one", 1)
	e.PutService("known", "", "Deployment/one")
	e.PutService("missing", "", "Deployment/never-created")
	build := func(pod string) string {
		return "build: {image: 'registry.test/web:{{commit}}', jobTemplate: {spec: {template: {spec: {" + pod +
			"containers: [{name: build, image: go}]}}}}}\n"
	}
	e.PutService("built", build(""), "Deployment/one")
	e.PutService("mighty", build("hostNetwork: true, "), "Deployment/one")
	e.PutService("odd", build("initContainers: [{name: build, image: git}], "), "Deployment/one")
	e.PutService("web", "package: {container: app, mountPath: /app}\n", "Deployment/one")

	t.Run("EveryErrorAtOnce", func(t *testing.T) {
		a := e.Call(http.MethodPut, "/api/v1/plans/bad",
			"coment: x\ndeployPlanItems:\n- serviceId: [1]\n  deployment: START\n- deployment: LAUNCH\n  priority: high\n")
		require.Equal(t, http.StatusBadRequest, a.Status, "%s", a.Body)
		lines := map[string]int{}
		for _, f := range a.Problem().Errors {
			lines[f.Field] = f.Line
		}
		require.Equal(t, map[string]int{"coment": 1, "deployPlanItems[0].serviceId": 3,
			"deployPlanItems[1].serviceId":  5,
			"deployPlanItems[1].deployment": 5, "deployPlanItems[1].priority": 6}, lines,
			"each error has its field and line: %s", a.Body)
	})
	cases := map[string]struct{ reason, document, says string }{
		"UnknownService": {"an unknown service is named", "deployPlanItems: [{serviceId: 999, deployment: START}]",
			"999"},
		"UnknownObject": {"an object that is not in the cluster is reported before anything is written",
			"deployPlanItems: [{serviceId: missing, deployment: START}]", "never-created"},
		"NoBuild": {"a service without a build section is not built",
			"deployPlanItems: [{serviceId: web, deployment: COMPILE_DEPLOY, compileRepoPath: " +
				"'https://git.test/app.git', compileRepoBranch: main}]", "has no `build`"},
		"Forbidden": {"a repository at a forbidden address is not contacted",
			"deployPlanItems: [{serviceId: built, deployment: COMPILE_DEPLOY, compileRepoPath: " +
				"'http://169.254.169.254/app.git', compileRepoBranch: main}]", "SLIPWAY_SOURCE_ALLOW"},
		"Privileged": {"pods that the party forbids are reported before anything begins",
			"deployPlanItems: [{serviceId: mighty, deployment: COMPILE_DEPLOY, compileRepoPath: " +
				"'https://git.test/app.git', compileRepoBranch: main}]", "hostNetwork is true (rule privileged)"},
		"Unbuildable": {"a dry run finds a Job that the cluster rejects",
			"deployPlanItems: [{serviceId: odd, deployment: COMPILE_DEPLOY, compileRepoPath: " +
				"'https://git.test/app.git', compileRepoBranch: main}]",
			"the cluster does not accept the Job of build.jobTemplate"},
		"UnmatchedLabel": {"a label that selects nothing is refused",
			"deployPlanItems: [{serviceId: known, deployment: START, deployLabel: blue}]", "blue"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plan := "refused-" + strings.ToLower(name)
			e.PutPlan(plan, tc.document)
			a := e.Call(http.MethodPost, "/api/v1/plans/"+plan+"/execute", "")
			require.Equal(t, http.StatusUnprocessableEntity, a.Status, "%s: %s", tc.reason, a.Body)
			require.Contains(t, string(a.Body), tc.says, tc.reason)
			require.Equal(t, name == "Forbidden", strings.HasSuffix(a.Problem().Errors[0].Field, ".compileRepoPath"),
				"the error refers to the repository there: %s", a.Body)
		})
	}
	t.Run("TwiceInOneWave", func(t *testing.T) {
		a := e.Call(http.MethodPut, "/api/v1/plans/twice",
			"deployPlanItems: [{serviceId: known, deployment: STOP}, {serviceId: known, deployment: START}]")
		require.Equal(t, http.StatusBadRequest, a.Status)
		require.Contains(t, string(a.Body), "wave", "a service can occur only once in a wave: %s", a.Body)
	})
	t.Run("NotFound", func(t *testing.T) {
		require.Equal(t, http.StatusNotFound, e.Call(http.MethodGet, "/api/v1/tasks/none", "").Status)
		require.Equal(t, http.StatusNotFound, e.Call(http.MethodPost, "/api/v1/plans/none/execute", "").Status)
	})
}

func TestPlan_HasOneLiveTask_WhenExecutedConcurrently(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	e.Deployment("one", 1, slowToReady)
	e.WaitReadyPods("one", 1)
	e.PutService("raced", "", "Deployment/one")
	e.PutPlan("race", "deployPlanItems: [{serviceId: raced, deployment: RESTART}]")
	answers := make([]harness.Answer, 8)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i], _ = e.TryCall(http.MethodPost, "/api/v1/plans/race/execute", "") })
	}
	wg.Wait()
	accepted := 0
	for _, a := range answers {
		switch a.Status {
		case http.StatusAccepted:
			accepted++
		case http.StatusConflict:
			require.NotEmpty(t, a.Problem().Task, "the refusal names the live task: %s", a.Body)
		default:
			t.Errorf("unexpected answer %d: %s", a.Status, a.Body)
		}
	}
	require.Equal(t, 1, accepted, "a plan has one live task")
}

func TestPlanSize_IsLimitedToThousandItems(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	var b strings.Builder
	b.WriteString("deployPlanItems:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "- {serviceId: thousand-%d, priority: %d, deployment: RESTART}\n", i, i%10)
	}
	a := e.Call(http.MethodPost, "/api/v1/plans/validate", b.String())
	require.Equal(t, http.StatusOK, a.Status)
	require.Equal(t, 1000, strings.Count(string(a.Body), `"reason"`),
		"each of the thousand services is unknown, and each is named: %.300s", a.Body)
	e.PutPlan("large", b.String())
	require.Equal(t, http.StatusBadRequest, e.Call(http.MethodPut, "/api/v1/plans/larger",
		b.String()+"- {serviceId: one-more, deployment: STOP}\n").Status)
}
