package cli_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/rollout"
)

const canaryFile = `namespace: shop
workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
images:
  app: registry.example/web:1
  sidecar: registry.example/proxy:7
strategy:
  canary:
    steps:
    - {replicas: 20%, pause: {}}
    - {replicas: 100%}
`

const rolloutFile = `# an object
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: web, namespace: shop}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  strategy:
    canary:
      steps:
      - {replicas: 20%}
`

// startAPI accepts a start and returns the rollout.
func startAPI(t *testing.T) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	api.on("POST /api/v1/rollouts", func(request) answer {
		return answerJSON(http.StatusAccepted, rollout.Started{Status: webRollout(),
			Warnings: []string{"step 1 has no traffic"}})
	})
	return api
}

func sent(t *testing.T, api *fakeAPI) map[string]any {
	t.Helper()
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(api.requests()[0].body), &body))
	return body
}

func TestRolloutStart(t *testing.T) {
	t.Parallel()
	strategy := write(t, "strategy.yaml", "canary: {steps: [{replicas: 100%}]}\n")
	ref := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
	cases := map[string]struct {
		reason string
		args   []string
		want   map[string]any
	}{
		"File": {"A file is the request.", []string{"-f", write(t, "canary.yaml", canaryFile)},
			map[string]any{"namespace": "shop",
				"images": map[string]any{"app": "registry.example/web:1", "sidecar": "registry.example/proxy:7"}}},
		"NewImage": {"A flag replaces one image and keeps the other.",
			[]string{"-f", write(t, "canary.yaml", canaryFile), "--image", "app=registry.example/web:2"},
			map[string]any{"images": map[string]any{"app": "registry.example/web:2",
				"sidecar": "registry.example/proxy:7"}}},
		"Flags": {"Flags can replace the file.", []string{"-n", "shop", "--party", "alice", "--name", "web-2",
			"--workload", "deploy/web",
			"--image", "app=x:2",
			"--strategy-file", strategy, "--supersede", "--rollout-id", "17"},
			map[string]any{"namespace": "shop", "party": "alice", "name": "web-2", "workloadRef": ref,
				"images": map[string]any{"app": "x:2"}, "supersede": true,
				"rolloutId": "17",
				"strategy": map[string]any{
					"canary": map[string]any{"steps": []any{map[string]any{"replicas": "100%"}}}}}},
		"Namespace": {"Without a file the namespace is kubectl's default.",
			[]string{"--workload", "sts/db", "--image", "db=x:2", "--strategy-file", strategy},
			map[string]any{"namespace": "default",
				"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := startAPI(t)
			got := slipway(t, api, append([]string{"rollout", "start", "--actor", "li", "--reason", "release 2",
				"--key", "k1"}, c.args...)...)
			require.Equal(t, app.ExitOK, got.code, got.err)
			require.Equal(t, "rollout shop/web started\n", got.out)
			require.Equal(t, "warning: step 1 has no traffic\nTo watch it: slipway rollout watch shop/web\n", got.err)
			body := sent(t, api)
			for field, want := range c.want {
				require.Equal(t, want, body[field], "%s (%s)", c.reason, field)
			}
			require.Equal(t, "li", body["actor"])
			require.Equal(t, "release 2", body["reason"])
			require.Equal(t, "k1", api.requests()[0].header.Get("Idempotency-Key"))
			require.Equal(t, "cli", api.requests()[0].header.Get("Slipway-Via"))
		})
	}
}

func TestRolloutStartFromADocument(t *testing.T) {
	t.Parallel()
	api := startAPI(t)
	got := slipwayWith(t, api, rolloutFile, "rollout", "start", "-f", "-", "--image", "app=x:2")
	require.Equal(t, app.ExitOK, got.code, got.err)
	body := sent(t, api)
	document, _ := body["rollout"].(map[string]any)
	require.Equal(t, "Rollout", document["kind"], "the object is in its own field")
	require.Equal(t, map[string]any{"app": "x:2"}, body["images"])
	require.NotContains(t, body, "namespace", "the namespace comes from the document")
}

func TestRolloutStart_RejectsWrongUsage_BeforeSending(t *testing.T) {
	t.Parallel()
	file := write(t, "canary.yaml", canaryFile)
	cases := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Nothing": {"A workload is required.", nil, "nothing to release"},
		"Namespace": {"Two different namespaces are rejected.", []string{"-f", file, "-n", "bank"},
			"namespace is set both in the file and by --namespace"},
		"Workload": {"So are two different workloads.", []string{"-f", file, "--workload", "deployment/other"},
			"workloadRef is set both in the file and by --workload"},
		"Kind": {"An unsupported kind is rejected with the supported ones.", []string{"--workload", "replicaset/web"},
			"use deployment, statefulset, daemonset, cloneset"},
		"Image": {"An image without a container is rejected.", []string{"-f", file, "--image", "x:2"},
			"is not CONTAINER=IMAGE"},
		"WithoutWatch": {"A flag without an effect is rejected.", []string{"-f", file, "--timeout", "3s"},
			"--timeout requires --watch"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, newFakeAPI(t), append([]string{"rollout", "start"}, c.args...)...)
			require.Equal(t, app.ExitUsage, got.code, c.reason)
			require.Contains(t, got.err, c.want, c.reason)
		})
	}
	twice := slipwayWith(t, newFakeAPI(t), rolloutFile+"---\n"+rolloutFile, "rollout", "start", "-f", "-")
	require.Equal(t, app.ExitFailure, twice.code)
	require.Contains(t, twice.err, "standard input contains 2 documents, but must contain exactly one")
}

func TestRolloutStart_ReportsErrors_WithFileAndLine(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	refusal := problem(http.StatusUnprocessableEntity, "the rollout cannot be started",
		client.FieldProblem{Field: "rollout.spec.strategy.canary.steps[0].replicas", Line: 1,
			Reason: "the last step must be 100%"})
	api.on("POST /api/v1/rollouts", func(request) answer { return refusal })
	file := write(t, "web.yaml", rolloutFile)
	got := slipway(t, api, "rollout", "start", "-f", file, "--image", "app=x:2")
	require.Equal(t, app.ExitFailure, got.code)
	require.Equal(t, "error: the rollout cannot be started\n  web.yaml:10: spec.strategy.canary.steps[0].replicas: "+
		"the last step "+
		"must be 100%\n", got.inFolder(file).err,
		"errors have the user's file and line, and field paths without the command's wrapper")

	api.on("POST /api/v1/rollouts", func(request) answer {
		taken := problem(http.StatusConflict, "Deployment shop/web is being released")
		body := taken.body.(client.Problem)
		body.Holder = "rollout/default/shop/web"
		taken.body = body
		return taken
	})
	require.Equal(t, "error: Deployment shop/web is being released\nBlocked by: rollout/default/shop/web\n",
		slipway(t, api, "rollout", "start", "-f", file, "--image", "app=x:2").err)
}

func TestRolloutStart_ReportsTypoOnce(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	typo := client.FieldProblem{Field: "strategy.canary.steps[0].trafic", Line: 1, Reason: "is unknown"}
	refusal := problem(http.StatusBadRequest, "the rollout is invalid: line 1, strategy.canary.steps[0].trafic: is "+
		"unknown", typo)
	api.on("POST /api/v1/rollouts", func(request) answer { return refusal })
	strategy := write(t, "strategy.yaml", "# two steps\ncanary:\n  steps:\n  - replicas: 20%\n    trafic: 20%\n  - "+
		"replicas: 100%\n")
	args := []string{"rollout", "start", "--workload", "deployment/web", "--image", "app=x:2", "--strategy-file",
		strategy}
	require.Equal(t, "error: the rollout is invalid\n  strategy.yaml:5: canary.steps[0].trafic: is unknown\n",
		slipway(t, api, args...).inFolder(strategy).err,
		"the file is the one with the typo, and the error is printed once")

	api.on("POST /api/v1/rollouts/validate", func(request) answer {
		return answerJSON(http.StatusOK, client.RolloutValidateResult{Warnings: []string{},
			Errors: []client.FieldProblem{typo}})
	})
	args[1] = "validate"
	require.Equal(t, "error: strategy.yaml:5: canary.steps[0].trafic: is unknown\n",
		slipway(t, api, args...).inFolder(strategy).err)

	for reason, text := range map[string]string{
		"invalid YAML has its line": "namespace: shop\nname: web\nimages:\n  app: x\nstrategy:\n  canary:\n   a: [\n",
		"a duplicate key has its line": "namespace: shop\nname: web\nimages:\n  app: x\nstrategy:\n  canary: " +
			"{}\nname: again\n",
	} {
		file := write(t, "bad.yaml", text)
		got := slipway(t, api, "rollout", "start", "-f", file).inFolder(file)
		require.Equal(t, app.ExitFailure, got.code)
		require.Regexp(t, `^error: bad.yaml:[78]: `, got.err, reason)
	}
}

func TestRolloutStart_ExplainsRetry_WhenOutcomeUnknown(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/rollouts", func(request) answer {
		return problem(http.StatusServiceUnavailable, "no worker responds")
	})
	got := slipway(t, api, "rollout", "start", "-f", write(t, "canary.yaml", canaryFile), "--key", "k1")
	require.Equal(t, app.ExitFailure, got.code)
	require.Contains(t, got.err, "It is safe to repeat the command with --key k1.\n")
}

func TestRolloutValidate(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	found := webRollout()
	api.on("POST /api/v1/rollouts/validate", func(request) answer {
		return answerJSON(http.StatusOK, client.RolloutValidateResult{Valid: true, Rollout: &found,
			Warnings: []string{"it is held"},
			Errors:   []client.FieldProblem{}})
	})
	file := write(t, "canary.yaml", canaryFile)
	got := slipway(t, api, "rollout", "validate", "-f", file)
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Equal(t, "warning: it is held\n", got.err)
	require.Equal(t, `rollout shop/web: Deployment web, partition
  step 1   pods 20%    traffic 20%
  step 2   pods 50%    traffic 50%   then approval
  step 3   pods 100%                 then pause 2h00m
rollout shop/web can be started
`, got.out, "the steps without progress")

	api.on("POST /api/v1/rollouts/validate", func(request) answer {
		return answerJSON(http.StatusOK, client.RolloutValidateResult{Warnings: []string{},
			Errors: []client.FieldProblem{{Field: "strategy.canary.steps[1].replicas", Reason: "too few"}}})
	})
	wrong := slipway(t, api, "rollout", "validate", "-f", file).inFolder(file)
	require.Equal(t, outcome{code: app.ExitFailure, out: "the rollout cannot be started: 1 error\n",
		err: "error: canary.yaml:10: strategy.canary.steps[1].replicas: too few\n"}, wrong)
}
