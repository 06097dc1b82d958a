package cli_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/catalog"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
)

// everyNoun is an API with two objects of each kind, of which the first can be read.
func everyNoun(t *testing.T) *fakeAPI {
	t.Helper()
	api := newFakeAPI(t)
	always := func(route string, body any) {
		api.on(route, func(request) answer { return answerJSON(http.StatusOK, body) })
	}
	document, _, wrong := plan.Decode([]byte(shopPlan))
	require.Empty(t, wrong)
	service, wrong := catalog.Decode([]byte(orderService))
	require.Empty(t, wrong)
	state := client.PartyState{Name: "alice", Queue: "q", Reachable: party.Reachable, Reason: "a worker is running",
		Workers: []client.PartyWorker{}}
	routing := client.TrafficRouting{Namespace: "shop", Name: "mse", CreatedAt: noon, Spec: map[string]any{},
		Status: client.TrafficRoutingStatus{Phase: client.TrafficRoutingStatusPhaseProgressing, Holders: []string{}}}
	bob, other, second := state, routing, twoParties()
	bob.Name, other.Namespace, second.ID = "bob", "bank", "serving-02"

	always("GET /api/v1/services", client.ServiceList{Items: []client.ServiceSummary{
		{ID: "111", DisplayName: "order service", Workloads: service.Workloads, CreatedAt: noon},
		{ID: "0111", DisplayName: "cart", Workloads: service.Workloads, CreatedAt: noon}}})
	always("GET /api/v1/services/111", service)
	always("GET /api/v1/plans", client.PlanList{Items: []client.PlanSummary{{Name: "shop", Items: 3, CreatedAt: noon},
		{Name: "bank", CreatedAt: noon}}})
	always("GET /api/v1/plans/shop", document)
	always("GET /api/v1/tasks", client.TaskList{Items: []client.TaskSummary{
		{ID: "shop-1", Plan: "shop", State: plan.TaskRunning, CreatedAt: noon},
		{ID: "shop-0", Plan: "shop", State: plan.TaskFailed, CreatedAt: noon}}})
	always("GET /api/v1/tasks/shop-1", shopTask())
	always("GET /api/v1/rollouts", client.RolloutList{Items: []client.RolloutSummary{
		{Party: "default", Namespace: "shop", Name: "web", Phase: rollout.PhaseProgressing, CreatedAt: noon},
		{Party: "default", Namespace: "bank", Name: "db", Phase: rollout.PhaseHealthy, CreatedAt: noon}}})
	always("GET /api/v1/rollouts/shop/web", webRollout())
	always("GET /api/v1/servings", client.ServingList{Items: []serving.View{twoParties(), second}})
	always("GET /api/v1/servings/serving-01", twoParties())
	always("GET /api/v1/parties", client.PartyList{Items: []client.PartyState{state, bob}})
	always("GET /api/v1/parties/alice", state)
	always("GET /api/v1/trafficroutings", client.TrafficRoutingList{Items: []client.TrafficRouting{routing, other}})
	always("GET /api/v1/trafficroutings/shop/mse", routing)
	always("GET /api/v1/appimages", client.AppImageList{Items: []client.AppImage{appImage("one", "v1"),
		appImage("two", "v1")}})
	always("GET /api/v1/appimages/one", appImage("one", "v1"))
	return api
}

func TestEveryNounHasNamesPathsAndFilters(t *testing.T) {
	t.Parallel()
	api := everyNoun(t)
	for noun, c := range map[string]struct {
		first, second string
		// path is a path in the first object, with its value.
		path, value string
		// listed is a path in the list, with its value.
		listed, values string
	}{
		"service": {"111", "0111", "{.displayName}", "order service", "{.items[*].id}", "111 0111"},
		"plan":    {"shop", "bank", "{.deployPlanItems[0].serviceId}", "0111", "{.items[*].name}", "shop bank"},
		"task":    {"shop-1", "shop-0", "{.state}", "Running", "{.items[*].state}", "Running Failed"},
		"rollout": {"shop/web", "bank/db", "{.phase}", "Progressing", "{.items[*].name}", "web db"},
		"serving": {"serving-01", "serving-02", "{.initiator}", "alice", "{.items[*].id}",
			"serving-01 serving-02"},
		"party":          {"alice", "bob", "{.queue}", "q", "{.items[*].name}", "alice bob"},
		"trafficrouting": {"shop/mse", "bank/mse", "{.name}", "mse", "{.items[*].namespace}", "shop bank"},
		"appimage":       {"one", "two", "{.metadata.name}", "one", "{.items[*].name}", "one two"},
	} {
		for _, command := range []struct {
			reason string
			args   []string
			want   string
		}{
			{"list prints names that other commands accept", []string{"list", "-o", "name"},
				c.first + "\n" + c.second + "\n"},
			{"a list can be narrowed to names", []string{"list", c.second, "-o", "name"}, c.second + "\n"},
			{"get prints the name, even if the document does not contain it", []string{"get", c.first, "-o", "name"},
				c.first + "\n"},
			{"get prints a value by JSONPath", []string{"get", c.first, "-o", "jsonpath=" + c.path}, c.value + "\n"},
			{"list prints values by JSONPath", []string{"list", "-o", "jsonpath=" + c.listed}, c.values + "\n"},
		} {
			require.Equal(t, outcome{out: command.want}, slipway(t, api, append([]string{noun}, command.args...)...),
				"%s: %s", noun, command.reason)
		}
		missing := slipway(t, api, noun, "list", "nobody", c.first)
		require.Contains(t, missing.out, c.first, "%s: existing objects are listed", noun)
		require.NotContains(t, missing.out, c.second, "%s: and no others", noun)
		require.Regexp(t, "^error: .* not found: (default/)?nobody: list them with `slipway "+noun+" list`\n$",
			missing.err, noun)
		require.Equal(t, app.ExitFailure, missing.code, "%s: a missing name is an error", noun)
	}
}

func TestListWatch_PrintsOnlyChanges(t *testing.T) {
	t.Parallel()
	task := func(id string, state plan.TaskState) client.TaskSummary {
		return client.TaskSummary{ID: id, Plan: "shop", State: state, CreatedAt: before(time.Minute),
			StartedAt: beforeP(time.Minute)}
	}
	lists := [][]client.TaskSummary{
		{task("shop-1", plan.TaskRunning)},
		{task("shop-1", plan.TaskRunning)},
		nil, // the server is unavailable
		{task("shop-2", plan.TaskPending), task("shop-1", plan.TaskSucceeded)},
		{task("shop-2", plan.TaskPending)},
	}
	watch := func(args ...string) outcome {
		api, asked := newFakeAPI(t), 0
		api.on("GET /api/v1/tasks", func(request) answer {
			asked++
			if lists[asked-1] == nil {
				return problem(http.StatusServiceUnavailable, "Temporal is unreachable")
			}
			return answerJSON(http.StatusOK, client.TaskList{Items: lists[asked-1]})
		})
		s := newSession(t, "")
		var cancel context.CancelFunc
		s.ctx, cancel = context.WithCancel(t.Context())
		s.app.Wait = func(context.Context, time.Duration) {
			if asked == len(lists) {
				cancel()
			}
		}
		return s.run(append(append([]string{"task", "list", "--watch"}, args...), "--api", api.URL)...)
	}
	notes := "cannot read the list, retrying: Temporal is unreachable\ntask shop-1 is no longer listed\ninterrupted\n"
	require.Equal(t, outcome{code: app.ExitSignal, err: notes, out: `ID       PLAN   STATE     AGE     TOOK    REASON
shop-1   shop   Running   1m00s   1m00s   -
shop-2   shop   Pending     1m00s   1m00s   -
shop-1   shop   Succeeded   1m00s   1m00s   -
`}, watch(), "unchanged tasks are not repeated")
	json := watch("-o", "json")
	require.Equal(t, 3, strings.Count(json.out, "\n"), "one line for each change: %s", json.out)
	require.Equal(t, "Running\nPending\nSucceeded\n", watch("-o", "jsonpath={.state}").out)
	require.Equal(t, "shop-1\nshop-1\n", watch("shop-1", "-o", "name").out, "only the named task")
}

func TestDisplayNames_AreShownWithIDs(t *testing.T) {
	t.Parallel()
	api := everyNoun(t)
	require.Contains(t, slipway(t, api, "plan", "get", "shop").out, "  0111 (cart)   RESTART one by one   (item 1)\n")
	require.Contains(t, slipway(t, api, "task", "get", "shop-1").out, "  111 (order service)   RESTART one by one")
	require.NotContains(t, slipway(t, api, "task", "get", "shop-1", "-o", "json").out, "order service",
		"programs get the API's response")
	api.on("GET /api/v1/services", func(request) answer {
		return problem(http.StatusServiceUnavailable, "the cluster is unreachable")
	})
	require.Contains(t, slipway(t, api, "task", "get", "shop-1").out, "  111   RESTART one by one",
		"names are optional")
}

func TestErrors_NameCommandsInsteadOfRequests(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"stop it first (POST /api/v1/tasks/shop-1/stop)": "stop it first (slipway task stop shop-1)",
		"create it (PUT /api/v1/parties/alice), or a namespace": "create it (slipway party apply -f FILE), or a " +
			"namespace",
		"GET /api/v1/servings lists those that do": "slipway serving list lists those that do",
		"stop it (POST /api/v1/rollouts/shop/web/stop?party=alice), or wait": "stop it (slipway rollout stop " +
			"shop/web --party alice), or wait",
		"create it (PUT /api/v1/trafficroutings/shop/mse)": "create it (slipway trafficrouting apply -f FILE)",
		"read it: GET /api/v1/plans/shop; POST /api/v1/plans/shop/execute": "read it: slipway plan get shop; slipway " +
			"plan run shop",
		"DELETE /api/v1/services/111 or POST /api/v1/serving/create of Kuscia's": "slipway service delete 111 or POST " +
			"/api/v1/serving/create of Kuscia's",
	} {
		api := newFakeAPI(t)
		api.on("DELETE /api/v1/tasks/shop-1", func(request) answer {
			return problem(http.StatusConflict, "no: "+message, client.FieldProblem{Field: "x", Reason: message})
		})
		require.Equal(t, "error: no: "+want+"\n  x: "+want+"\n", slipway(t, api, "task", "delete", "shop-1").err,
			"requests are replaced by commands")
	}
}

func TestServiceDelete_IsRejected_WhenPlanUsesIt(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	const refusal = "service 111 is used by plan shop: remove it there first, or delete the plans"
	api.on("DELETE /api/v1/services/111", func(request) answer { return problem(http.StatusConflict, refusal) })
	api.on("DELETE /api/v1/services/222", func(request) answer { return answer{status: http.StatusNoContent} })
	require.Equal(t, outcome{code: app.ExitFailure, out: "service 222 deleted\n", err: "error: " + refusal + "\n"},
		slipway(t, api, "service", "delete", "111", "222"), "the plan is named, and the other service is deleted")
	require.Contains(t, slipway(t, nil, "service", "delete", "--help").out,
		"A service that a plan uses is\nnot deleted; the error names the plans.")
}

func TestServingApply(t *testing.T) {
	t.Parallel()
	file := write(t, "kd.yaml", strings.Replace(smallServing, "{name: one}",
		"{name: one, annotations: {kuscia.secretflow/affinity-mode: none}}", 1))
	for name, c := range map[string]struct {
		reason string
		answer answer
		args   []string
		want   outcome
	}{
		"New":     {"a missing serving is created", stored("one", 1, true, true), nil, outcome{out: "serving one created\n"}},
		"Changed": {"an existing one is updated", stored("one", 2, false, true), nil, outcome{out: "serving one updated\n"}},
		"Unchanged": {"nothing is written", stored("one", 2, false, false), nil,
			outcome{out: "serving one unchanged\n"}},
		"JSON": {"programs read the outcome", stored("one", 2, false, false), []string{"-o", "jsonpath={[0].outcome}"},
			outcome{out: "unchanged\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.on("PUT /api/v1/servings/one", func(request) answer { return c.answer })
			got := slipway(t, api, append([]string{"serving", "apply", "-f", file}, c.args...)...)
			got.err = strings.TrimSuffix(got.err, "To watch it: slipway serving watch one\n")
			require.Equal(t, c.want, got, c.reason)
			require.Equal(t, "affinityMode=none", api.requests()[0].query)
			require.Len(t, api.requests(), 1, "the object is sent in one request")
		})
	}
	t.Run("Request", func(t *testing.T) {
		t.Parallel()
		api := servingAPI(t)
		got := slipwayWith(t, api, "serving_id: one\ninitiator: alice\naffinity_mode: none\nparties:\n"+
			"- {domain_id: alice, app_image: image, service_name_prefix: x}\n", "serving", "apply", "-f", "-")
		require.Equal(t, "serving one created\n", got.out, got.err)
		spec := sentSpec[kuscia.KusciaDeploymentSpec](t, api, "/api/v1/servings/one?affinityMode=none")
		require.Equal(t, []string{"image", "x"}, []string{spec.Parties[0].AppImageRef,
			spec.Parties[0].ServiceNamePrefix}, "a request is converted to the spec")

		before := len(api.requests())
		for reason, text := range map[string]string{
			"party domain_id/role carol/ does not exist": "serving_id: serving-01\nparties: [{domain_id: carol}]\n",
			"container_name x of party domainID/role alice/ resources doesn't exist in app image sf-serving-image": "" +
				"serving_id: serving-01\nparties: [{domain_id: alice, resources: [{container_name: x}]}]\n",
		} {
			got = slipwayWith(t, api, text, "serving", "update", "-f", "-")
			require.Equal(t, outcome{code: app.ExitFailure, err: "error: serving serving-01: " + reason + "\n"}, got)
		}
		for _, r := range api.requests()[before:] {
			require.Equal(t, http.MethodGet, r.method, "nothing is written")
		}
	})
}

func TestList_RejectsLimit_WithNames(t *testing.T) {
	t.Parallel()
	api := everyNoun(t)
	for _, noun := range [][2]string{{"task", "shop-1"}, {"rollout", "shop/web"}} {
		got := slipway(t, api, noun[0], "list", noun[1], "--limit", "1")
		require.Equal(t, app.ExitUsage, got.code, "a limit with names would be ignored")
		require.Contains(t, got.err, "--limit cannot be used with names: use only one of them")
	}
}
