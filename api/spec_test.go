package api

import (
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/mocks"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/store"
)

func loadSpec(t *testing.T) *openapi3.T {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromData(description)
	require.NoError(t, err)
	return spec
}

// bareAPI returns the API without backends, for tests that need neither Temporal nor a cluster.
func bareAPI(t *testing.T) *API {
	t.Helper()
	a, err := New(Deps{Metrics: http.NotFoundHandler(), Kuscia: http.NotFoundHandler(),
		Backend: backend.Backend{Home: &store.Store{}, Temporal: &mocks.Client{}, Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	return a
}

func get(t *testing.T, a *API, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, request)
	return recorder
}

func TestOpenAPIDescription_IsValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, loadSpec(t).Validate(t.Context(), openapi3.EnableSchemaDefaultsValidation()))
}

func TestRoutes_MatchDescription(t *testing.T) {
	t.Parallel()
	described, served := slices.Sorted(maps.Keys(operations(loadSpec(t)))), []string(nil)
	for path, item := range loadSpec(t).Paths.Map() {
		for method, operation := range item.Operations() {
			require.NotEmpty(t, operation.Summary, "%s %s needs a summary", method, path)
		}
	}
	for _, route := range bareAPI(t).echo.Routes() {
		served = append(served, route.Method+" "+route.Path)
	}
	slices.Sort(served)
	require.Equal(t, described, served, "every route is described, and every description is served")
}

// One handler serves all verbs of a kind: it reads the parameters of approve.
func TestVerbs_HaveParametersOfApprove(t *testing.T) {
	t.Parallel()
	paths := loadSpec(t).Paths.Map()
	for kind, verbs := range map[string][]string{"tasks/{id}": {"pause", "resume", "stop"},
		"rollouts/{namespace}/{name}": {"pause", "resume", "rollback", "stop", "jump", "retry", "promote"},
		"servings/{id}":               {"pause", "resume", "stop"}} {
		for _, verb := range verbs {
			approve, other := paths["/api/v1/"+kind+"/approve"], paths["/api/v1/"+kind+"/"+verb]
			require.Equal(t, approve.Parameters, other.Parameters, "%s of %s", verb, kind)
			require.Equal(t, approve.Post.Parameters, other.Post.Parameters, "%s of %s", verb, kind)
		}
	}
}

func TestDocs_AreSelfContained(t *testing.T) {
	t.Parallel()
	answer := get(t, bareAPI(t), "/docs")
	require.Equal(t, http.StatusOK, answer.Code)
	page := answer.Body.String()
	require.Empty(t, regexp.MustCompile(`(src|@import|url\()`).FindAllString(page, -1), "no external assets")
	for _, link := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		require.Regexp(t, `^(#|/openapi.yaml$)`, link[1], "links stay on the page")
		if name, ok := strings.CutPrefix(link[1], "#"); ok {
			require.Contains(t, page, `id="`+name+`"`, "the link has a target")
		}
	}
	spec := loadSpec(t)
	for path, item := range spec.Paths.Map() {
		for method, operation := range item.Operations() {
			require.Contains(t, page, `id="`+operation.OperationID+`"`, "%s %s is on the page", method, path)
		}
	}
	for name := range spec.Components.Schemas {
		require.Contains(t, page, `id="schema-`+name+`"`)
	}
	for _, kind := range problem.Kinds() {
		require.Contains(t, page, `id="problem-`+kind.Name+`"`, "the type of a problem is an address that exists")
	}
}

func TestOpenAPIDescription_IsServedUnchanged(t *testing.T) {
	t.Parallel()
	answer := get(t, bareAPI(t), "/openapi.yaml")
	require.Equal(t, "application/yaml", answer.Header().Get("Content-Type"))
	require.Equal(t, string(description), answer.Body.String())
}
