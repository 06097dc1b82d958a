package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/catalog"
)

const orderService = `displayName: order service
workloads:
- namespace: shop
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: order}
  replicas: 3
`

const cartService = `displayName: cart
workloads:
- namespace: shop
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
`

func object(kind, name, spec string) string {
	indented := "  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ")
	return fmt.Sprintf("apiVersion: slipway.io/v1alpha1\nkind: %s\nmetadata:\n  name: %s\nspec:\n%s\n", kind, name,
		indented)
}

func putService201(request) answer {
	return answerJSON(http.StatusCreated, client.PutServiceResult{ID: "111", Changed: true})
}

func TestServiceApply_SendsDocument_UnderItsName(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		file   string
		text   string
		args   []string
		want   []string
		names  []string
	}{
		"ByFileName": {
			reason: "A bare spec is named after its file.",
			file:   "111.yaml", text: orderService, names: []string{"111"}, want: []string{orderService},
		},
		"ByFlag": {
			reason: "--id takes precedence over the file's name.",
			file:   "order.yaml", text: orderService, args: []string{"--id", "0111"}, names: []string{"0111"},
			want: []string{orderService},
		},
		"Objects": {
			reason: "Several objects in one file are sent one by one, each as its spec.",
			file:   "services.yaml", text: "# the shop\n---\n" + object("ReleaseService", "111", orderService) +
				"---\n" +
				object("ReleaseService", "222", cartService),
			names: []string{"111", "222"}, want: []string{orderService, cartService},
		},
		"JSON": {
			reason: "JSON is accepted too.",
			file:   "111.json",
			text:   `{"workloads": [{"namespace": "shop", "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "order"}}]}`,
			names:  []string{"111"},
			want: []string{
				`{"workloads": [{"namespace": "shop", "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "order"}}]}`},
		},
		"JSONObject": {
			reason: "An object may be JSON from `kubectl get -o json`, including the fields that the API server adds.",
			file:   "x.json",
			text: `{"apiVersion": "slipway.io/v1alpha1", "kind": "ReleaseService", "metadata": {"name": "111", "uid": "u", "resourceVersion": "7"},
			  "spec": {"displayName": "order service", "workloads": [{"namespace": "shop", "replicas": 3, "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "order"}}]}, "status": {}}`,
			names: []string{"111"}, want: []string{orderService},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			for _, id := range c.names {
				api.on("PUT /api/v1/services/"+id, putService201)
			}
			got := slipway(t, api, append([]string{"service", "apply", "-f", write(t, c.file, c.text)}, c.args...)...)
			require.Equal(t, app.ExitOK, got.code, "%s\n%s", c.reason, got.err)
			require.Len(t, api.requests(), len(c.want), c.reason)
			lines := ""
			for n, want := range c.want {
				wanted, wrong := catalog.Decode([]byte(want))
				require.Empty(t, wrong)
				sent, wrong := catalog.Decode([]byte(api.requests()[n].body))
				require.Empty(t, wrong, "%s: the sent document is valid: %s", c.reason, api.requests()[n].body)
				require.Equal(t, wanted, sent, c.reason)
				lines += "service " + c.names[n] + " created\n"
			}
			require.Equal(t, lines, got.out, c.reason)
		})
	}
}

func TestServiceApplyOutcomes(t *testing.T) {
	t.Parallel()
	file := write(t, "111.yaml", orderService)
	cases := map[string]struct {
		reason string
		answer answer
		want   string
	}{
		"Created": {"201 is new.", answerJSON(http.StatusCreated, client.PutServiceResult{ID: "111", Changed: true}),
			"service 111 created\n"},
		"Replaced": {"200 with a change is a replacement.",
			answerJSON(http.StatusOK, client.PutServiceResult{ID: "111", Changed: true}), "service 111 replaced\n"},
		"Unchanged": {"200 without a change is reported as unchanged.",
			answerJSON(http.StatusOK, client.PutServiceResult{ID: "111"}),
			"service 111 unchanged\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			api.on("PUT /api/v1/services/111", func(request) answer { return c.answer })
			require.Equal(t, outcome{out: c.want}, slipway(t, api, "service", "apply", "-f", file), c.reason)
		})
	}
}

func TestApply_SendsNothing_WhenAnyDocumentIsInvalid(t *testing.T) {
	t.Parallel()
	badService := strings.Replace(cartService, "namespace: shop", "namespase: shop", 1)
	cases := map[string]struct {
		reason string
		args   []string
		file   string
		text   string
		code   int
		want   string
	}{
		"SecondDocument": {
			reason: "An error in the last document is found before the first one is sent; its line is that of the file.",
			file:   "s.yaml", text: object("ReleaseService", "111", orderService) + "---\n" +
				object("ReleaseService", "222", badService),
			code: app.ExitFailure,
			want: "s.yaml:19: workloads[0].namespase: unknown key \"namespase\": did you mean \"namespace\"?\n",
		},
		"OtherKind": {
			reason: "A plan is not a service.",
			file:   "s.yaml", text: object("DeployPlan", "shop", "deployPlanItems: []"), code: app.ExitFailure,
			want: "s.yaml:6: this document is a DeployPlan, not a ReleaseService: apply it with its own " +
				"command\nerror: 1 error; nothing was sent\n",
		},
		"SameName": {
			reason: "Two documents of one name would overwrite each other.",
			file:   "s.yaml", text: object("ReleaseService", "111", orderService) + "---\n" +
				object("ReleaseService", "111", cartService),
			code: app.ExitFailure,
			want: "s.yaml:17: this document has the name 111, which is already used by a document in s.yaml\nerror: " +
				"1 error; nothing was sent\n",
		},
		"NoName": {
			reason: "Several bare specs cannot all be named after the file.",
			file:   "s.yaml", text: orderService + "---\n" + cartService, code: app.ExitFailure,
			want: "s.yaml:1: this document has no name: set --id, or use an object with metadata.name\ns.yaml:7: " +
				"this document has no name: set --id, or use an object with metadata.name\nerror: 2 errors; nothing " +
				"was sent\n",
		},
		"IllegalName": {
			reason: "A name that the API would reject is rejected locally.",
			file:   "my service.yaml", text: orderService, code: app.ExitFailure,
			want: "my service.yaml:1: this document has an invalid name",
		},
		"WholeObject": {
			reason: "Fields that the API cannot set are rejected, not dropped.",
			file:   "s.yaml", text: "apiVersion: slipway.io/v1alpha1\nkind: ReleaseService\nmetadata:\n  name: a\n  " +
				"namespace: slipway\n  labels: {a: b}\nspek: {}\n", code: app.ExitFailure,
			want: `s.yaml:5: metadata.namespace: cannot be set through the API, which stores everything in the engine's namespace: remove it, or use kubectl
s.yaml:6: metadata.labels: cannot be set through the API: remove it, or use kubectl
s.yaml:7: spek: is unknown: the fields of an object are apiVersion, kind, metadata and spec
s.yaml:1: spec: is missing: the fields of an object are apiVersion, kind, metadata and spec
error: 4 errors; nothing was sent
`,
		},
		"OtherVersion": {
			reason: "Other API versions are rejected.",
			file:   "s.yaml", text: "apiVersion: slipway.io/v1\nkind: ReleaseService\nmetadata: {}\n",
			code: app.ExitFailure,
			want: "s.yaml:1: apiVersion: must be slipway.io/v1alpha1, not \"slipway.io/v1\"\nerror: 1 error; nothing " +
				"was sent\n",
		},
		"OtherObject": {
			reason: "For an unknown kind only the kind is reported.",
			file:   "s.yaml",
			text:   "apiVersion: slipway.io/v1alpha1\nkind: ReleaseRecord\nmetadata:\n  namespace: shop\n",
			code:   app.ExitFailure,
			want: "s.yaml:2: kind: must be ReleaseService, DeployPlan or Party, not \"ReleaseRecord\"\nerror: 1 " +
				"error; nothing was sent\n",
		},
		"FlagAndObject": {
			reason: "Two different names for one object are rejected.",
			file:   "s.yaml", text: object("ReleaseService", "111", orderService), args: []string{"--id", "222"},
			code: app.ExitUsage,
			want: "error: the service in s.yaml has the name 111, but --id is 222: use only one of them\n",
		},
		"FlagForMany": {
			reason: "One name cannot be used for two documents.",
			file:   "s.yaml", text: orderService + "---\n" + cartService, args: []string{"--id", "222"},
			code: app.ExitUsage,
			want: "error: --id names one service, but there are 2 documents: use objects with metadata.name\n",
		},
		"Empty": {
			reason: "A file without a document is rejected.",
			file:   "s.yaml", text: "# nothing\n---\n", code: app.ExitFailure,
			want: "s.yaml: the file is empty\nerror: 1 error; nothing was sent\n",
		},
		"Malformed": {
			reason: "Broken YAML is reported with its line.",
			file:   "111.yaml", text: "workloads:\n- [\n", code: app.ExitFailure, want: "111.yaml:2: is not valid YAML",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			path := write(t, c.file, c.text)
			got := slipway(t, api, append([]string{"service", "apply", "-f", path}, c.args...)...).inFolder(path)
			require.Equal(t, c.code, got.code, c.reason)
			require.Contains(t, got.err, c.want, c.reason)
			require.Empty(t, got.out, c.reason)
			require.Empty(t, api.requests(), c.reason)
		})
	}
}

func TestApply_Continues_AfterRejectedDocument(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("PUT /api/v1/services/111", func(request) answer {
		return problem(http.StatusBadRequest, "the service has 1 error",
			client.FieldProblem{Field: "workloads[0].party", Line: 8, Reason: "is unknown"})
	})
	api.on("PUT /api/v1/services/222", putService201)
	path := write(t, "s.yaml", object("ReleaseService", "111", orderService)+"---\n"+
		object("ReleaseService", "222", cartService))
	got := slipway(t, api, "service", "apply", "-f", path).inFolder(path)
	require.Equal(t, outcome{
		out:  "service 222 created\n",
		err:  "error: service 111: the service has 1 error\n  s.yaml:8: workloads[0].party: is unknown\n",
		code: app.ExitFailure,
	}, got, "the other documents are applied, the findings have file and line, and the exit code is 1")
}

func TestApplyAsJSON(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("PUT /api/v1/services/111", putService201)
	got := slipwayWith(t, api, orderService, "service", "apply", "--id", "111", "-f", "-", "-o", "json")
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.JSONEq(t, `[{"name": "111", "outcome": "created"}]`, got.out,
		"the outcome of each document is readable for programs")
}

func TestServiceList_ReadsAllPages(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	summary := func(id, name string, workloads ...string) client.ServiceSummary {
		s := client.ServiceSummary{ID: id, DisplayName: name, CreatedAt: before(3 * time.Hour),
			Workloads: []client.Workload{}}
		for _, w := range workloads {
			s.Workloads = append(s.Workloads, client.Workload{Namespace: "shop",
				WorkloadRef: client.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: w}})
		}
		return s
	}
	api.on("GET /api/v1/services", func(r request) answer {
		if strings.Contains(r.query, "cursor=second") {
			return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{summary("222", "购物车",
				"cart")}})
		}
		return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{summary("111",
			"order service", "order",
			"order-db")}, NextCursor: "second"})
	})
	require.Equal(t, outcome{out: `ID    NAME            WORKLOADS                                         AGE
111   order service   Deployment shop/order, Deployment shop/order-db   3h00m
222   购物车          Deployment shop/cart                              3h00m
`}, slipway(t, api, "service", "list"), "both pages are listed, and Chinese names are aligned")

	got := slipway(t, api, "service", "list", "-o", "yaml")
	require.Contains(t, got.out, "id: \"222\"\n", "an ID stays text in YAML")
	require.NotContains(t, got.out, "nextCursor", "all pages were read")
}

func TestServiceGet(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	service, wrong := catalog.Decode([]byte(orderService))
	require.Empty(t, wrong)
	service.Workloads[0].Labels = []string{"blue", "green"}
	api.on("GET /api/v1/services/111", func(request) answer { return answerJSON(http.StatusOK, service) })
	require.Equal(t, outcome{out: `service 111: order service
timeout of operations: 600s

PARTY     WORKLOAD                LABELS       REPLICAS
default   Deployment shop/order   blue,green   3
`}, slipway(t, api, "service", "get", "111"))

	printed := slipway(t, api, "service", "get", "111", "-o", "yaml").out
	again, wrong := catalog.Decode([]byte(printed))
	require.Empty(t, wrong)
	require.Equal(t, service, again, "apply accepts the output of get")
}

func TestDelete_ReportsEachOutcome(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("DELETE /api/v1/services/111", func(request) answer {
		return problem(http.StatusNotFound, "there is no service 111")
	})
	api.on("DELETE /api/v1/services/222", func(request) answer { return answer{status: http.StatusNoContent} })
	require.Equal(t, outcome{out: "service 222 deleted\n", err: "error: there is no service 111\n",
		code: app.ExitFailure},
		slipway(t, api, "service", "delete", "111", "222"), "the others are deleted, and the exit code is 1")
}
