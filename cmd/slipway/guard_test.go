package main

import (
	"cmp"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/worker"
)

func TestCheckAPI(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		s      settings.Settings
		want   string
	}{
		"Default": {"Loopback needs no authentication.", settings.Settings{Listen: "127.0.0.1:8080"}, ""},
		"IPv6":    {"::1 is loopback.", settings.Settings{Listen: "[::1]:8080"}, ""},
		"Open": {"Other addresses without authentication are rejected.", settings.Settings{Listen: "0.0.0.0:8080"},
			"--listen 0.0.0.0:8080 is reachable from other machines"},
		"Every": {"No host means all interfaces.", settings.Settings{Listen: ":8080"},
			"--listen :8080 is reachable from other machines"},
		"Name": {"A host name may be any address.", settings.Settings{Listen: "slipway.example:8080"},
			"set --api-token-file"},
		"Token": {"A token is sufficient.", settings.Settings{Listen: ":8080", APITokenFile: "t"}, ""},
		"Mutual": {"Client certificates are sufficient.",
			settings.Settings{Listen: ":8080", APICertFile: "c", APIKeyFile: "k", APICAFile: "a"}, ""},
		"TLS": {"TLS alone is no authentication.",
			settings.Settings{Listen: ":8080", APICertFile: "c", APIKeyFile: "k"}, "is reachable from other machines"},
		"TokenTLS": {"TLS and a token are sufficient.",
			settings.Settings{Listen: ":8080", APICertFile: "c", APIKeyFile: "k", APITokenFile: "t"}, ""},
		"NoKey": {"The missing flag is named.", settings.Settings{Listen: "127.0.0.1:1", APICertFile: "c"},
			"--api-cert-file and --api-key-file must be set together"},
		"NoCert": {"The missing flag is named.", settings.Settings{Listen: "127.0.0.1:1", APIKeyFile: "k"},
			"--api-cert-file and --api-key-file must be set together"},
		"CAOnly": {"Client certificates require TLS.", settings.Settings{Listen: ":8080", APICAFile: "a"},
			"--api-ca-file requires TLS"},
		"KusciaToo": {"Kuscia's token protects only Kuscia's API.",
			settings.Settings{Listen: ":8080", KusciaTokenFile: "t"}, "is reachable from other machines"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkAPI(c.s)
			if c.want == "" {
				require.NoError(t, err, c.reason)
			} else {
				require.ErrorContains(t, err, c.want, c.reason)
			}
		})
	}
}

// assembled has the addresses of the listeners of a server and a worker, made by the modules, with an unreachable
// cluster and Temporal.
type assembled struct{ api, kuscia, health, ui, grpc string }

func assemble(t *testing.T, s settings.Settings) assembled {
	t.Helper()
	return assembleWith(t, s, nil) // many of their requests have wrong credentials
}

// assembleWith counts failed authentications in failures.
func assembleWith(t *testing.T, s settings.Settings, failures *auth.Failures) assembled {
	t.Helper()
	s.Listen, s.KusciaListen, s.MetricsListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(upstream.Close)
	s.TemporalUIListen, s.TemporalUIUpstream = "127.0.0.1:0", upstream.URL
	s.KusciaGRPCListen, s.KusciaProtocol = "127.0.0.1:0", cmp.Or(s.KusciaProtocol, "NOTLS")
	log, down := slog.New(slog.DiscardHandler), shutdowner(func() error { return nil })
	home, err := store.New(&rest.Config{Host: "http://127.0.0.1:1"}, "", "")
	require.NoError(t, err)
	temporal, err := client.NewLazyClient(client.Options{HostPort: "127.0.0.1:1"})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	guard, err := newGuard(s, failures)
	require.NoError(t, err)
	security, err := newKusciaSecurity(s, guard, log)
	require.NoError(t, err)
	encryption, err := newAPITLS(s, log)
	require.NoError(t, err)
	service := kuscia.NewService(home, log)
	process := Process{Settings: s, Registry: prometheus.NewRegistry(), Log: log, Down: down}
	parts := kusciaParts{Process: process, Security: security, Service: service,
		Handler: kuscia.NewHandler(service, security)}
	a, err := newAPI(apiParts{BackendParts: BackendParts{Process: process, Store: home, Temporal: temporal},
		Kuscia: parts.Handler, Guard: guard, Installed: newInstalled(log)})
	require.NoError(t, err)
	web, err := newHTTPServer(httpParts{Process: process, API: a, TLS: encryption, Traces: &tracing{}})
	require.NoError(t, err)
	foreign, err := newKusciaHTTP(parts)
	require.NoError(t, err)
	health, err := newHealthServer(healthParts{Process: process, Fleet: &worker.Fleet{}, Guard: guard})
	require.NoError(t, err)
	remote, err := newKusciaGRPC(parts)
	require.NoError(t, err)
	ui, err := newTemporalUI(uiParts{Process: process, Guard: guard, TLS: encryption})
	require.NoError(t, err)
	for _, l := range []*listener{web, foreign, health, ui, remote} {
		require.NoError(t, l.start(t.Context()))
		t.Cleanup(func() { _ = l.stop(t.Context()) })
	}
	on := assembled{"http://" + web.Addr().String(), "http://" + foreign.Addr().String(),
		"http://" + health.Addr().String(), "http://" + ui.Addr().String(), remote.Addr().String()}
	if encryption.Config != nil {
		on.api, on.ui = "https://"+web.Addr().String(), "https://"+ui.Addr().String()
	}
	return on
}

// described returns the routes of api/openapi.yaml. Package api checks that its router has the same routes.
func described(t *testing.T) (routes [][2]string) {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromFile("../../api/openapi.yaml")
	require.NoError(t, err)
	for path, item := range spec.Paths.Map() {
		for method := range item.Operations() {
			routes = append(routes, [2]string{method, path})
		}
	}
	require.Greater(t, len(routes), 50)
	return routes
}

// request sends a request with these headers, each as "Name: value"; Host is allowed.
func request(t *testing.T, method, address string, headers ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader("{}"))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// TestEveryRouteOfEveryListener sends requests that must be rejected to every route of all listeners of a process.
func TestEveryRouteOfEveryListener(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	on := assemble(t, settings.Settings{APITokenFile: file, AllowedHosts: []string{"slipway.example"}})
	token, err := os.ReadFile(file)
	require.NoError(t, err, "a missing token file is created")
	right := "Authorization: Bearer " + string(token)
	routes := described(t)
	all := map[string][][2]string{on.api: routes, on.health: {{"GET", "/healthz"}, {"GET", "/readyz"},
		{"GET", "/metrics"}, {"GET", "/nothing"}}, on.ui: {{"GET", "/"}, {"GET", "/healthz"}, {"POST", "/api/v1/x"}}}
	for _, route := range routes {
		if strings.HasPrefix(route[1], "/api/v1/appimage/") || strings.HasPrefix(route[1], "/api/v1/serving/") ||
			route[1] == "/healthZ" {
			all[on.kuscia] = append(all[on.kuscia], route)
		}
	}
	require.Len(t, all[on.kuscia], 12)
	for address, routes := range all {
		for _, route := range routes {
			for _, header := range []string{"Origin: https://evil.example", "Origin: null",
				"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Host: evil.example"} {
				status, body := request(t, route[0], address+route[1], right, header)
				require.Equal(t, http.StatusForbidden, status, "%s %s%s, %s: %s", route[0], address, route[1], header,
					body)
			}
			if address == on.health || address == on.api && (route[1] == "/healthz" || route[1] == "/readyz") {
				continue
			}
			refused := []string{"Accept: */*", "Authorization: Bearer wrong", "Token: wrong"}
			if address == on.api {
				refused = append(refused, "Token: "+string(token))
			}
			for _, credentials := range refused {
				status, body := request(t, route[0], address+route[1], credentials)
				require.Equal(t, http.StatusUnauthorized, status, "%s %s, %s: %s", route[0], route[1], credentials,
					body)
			}
		}
	}
	for _, open := range []string{on.api + "/healthz", on.health + "/healthz", on.health + "/metrics"} {
		status, body := request(t, "GET", open)
		require.Equal(t, http.StatusOK, status, "%s: %s", open, body)
	}
	for _, shown := range []string{"/docs", "/openapi.yaml", "/metrics"} {
		status, _ := request(t, "GET", on.api+shown, right)
		require.Equal(t, http.StatusOK, status, shown)
		status, _ = request(t, "GET", on.api+shown, right, "Host: slipway.example")
		require.Equal(t, http.StatusOK, status, "%s with an allowed host", shown)
	}
	status, body := request(t, "POST", on.api+"/api/v1/serving/query", right)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"code":11100`, "Kuscia's paths have their own handler")
}

// TestTemporalUI_RequiresCredentialsBeyondLoopback: releases are approved there.
func TestTemporalUI_RequiresCredentialsBeyondLoopback(t *testing.T) {
	t.Parallel()
	s := settings.Settings{TemporalUIListen: "0.0.0.0:0", TemporalUIUpstream: "http://127.0.0.1:1"}
	process := Process{Settings: s, Log: slog.New(slog.DiscardHandler)}
	_, err := newTemporalUI(uiParts{Process: process})
	require.ErrorContains(t, err,
		"--temporal-ui-listen 0.0.0.0:0 is reachable from other machines without authentication")
	process.Settings.TemporalUIListen, process.Settings.TemporalUIUpstream = "127.0.0.1:0", "http://127.0.0.1:1/ui"
	_, err = newTemporalUI(uiParts{Process: process})
	require.ErrorContains(t, err, "--temporal-ui-upstream: ")
	process.Settings.TemporalUIUpstream = ""
	l, err := newTemporalUI(uiParts{Process: process})
	require.NoError(t, err)
	require.Nil(t, l, "without an upstream nothing is published")
}

const secret = "a-token-of-this-test-with-32-or-more"

func TestAPI_RequiresClientCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs := harness.NewAuthority(t), harness.NewAuthority(t)
	cert, key := ours.Issue()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
	s := settings.Settings{APICertFile: cert, APIKeyFile: key, APICAFile: ours.File}
	alone := assemble(t, s).api
	s.APITokenFile = file
	closed := assemble(t, s)
	both, bothUI := closed.api, closed.ui
	for _, c := range []struct {
		reason, address string
		signer          *harness.Authority
		token           string
		status          int
	}{
		{"a certificate", alone + "/openapi.yaml", ours, "", http.StatusOK},
		{"no certificate", alone + "/openapi.yaml", nil, "", http.StatusUnauthorized},
		{"no certificate, Kuscia's paths", alone + "/api/v1/serving/query", nil, "", http.StatusUnauthorized},
		{"no certificate for a probe", alone + "/healthz", nil, "", http.StatusOK},
		{"a certificate of another CA", alone + "/openapi.yaml", theirs, "", 0},
		{"certificate and token", both + "/openapi.yaml", ours, secret, http.StatusOK},
		{"certificate without token", both + "/openapi.yaml", ours, "", http.StatusUnauthorized},
		{"token without certificate", both + "/openapi.yaml", nil, secret, http.StatusUnauthorized},
		{"the Temporal UI without certificate", bothUI, nil, secret, http.StatusUnauthorized},
		{"the Temporal UI with certificate and token", bothUI, ours, secret, http.StatusOK},
	} {
		client := http.Client{Transport: &http.Transport{TLSClientConfig: ours.Client(c.signer),
			ForceAttemptHTTP2: true}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.address, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+c.token)
		answer, err := client.Do(r)
		if c.status == 0 {
			require.Error(t, err, c.reason)
			continue
		}
		require.NoError(t, err, c.reason)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.status, answer.StatusCode, c.reason)
	}
}

// TestLongSlowClientsOfEveryListener waits for the real limits of a process: the longest is half a minute.
func TestLongSlowClientsOfEveryListener(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	on, patience := assemble(t, settings.Settings{}), time.Now().Add(45*time.Second)
	open := map[string]net.Conn{}
	for name, address := range map[string]string{"api": on.api, "kuscia": on.kuscia, "health": on.health,
		"ui": on.ui, "grpc": on.grpc} {
		for client, begin := range map[string]string{
			"nothing": "", "headers": "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n",
			"a body": "POST /api/v1/serving/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " +
				"application/json\r\nContent-Length: 1000\r\n\r\n",
		} {
			conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			require.NoError(t, conn.SetDeadline(patience))
			_, err = io.WriteString(conn, begin)
			require.NoError(t, err)
			open[name+": "+client] = conn
		}
	}
	for what, conn := range open {
		_, err := io.Copy(io.Discard, conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s: the connection is still open", what)
	}
}

func TestLargeBodiesOfEveryListener(t *testing.T) {
	t.Parallel()
	on := assemble(t, settings.Settings{})
	for _, c := range []struct {
		method, address, contentType string
		status                       int
		answer                       string
	}{
		{"PUT", on.api + "/api/v1/plans/shop", "application/yaml", http.StatusRequestEntityTooLarge,
			"larger than 4 MiB"},
		{"POST", on.api + "/api/v1/serving/create", "application/json", http.StatusOK,
			"the body is larger than 2097152 bytes"},
		{"POST", on.kuscia + "/api/v1/serving/create", "application/json", http.StatusOK,
			"the body is larger than 2097152 bytes"},
		{"POST", on.ui + "/api/v1/x", "application/json", http.StatusRequestEntityTooLarge, "larger than 4 MiB"},
		{"POST", on.health + "/metrics", "application/json", http.StatusMethodNotAllowed, "Method Not Allowed"},
	} {
		// A body without an end: the server decides how much it reads.
		endless, writer := io.Pipe()
		go func() {
			for {
				if _, err := writer.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}()
		r, err := http.NewRequestWithContext(t.Context(), c.method, c.address, endless)
		require.NoError(t, err)
		r.Header.Set("Content-Type", c.contentType)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err, c.address)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.status, answer.StatusCode, "%s: %s", c.address, text)
		require.Contains(t, string(text), c.answer, c.address)
		require.NoError(t, endless.Close())
	}
}
