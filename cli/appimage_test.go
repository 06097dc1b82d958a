package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
)

// imageData is an AppImage in a response of Kuscia's API.
func imageData(name, tag string) map[string]any {
	return map[string]any{"name": name, "image": map[string]any{"name": "registry/serving", "tag": tag, "id": "",
		"sign": ""},
		"config_templates": map[string]any{},
		"deploy_templates": []any{map[string]any{"name": "serving", "role": "server", "replicas": 0,
			"containers": []any{map[string]any{"name": "c", "command": []any{},
				"ports": []any{map[string]any{"name": "service", "protocol": "HTTP", "scope": "Cluster"}}}}}}}
}

func TestAppImageList(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/appimage/list", func(r request) answer {
		if !strings.Contains(r.body, `"page_token":"more"`) {
			return kusciaOK(map[string]any{"appimage_list": []any{imageData("one", "v1")}, "next_page_token": "more"})
		}
		return kusciaOK(map[string]any{"appimage_list": []any{imageData("two", "v2")}, "next_page_token": ""})
	})
	require.Equal(t, `NAME   IMAGE                 TEMPLATES
one    registry/serving:v1   serving for server
two    registry/serving:v2   serving for server
`, slipway(t, api, "appimage", "list").out, "all pages are listed")
	var listed struct{ Items []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(slipway(t, api, "appimage", "list", "-o", "json").out), &listed))
	require.Equal(t, "two", listed.Items[1]["name"])
	require.Contains(t, newSession(t, "").run("__complete", "appimage", "get", "--api", api.URL, "").out,
		"one\tregistry/serving:v1\n", "shell completion lists the names")

	api.on("POST /api/v1/appimage/list", func(request) answer {
		return kusciaOK(map[string]any{"appimage_list": []any{},
			"next_page_token": ""})
	})
	require.Contains(t, slipway(t, api, "appimage", "list").err, "There are no AppImages")
}

func TestAppImageGetAndDelete(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/appimage/query", func(r request) answer {
		if r.field(t, "name") == "none" {
			return kusciaRefusal(13105, `appimages.kuscia.secretflow "none" not found`)
		}
		return kusciaOK(imageData("one", "v1"))
	})
	require.Equal(t, `AppImage one is registry/serving:v1

TEMPLATE             REPLICAS       CONTAINER   PORTS
serving for server   set by party   c           service (HTTP, Cluster)
`, slipway(t, api, "appimage", "get", "one").out)
	none := slipway(t, api, "appimage", "get", "none")
	require.Equal(t, app.ExitFailure, none.code)
	require.Equal(t, "error: appimages.kuscia.secretflow \"none\" not found (code 13105)\n`slipway appimage list` "+
		"lists the "+
		"AppImages.\n", none.err)

	// apply accepts the output of get, and detects that nothing changed.
	text := slipway(t, api, "appimage", "get", "one", "-o", "json").out
	api.on("POST /api/v1/appimage/create", func(request) answer {
		return kusciaRefusal(13106, `appimages.kuscia.secretflow "one" already exists`)
	})
	require.Equal(t, "AppImage one unchanged\n", slipwayWith(t, api, text, "appimage", "apply", "-f", "-").out)

	api.on("POST /api/v1/appimage/delete", func(request) answer { return kusciaOK(nil) })
	require.Equal(t, outcome{out: "AppImage one deleted\n"}, slipway(t, api, "appimage", "delete", "one"))
}

func TestAppImageApply(t *testing.T) {
	t.Parallel()
	const image = "apiVersion: kuscia.secretflow/v1alpha1\nkind: AppImage\nmetadata: {name: one}\nspec: {image: " +
		"{name: x, tag: v2}, deployTemplates: [{name: t, spec: {containers: [{name: c}]}}]}\n"
	api := servingAPI(t)
	require.Equal(t, "AppImage one created\n", slipwayWith(t, api, image, "appimage", "apply", "-f", "-").out)
	api.on("POST /api/v1/appimage/create", func(request) answer { return kusciaRefusal(13106, "it exists") })
	api.on("POST /api/v1/appimage/query", func(request) answer { return kusciaOK(imageData("one", "v1")) })
	require.Equal(t, "AppImage one replaced\n", slipwayWith(t, api, image, "appimage", "apply", "-f", "-").out)
	require.Equal(t, "/api/v1/appimage/update", api.requests()[len(api.requests())-1].path)

	for _, c := range []struct{ reason, text, want string }{
		{"servings are applied with another command", smallServing, "kind: must be AppImage"},
		{"a misspelt field is rejected", `{"name":"one","imagee":{}}`,
			`is not a Kuscia CreateAppImageRequest: unknown field "imagee"`},
		{"a name is required", `{"image":{"name":"x"}}`, "name: is missing"},
		{"requests have no port numbers", strings.Replace(image, "{name: c}", "{name: c, ports: [{name: p, port: 80}]}",
			1),
			"ports[0].port: is not supported"},
		{"an empty file is rejected", "", "the file is empty"},
	} {
		api := newFakeAPI(t)
		got := slipwayWith(t, api, c.text, "appimage", "apply", "-f", "-")
		require.Equal(t, app.ExitFailure, got.code, c.reason)
		require.Contains(t, got.err, c.want, c.reason)
		require.Empty(t, api.requests(), c.reason)
	}
	away := newFakeAPI(t)
	away.on("POST /api/v1/appimage/create", func(request) answer { return answer{status: http.StatusUnauthorized} })
	require.Contains(t, slipwayWith(t, away, image, "appimage", "apply", "-f", "-").err,
		"error: AppImage one: the engine rejected the token of Kuscia's API")
}
