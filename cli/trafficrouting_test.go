package cli_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
)

const trafficFile = `apiVersion: rollouts.kruise.io/v1alpha1
kind: TrafficRouting
metadata: {name: mse, namespace: shop}
spec:
  objectRef: [{service: web, ingress: {name: web}}]
  strategy: {weight: 20}
`

func TestTrafficRoutingApply(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	put := func(r request) answer {
		return answerJSON(http.StatusCreated, client.PutTrafficRoutingResult{Namespace: "shop", Name: "mse",
			Changed:  true,
			Warnings: []string{"its status is ignored"}})
	}
	api.on("PUT /api/v1/trafficroutings/shop/mse", put)
	api.on("PUT /api/v1/trafficroutings/shop/other", put)
	file := write(t, "mse.yaml", trafficFile)
	warning := "warning: mse.yaml: its status is ignored\n"
	require.Equal(t, outcome{out: "traffic routing shop/mse created\n", err: warning},
		slipway(t, api, "trafficrouting", "apply", "-f", file).inFolder(file))
	require.Contains(t, api.requests()[0].body, "kind: TrafficRouting", "the document is sent unchanged")
	spec := "objectRef: []\n"
	require.Equal(t, outcome{out: "traffic routing shop/other created\n",
		err: "warning: standard input: its status is ignored\n"},
		slipwayWith(t, api, spec, "trafficrouting", "put", "-f", "-", "-n", "shop", "other"))

	for reason, args := range map[string][]string{
		"the spec has no name":                {"-f", write(t, "x.yaml", spec)},
		"has mse, but the command line has x": {"-f", file, "x"},
		"the command line has bank":           {"-f", file, "-n", "bank"},
	} {
		got := slipway(t, api, append([]string{"trafficrouting", "apply"}, args...)...)
		require.Equal(t, app.ExitUsage, got.code, reason)
		require.Contains(t, got.err, reason)
	}
	other := slipwayWith(t, api, "kind: Rollout\n", "trafficrouting", "apply", "-f", "-", "x")
	require.Contains(t, other.err, "standard input:1: kind must be TrafficRouting, not Rollout")
}

func TestTrafficRoutingReadAndDelete(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	one := client.TrafficRouting{Namespace: "shop", Name: "mse", CreatedAt: before(time.Hour),
		Spec: map[string]any{"strategy": map[string]any{"weight": 20}},
		Status: client.TrafficRoutingStatus{Phase: client.TrafficRoutingStatusPhaseProgressing,
			Holders: []string{"rollout/default/shop/web"}}}
	api.on("GET /api/v1/trafficroutings", func(request) answer {
		return answerJSON(http.StatusOK, client.TrafficRoutingList{Items: []client.TrafficRouting{one}})
	})
	api.on("GET /api/v1/trafficroutings/shop/mse", func(request) answer { return answerJSON(http.StatusOK, one) })
	api.on("DELETE /api/v1/trafficroutings/shop/mse",
		func(request) answer { return problem(http.StatusConflict, "rollout/default/shop/web holds it") })
	require.Equal(t, outcome{out: "NAME       PHASE         HELD BY                    AGE\nshop/mse   Progressing   " +
		"rollout/default/shop/web   1h00m\n"},
		slipway(t, api, "trafficrouting", "list"))
	require.Equal(t, outcome{out: "traffic routing shop/mse is Progressing\nheld by " +
		"rollout/default/shop/web\n\nstrategy:\n  weight: 20\n"},
		slipway(t, api, "trafficrouting", "get", "mse", "-n", "shop"))
	require.Contains(t, newSession(t, "").run("__complete", "trafficrouting", "get", "--api", api.URL, "").out,
		"shop/mse\tProgressing\n")
	refused := slipway(t, api, "trafficrouting", "delete", "shop/mse")
	require.Equal(t, outcome{code: app.ExitFailure, err: "error: rollout/default/shop/web holds it\n"}, refused)
}
