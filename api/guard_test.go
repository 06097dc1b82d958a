package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

const secret = "a-token-of-this-test-with-32-or-more"

// guardedAPI returns the API with Kuscia's real handler, and with an unreachable home cluster and Temporal.
func guardedAPI(t *testing.T, guard auth.Guard) *API {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	home, err := store.New(&rest.Config{Host: "http://127.0.0.1:1"}, "", "")
	require.NoError(t, err)
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	a, err := New(Deps{Metrics: http.NotFoundHandler(), Guard: guard,
		Kuscia:  kuscia.NewHandler(kuscia.NewService(home, log), kuscia.Security{Hosts: guard.Hosts}),
		Backend: backend.Backend{Home: home, Temporal: temporal, Log: log}})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

// lock requires the secret.
func lock(t *testing.T) auth.Lock {
	return auth.Lock{API: "this engine", Label: "http", Source: "its file", Header: auth.BearerHeader,
		Token: harness.Token(t, secret)}
}

// attempt is a request to any route.
type attempt struct {
	reason, host  string
	authorization string
	headers       map[string]string
	// status is the expected response on all routes (everywhere), or on routes that require credentials; 0: the
	// handler's own.
	status     int
	everywhere bool
	kind       string
}

var attempts = []attempt{
	{reason: "a page of another site", authorization: "Bearer " + secret,
		headers: map[string]string{"Origin": "https://evil.example"},
		status:  http.StatusForbidden, everywhere: true, kind: "cross-site"},
	{reason: "a page of another port", authorization: "Bearer " + secret,
		headers: map[string]string{"Origin": "http://127.0.0.1:3000"},
		status:  http.StatusForbidden, everywhere: true, kind: "cross-site"},
	{reason: "a page without an origin", authorization: "Bearer " + secret,
		headers: map[string]string{"Origin": "null"},
		status:  http.StatusForbidden, everywhere: true, kind: "cross-site"},
	{reason: "a link or an image of another site", authorization: "Bearer " + secret,
		headers: map[string]string{"Sec-Fetch-Site": "cross-site"},
		status:  http.StatusForbidden, everywhere: true, kind: "cross-site"},
	{reason: "a link or an image of another port", authorization: "Bearer " + secret,
		headers: map[string]string{"Sec-Fetch-Site": "same-site"},
		status:  http.StatusForbidden, everywhere: true, kind: "cross-site"},
	{reason: "a name that resolves to this machine", authorization: "Bearer " + secret, host: "evil.example:8080",
		status: http.StatusForbidden, everywhere: true, kind: "unknown-host"},
	{reason: "the same, from a page whose origin is then the same", authorization: "Bearer " + secret,
		host:    "evil.example:8080",
		headers: map[string]string{"Origin": "http://evil.example:8080", "Sec-Fetch-Site": "same-origin"},
		status:  http.StatusForbidden, everywhere: true, kind: "unknown-host"},
	{reason: "no token", status: http.StatusUnauthorized, kind: "unauthenticated"},
	{reason: "a wrong token", authorization: "Bearer wrong", status: http.StatusUnauthorized, kind: "unauthenticated"},
	{reason: "the token in another scheme", authorization: "Basic " + secret, status: http.StatusUnauthorized,
		kind: "unauthenticated"},
	{reason: "the token in Kuscia's header", headers: map[string]string{"Token": secret},
		status: http.StatusUnauthorized, kind: "unauthenticated"},
	{reason: "the right token", authorization: "Bearer " + secret},
	{reason: "the right token and a page of this engine", authorization: "Bearer " + secret,
		headers: map[string]string{"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}},
	{reason: "the right token, with an allowed host name", authorization: "Bearer " + secret, host: "slipway.example"},
}

// send sends an attempt to a route. Its context is cancelled, so that handlers do not wait for the unreachable
// backends.
func (c attempt) send(a http.Handler, method, path string) *httptest.ResponseRecorder {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+path, nil).WithContext(cancelled)
	if c.host != "" {
		r.Host = c.host
	}
	if c.authorization != "" {
		r.Header.Set("Authorization", c.authorization)
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	a.ServeHTTP(answer, r)
	return answer
}

// TestAPI_GuardsEveryRoute iterates over the router's own routes, so that none is forgotten.
func TestAPI_GuardsEveryRoute(t *testing.T) {
	t.Parallel()
	a := guardedAPI(t, auth.Guard{Token: lock(t), Hosts: auth.NewHosts(nil, []string{"slipway.example"})})
	routes := a.echo.Routes()
	require.Greater(t, len(routes), 50)
	routes = append(routes, &echo.Route{Method: "GET", Path: "/nothing"},
		&echo.Route{Method: "GET", Path: "/api/v1/nothing"},
		&echo.Route{Method: "PATCH", Path: "/api/v1/plans"}, &echo.Route{Method: "OPTIONS", Path: "/api/v1/plans"},
		&echo.Route{Method: "GET", Path: "/"})
	for _, route := range routes {
		open := route.Path == "/healthz" || route.Path == "/readyz"
		for _, c := range attempts {
			answer := c.send(a, route.Method, route.Path)
			what := []any{"%s %s, %s: %s", route.Method, route.Path, c.reason, answer.Body}
			if c.status == 0 || open && !c.everywhere {
				require.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, answer.Code, what...)
				continue
			}
			require.Equal(t, c.status, answer.Code, what...)
			var problem schema.Problem
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &problem), what...)
			require.Equal(t, "/docs#problem-"+c.kind, problem.Type, what...)
			require.NotContains(t, problem.Detail, secret, what...)
			if c.status == http.StatusUnauthorized {
				require.Equal(t, `Bearer realm="slipway"`, answer.Header().Get("WWW-Authenticate"), what...)
			}
		}
	}
}

func TestOpenOperations_AreOnlyProbes(t *testing.T) {
	t.Parallel()
	var open []string
	for name, described := range operations(loadSpec(t)) {
		if described.open {
			open = append(open, name)
		}
	}
	require.ElementsMatch(t, []string{"GET /healthz", "GET /readyz"}, open)
}

// Without settings, an API accepts only loopback addresses.
func TestAPI_AcceptsOnlyLoopback_WithoutGuardSettings(t *testing.T) {
	t.Parallel()
	a := guardedAPI(t, auth.Guard{})
	require.Equal(t, http.StatusOK, attempt{}.send(a, "GET", "/openapi.yaml").Code)
	require.Equal(t, http.StatusForbidden, attempt{host: "evil.example"}.send(a, "GET", "/openapi.yaml").Code)
	require.Equal(t, http.StatusForbidden, attempt{headers: map[string]string{"Origin": "https://evil.example"}}.send(a,
		"GET", "/openapi.yaml").Code)
}
