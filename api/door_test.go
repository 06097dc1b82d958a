package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
)

func TestRequestErrors(t *testing.T) {
	t.Parallel()
	a := bareAPI(t)
	for _, c := range []struct {
		reason, method, path, body string
		headers                    []string
		status                     int
		detail                     string
	}{
		{"an address that does not exist", "GET", "/nothing", "", nil, 404, "does not exist"},
		{"a method that the address does not support", "POST", "/api/v1/plans", "", nil, 405,
			"does not support that method"},
		{"an unknown query parameter", "GET", "/api/v1/plans?limt=3", "", nil, 400, "did you mean limit?"},
		{"a query parameter on an address without any", "GET", "/healthz?x=1", "", nil, 400,
			"x: is not a query parameter"},
		{"a parameter given twice", "GET", "/api/v1/plans?limit=1&limit=2", "", nil, 400, "more than once"},
		{"a limit of 0", "GET", "/api/v1/plans?limit=0", "", nil, 400, "from 1 to 500"},
		{"a limit above the maximum", "GET", "/api/v1/tasks?limit=501", "", nil, 400, "from 1 to 500"},
		{"a limit that is not a number", "GET", "/api/v1/tasks?limit=x", "", nil, 400,
			"limit: must be a whole number from 1 to 500"},
		{"a state that does not exist", "GET", "/api/v1/tasks?state=Done", "", nil, 400, "none of Pending, Running"},
		{"a made-up cursor", "GET", "/api/v1/tasks?cursor=x", "", nil, 400, "nextCursor"},
		{"an illegal plan name as filter", "GET", "/api/v1/tasks?plan='", "", nil, 400, "not a legal ID"},
		{"an unsupported media type", "GET", "/api/v1/plans/shop", "", []string{"Accept: text/csv"}, 406,
			"application/json and application/yaml"},
		{"an unsupported report format", "GET", "/api/v1/tasks/x/report?format=pdf", "", nil, 400, "json or markdown"},
		{"a body without a type", "PUT", "/api/v1/plans/shop", "x", nil, 415, "application/json or application/yaml"},
		{"a body of another type", "POST", "/api/v1/plans/validate", "x", []string{"Content-Type: text/plain"}, 415,
			"application/json or application/yaml"},
		{"a body in another charset", "POST", "/api/v1/plans/validate", "x",
			[]string{"Content-Type: application/yaml; charset=utf-16"}, 415, "UTF-8"},
		{"YAML for a verb", "POST", "/api/v1/tasks/x/pause", "x", []string{"Content-Type: application/yaml"}, 415,
			"send application/json"},
		{"a body that is too large", "PUT", "/api/v1/plans/shop", strings.Repeat(" ", 4<<20+1),
			[]string{"Content-Type: application/yaml"}, 413, "larger than 4 MiB"},
		{"an illegal plan name", "PUT", "/api/v1/plans/a_b", "x", []string{"Content-Type: application/yaml"}, 400,
			"not a legal ID"},
		{"an illegal service ID", "GET", "/api/v1/services/a%2Fb", "", nil, 404, "a/b does not exist"},
		{"an illegal task ID", "GET", "/api/v1/tasks/..%2F..%2Fx", "", nil, 404, "does not exist"},
		{"events of an illegal task ID", "GET", "/api/v1/tasks/A_B/events", "", nil, 404, "does not exist"},
		{"a step for a task", "POST", "/api/v1/tasks/x/pause", `{"step":1,"gate":"g"}`,
			[]string{"Content-Type: application/json"}, 400, "a task has no steps"},
		{"an unknown field", "POST", "/api/v1/tasks/x/stop", `{"acter":"li"}`,
			[]string{"Content-Type: application/json"}, 400, `did you mean "actor"?`},
		{"a field of another type", "POST", "/api/v1/tasks/x/stop", `{"actor":5}`,
			[]string{"Content-Type: application/json"}, 400, "must be text"},
		{"a reason that is too long", "POST", "/api/v1/tasks/x/stop", `{"reason":"` + strings.Repeat("x", 2001) + `"}`,
			[]string{"Content-Type: application/json"}, 400, "at most 2000"},
		{"a list as body", "POST", "/api/v1/plans/shop/execute", `[]`, []string{"Content-Type: application/json"}, 400,
			"must be a mapping"},
		{"YAML declared as JSON", "POST", "/api/v1/plans/shop/execute", `actor: li`,
			[]string{"Content-Type: application/json"}, 400, "is not JSON"},
		{"an unknown Slipway-Via", "POST", "/api/v1/plans/shop/execute", "", []string{"Slipway-Via: mail"}, 400,
			"http, cli or console"},
		{"an empty key", "POST", "/api/v1/plans/shop/execute", "", []string{"Idempotency-Key: "}, 400, "1 to 255"},
		{"a key that is too long", "POST", "/api/v1/plans/shop/execute", "",
			[]string{"Idempotency-Key: " + strings.Repeat("k", 256)}, 400, "1 to 255"},
		{"a page of another site", "POST", "/api/v1/plans/shop/execute", "", []string{"Sec-Fetch-Site: cross-site"},
			403, "another site"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequest(c.method, "http://127.0.0.1"+c.path, strings.NewReader(c.body))
			for _, header := range c.headers {
				name, value, _ := strings.Cut(header, ": ")
				request.Header[http.CanonicalHeaderKey(name)] = []string{value}
			}
			recorder := httptest.NewRecorder()
			a.ServeHTTP(recorder, request)
			require.Equal(t, c.status, recorder.Code, recorder.Body.String())
			require.Equal(t, "application/problem+json", recorder.Header().Get("Content-Type"))
			var answered schema.Problem
			require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answered))
			require.Equal(t, c.status, answered.Status)
			require.NotEmpty(t, answered.RequestID)
			require.Equal(t, problem.OfStatus(c.status).Title, answered.Title)
			require.Contains(t, recorder.Body.String(), strings.ReplaceAll(c.detail, `"`, `\"`))
		})
	}
}

func TestAPI_Returns500_WhenHandlerPanics(t *testing.T) {
	t.Parallel()
	answer := get(t, bareAPI(t), "/api/v1/plans") // an uninitialised store panics
	require.Equal(t, http.StatusInternalServerError, answer.Code)
	require.NotContains(t, answer.Body.String(), "goroutine", "the stack is for the log only")
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	a := bareAPI(t)
	require.Equal(t, "ci-4711", get(t, a, "/healthz", "X-Request-Id: ci-4711").Header().Get("X-Request-Id"),
		"the client's ID is kept")
	require.NotContains(t, get(t, a, "/healthz", "X-Request-Id: a\tb").Header().Get("X-Request-Id"), "\t",
		"an illegal ID is replaced")
}
