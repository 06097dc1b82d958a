package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
)

const orderService = `displayName: order service
workloads:
- namespace: shop
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: order}
  labels: [label1]
deadlineSeconds: 60
`

func TestServices_CRUD(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	const path = "/api/v1/services/0111"
	created := e.call("PUT", path, orderService, yamlBody).is(http.StatusCreated, "it is new")
	require.Equal(t, schema.PutServiceResult{ID: "0111", Changed: true}, decode[schema.PutServiceResult](created))
	same := e.call("PUT", path, orderService, "Content-Type: text/x-yaml").is(http.StatusOK, "it exists already")
	require.False(t, decode[schema.PutServiceResult](same).Changed, "nothing was written")

	got := decode[catalog.Service](e.call("GET", path, "").is(http.StatusOK, "it exists"))
	require.Equal(t, "order service", got.DisplayName)
	asYAML := e.call("GET", path, "", "Accept: application/yaml").is(http.StatusOK, "YAML is a form of it")
	require.Equal(t, "application/yaml", asYAML.header.Get("Content-Type"))
	back := e.call("PUT", path, asYAML.body, yamlBody).is(http.StatusOK, "what is read can be sent back")
	require.False(t, decode[schema.PutServiceResult](back).Changed, "it is the same service")
	asJSON := e.call("GET", path, "", "Accept: application/json").body
	require.False(t, decode[schema.PutServiceResult](e.call("PUT", path, asJSON, jsonBody)).Changed,
		"it is the same service")

	wrong := e.call("PUT", path, "workloads: []\ncolour: red\n", yamlBody).is(http.StatusBadRequest,
		"two things are wrong")
	require.Len(t, wrong.problem().Errors, 2, "all errors at once: %s", wrong.body)
	require.Contains(t, wrong.reasons(), "(line 2): ", "each with its line")

	for i := range 5 {
		e.putService(fmt.Sprintf("s%d", i))
	}
	first := decode[schema.ServiceList](e.call("GET", "/api/v1/services?limit=4", ""))
	rest := decode[schema.ServiceList](e.call("GET", "/api/v1/services?limit=4&cursor="+first.NextCursor, ""))
	var ids []string
	for _, item := range append(first.Items, rest.Items...) {
		ids = append(ids, item.ID)
	}
	require.Equal(t, []string{"0111", "s0", "s1", "s2", "s3", "s4"}, ids)
	require.Empty(t, rest.NextCursor, "that was the last page")
	e.call("GET", "/api/v1/services?cursor=nonsense", "").is(http.StatusBadRequest, "a made-up cursor")

	e.call("DELETE", path, "").is(http.StatusNoContent, "it exists")
	e.call("DELETE", path, "").is(http.StatusNotFound, "it was deleted")
	e.call("GET", path, "").is(http.StatusNotFound, "it was deleted")
}

func TestPlans_CRUD(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	const path = "/api/v1/plans/Shop"
	const document = `comment: release
deployPlanItems:
 - serviceId: 0111   # spelled so
   priority: 3
   deployment: HTTP_UPLOAD_DEPLOY
   httpSrcUri: http://example.com/app.zip
   compileRepoPath: http://example.com/app.git
 - serviceId: 222
   deployment: STOP
...
`
	created := decode[schema.PutPlanResult](e.call("PUT", path, document, yamlBody).is(http.StatusCreated, "it is new"))
	require.True(t, created.Changed)
	warnings := fmt.Sprint(created.Warnings)
	for _, expected := range []string{"service 0111 is not in the catalogue", "service 222 is not in the catalogue",
		"compileRepoPath"} {
		require.Contains(t, warnings, expected,
			"a warning for everything that execute would refuse, and for unused fields")
	}
	require.False(t, decode[schema.PutPlanResult](
		e.call("PUT", path, document, yamlBody).is(http.StatusOK, "it exists already")).Changed)
	e.putService("333")
	sound := e.call("PUT", "/api/v1/plans/sound", "deployPlanItems:\n- {serviceId: 333, deployment: RESTART}\n", yamlBody)
	require.Contains(t, sound.is(http.StatusCreated, "it is new").body, `"warnings":[]`, "a list is never null")
	e.call("DELETE", "/api/v1/plans/sound", "")
	got := decode[plan.Document](e.call("GET", path, ""))
	require.Equal(t, plan.ServiceID("0111"), got.Items[0].ServiceID, "the spelling is kept")
	asYAML := e.call("GET", path, "", "Accept: text/yaml").body
	require.False(t, decode[schema.PutPlanResult](e.call("PUT", path, asYAML, yamlBody)).Changed,
		"what is read can be sent back: %s", asYAML)

	wrong := e.call("PUT", path, strings.ReplaceAll(document, "STOP", "STOPP")+"", yamlBody).is(http.StatusBadRequest,
		"an unknown deployment")
	require.Contains(t, wrong.reasons(), "2 deployPlanItems[1].deployment (line 9)", "item, field and line")
	require.Contains(t, wrong.problem().Detail, "STOPP", "the detail contains the first error")
	e.call("PUT", path, document, jsonBody).is(http.StatusBadRequest, "YAML is not JSON")

	list := decode[schema.PlanList](e.call("GET", "/api/v1/plans", ""))
	require.Len(t, list.Items, 1)
	require.Equal(t, "Shop", list.Items[0].Name)
	require.Equal(t, 2, list.Items[0].Items)
	require.Equal(t, "release", list.Items[0].Comment)
	e.call("DELETE", path, "").is(http.StatusNoContent, "nothing runs")
	e.call("GET", path, "").is(http.StatusNotFound, "it was deleted")
	e.call("DELETE", path, "").is(http.StatusNotFound, "it was deleted")
}

func TestValidatePlan(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	validate := func(document string) schema.ValidateResult {
		return decode[schema.ValidateResult](e.call("POST", "/api/v1/plans/validate", document,
			yamlBody).is(http.StatusOK, "validate always answers"))
	}
	e.putService("111")
	e.putService("222")
	good := validate("deployPlanItems:\n- {serviceId: 222, deployment: STOP}\n- {serviceId: 111, priority: 3, " +
		"deployment: RESTART, containerExecMethod: SEQUENTIAL}\n")
	require.True(t, good.Valid)
	require.Equal(t, []schema.Wave{
		{Priority: 3, Items: []schema.WaveItem{{Item: 2, ServiceID: "111", Deployment: plan.Restart,
			ContainerExecMethod: plan.Sequential}}},
		{Priority: 0, Items: []schema.WaveItem{{Item: 1, ServiceID: "222", Deployment: plan.Stop,
			ContainerExecMethod: plan.Parallel}}},
	}, good.Waves, "higher priorities come first")
	require.Empty(t, good.Errors)

	unknown := validate("deployPlanItems:\n- {serviceId: 111, deployment: START}\n- {serviceId: 999, deployment: " +
		"START}\n")
	require.False(t, unknown.Valid)
	require.Len(t, unknown.Waves, 1, "the waves are returned nevertheless")
	require.Contains(t, fmt.Sprint(unknown.Errors), "service 999 is not in the catalogue")

	broken := validate("deployPlanItems:\n- {serviceId: 111, deployment: STAR, colour: red}\n- {deployment: START}\n")
	require.False(t, broken.Valid)
	require.Len(t, broken.Errors, 3, "every error at once: %v", broken.Errors)
	require.Empty(t, broken.Waves)

	partly := validate("deployPlanItems:\n- {serviceId: 998, deployment: STAR}\n- {serviceId: 999, deployment: " +
		"START}\n- {serviceId: 111, deployment: START, deployLabel: none}\n- {serviceId: 222, deployment: " +
		"COMPILE_DEPLOY, compileRepoPath: http://example.com/app.git, compileRepoBranch: main}\n")
	require.Len(t, partly.Errors, 4, "items without errors of their own are also checked against the catalogue: %v",
		partly.Errors)
	require.Equal(t, []int{1, 2, 3, 4}, []int{partly.Errors[0].Item, partly.Errors[1].Item, partly.Errors[2].Item,
		partly.Errors[3].Item}, "each keeps its number")
	require.Contains(t, partly.Errors[1].Reason, "service 999 is not in the catalogue")
	require.NotContains(t, fmt.Sprint(partly.Errors), "998 is not",
		"an item with an error of its own is not checked against the catalogue")
	require.Contains(t, partly.Errors[3].Reason, "service 222 has no `build` in the catalogue")
	require.Empty(t, partly.Waves, "the waves are unknown")

	var many strings.Builder
	many.WriteString("deployPlanItems:\n")
	for i := range 1000 {
		fmt.Fprintf(&many, "- {serviceId: 111, priority: %d, deployment: RESTART}\n", i)
	}
	require.True(t, validate(many.String()).Valid, "a thousand items")
	require.Empty(t, decode[schema.PlanList](e.call("GET", "/api/v1/plans", "")).Items, "nothing was stored")
}
