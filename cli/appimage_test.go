package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

func TestAppImageList(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/appimages", func(r request) answer {
		if !strings.Contains(r.query, "cursor=more") {
			return answerJSON(http.StatusOK, client.AppImageList{Items: []client.AppImage{appImage("one", "v1")},
				NextCursor: "more"})
		}
		return answerJSON(http.StatusOK, client.AppImageList{Items: []client.AppImage{appImage("two", "v2")}})
	})
	require.Equal(t, `NAME   IMAGE                 TEMPLATES
one    registry/serving:v1   serving for server; other
two    registry/serving:v2   serving for server; other
`, slipway(t, api, "appimage", "list").out, "all pages are listed")
	var listed struct{ Items []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(slipway(t, api, "appimage", "list", "-o", "json").out), &listed))
	require.Equal(t, "two", listed.Items[1]["name"])
	require.Contains(t, newSession(t, "").run("__complete", "appimage", "get", "--api", api.URL, "").out,
		"one\tregistry/serving:v1\n", "shell completion lists the names")

	api.on("GET /api/v1/appimages", func(request) answer {
		return answerJSON(http.StatusOK, client.AppImageList{Items: []client.AppImage{}})
	})
	require.Contains(t, slipway(t, api, "appimage", "list").err, "There are no AppImages")
}

func TestAppImageGetAndDelete(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	const noSuch = "AppImage none does not exist: GET /api/v1/appimages lists those that do, and " +
		"PUT /api/v1/appimages/none creates it"
	api.on("GET /api/v1/appimages/none", func(request) answer { return problem(http.StatusNotFound, noSuch) })
	api.on("DELETE /api/v1/appimages/none", func(request) answer { return problem(http.StatusNotFound, noSuch) })
	api.on("GET /api/v1/appimages/one", func(request) answer { return answerJSON(http.StatusOK, appImage("one", "v1")) })
	require.Equal(t, `AppImage one is registry/serving:v1

TEMPLATE             REPLICAS       CONTAINER   PORTS
serving for server   set by party   c           service (HTTP, Cluster)
other                set by party   serving     -
`, slipway(t, api, "appimage", "get", "one").out)
	want := outcome{code: app.ExitFailure, err: "error: AppImage none does not exist: slipway appimage list lists those " +
		"that do, and slipway appimage apply -f FILE creates it\n"}
	require.Equal(t, want, slipway(t, api, "appimage", "get", "none"))
	require.Equal(t, want, slipway(t, api, "appimage", "delete", "none"))

	for _, form := range []string{"json", "yaml"} {
		text := slipway(t, api, "appimage", "get", "one", "-o", form).out
		api.on("PUT /api/v1/appimages/one", func(request) answer { return stored("one", 3, false, false) })
		got := slipwayWith(t, api, text, "appimage", "apply", "-f", "-")
		require.Equal(t, outcome{out: "AppImage one unchanged\n"}, got, "apply accepts the output of get")
		require.Equal(t, appImage("one", "v1").Spec, sentSpec[kuscia.AppImageSpec](t, api, "/api/v1/appimages/one"))
	}

	api.on("DELETE /api/v1/appimages/one", func(request) answer { return answer{status: http.StatusNoContent} })
	require.Equal(t, outcome{out: "AppImage one deleted\n"}, slipway(t, api, "appimage", "delete", "one"))
}

func TestAppImageApply(t *testing.T) {
	t.Parallel()
	const image = "apiVersion: kuscia.secretflow/v1alpha1\nkind: AppImage\nmetadata: {name: image}\nspec: {image: " +
		"{name: x, tag: v2}, deployTemplates: [{name: t, spec: {containers: [{name: c}]}}]}\n"
	api := servingAPI(t)
	require.Equal(t, "AppImage image created\n", slipwayWith(t, api, image, "appimage", "apply", "-f", "-").out)
	api.on("PUT /api/v1/appimages/image", func(request) answer { return stored("image", 4, false, true) })
	require.Equal(t, "AppImage image replaced\n", slipwayWith(t, api, image, "appimage", "apply", "-f", "-").out)

	text := "name: image\nimage: {name: x, tag: v2}\ndeploy_templates:\n- name: serving\n  role: server\n  " +
		"containers: [{name: c, ports: [{name: service, protocol: GRPC, scope: Domain}]}]\n"
	require.Equal(t, "AppImage image replaced\n", slipwayWith(t, api, text, "appimage", "apply", "-f", "-").out)
	spec := sentSpec[kuscia.AppImageSpec](t, api, "/api/v1/appimages/image?generation=3")
	require.Equal(t, "x:v2", spec.Image.Name+":"+spec.Image.Tag)
	require.Equal(t, []kuscia.ContainerPort{{Name: "service", Port: 53509, Protocol: "GRPC", Scope: "Domain"}},
		spec.DeployTemplates[0].Spec.Containers[0].Ports, "a request keeps the numbers of ports")
	api.on("GET /api/v1/appimages/image", func(request) answer { return problem(http.StatusNotFound, "it is missing") })
	require.Equal(t, app.ExitOK, slipwayWith(t, api, text, "appimage", "apply", "-f", "-").code)
	require.Zero(t, sentSpec[kuscia.AppImageSpec](t, api,
		"/api/v1/appimages/image?generation=0").DeployTemplates[0].Spec.Containers[0].Ports[0].Port, "it is new")

	for _, c := range []struct{ reason, text, want string }{
		{"servings are applied with another command", smallServing, "kind: must be AppImage, not"},
		{"a misspelt field is rejected", `{"name":"one","imagee":{}}`,
			`is not a Kuscia CreateAppImageRequest: unknown field "imagee"`},
		{"a name is required", `{"image":{"name":"x"}}`, "name: is missing"},
		{"a container needs a name", strings.Replace(image, "{name: c}", "{}", 1),
			"standard input:4: deployTemplates[0].spec.containers[0].name: is missing"},
		{"a resource must be a quantity, also of a later AppImage",
			`{"name":"one","image":{"name":"x"}}` + "\n---\n" + `{"name":"two","deploy_templates":[{"name":"t",` +
				`"containers":[{"name":"c","resources":{"limits":{"cpu":"many"}}}]}]}`,
			"standard input:3: can't parse limit cpu many to resource quantity"},
		{"an empty file is rejected", "", "the file is empty"},
		{"an AppImage is required", "---\n", "the file is empty"},
	} {
		api := newFakeAPI(t)
		got := slipwayWith(t, api, c.text, "appimage", "apply", "-f", "-")
		require.Equal(t, app.ExitFailure, got.code, c.reason)
		require.Contains(t, got.err, c.want, c.reason)
		require.Empty(t, api.requests(), c.reason)
	}
}

func TestApply_PrintsWhatWasSent_WhenALaterDocumentFails(t *testing.T) {
	t.Parallel()
	api := servingAPI(t)
	api.on("GET /api/v1/appimages/two", func(request) answer {
		return answer{status: http.StatusOK, contentType: "text/html", body: "<html>a proxy's page</html>"}
	})
	const text = `{"name":"image","image":{"name":"x"}}` + "\n---\n" + `{"name":"two","image":{"name":"x"}}`
	got := slipwayWith(t, api, text, "appimage", "apply", "-f", "-", "-o", "json")
	require.NotEqual(t, app.ExitOK, got.code)
	require.Contains(t, got.err, "AppImage two: ")
	require.JSONEq(t, `[{"name":"image","outcome":"created"}]`, got.out, "a program learns what was written")
}
