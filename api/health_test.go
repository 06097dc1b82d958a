package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/mocks"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/store"
)

// brokenAPI returns an API whose dependencies are at secret addresses and fail, and the number of its probes of them.
func brokenAPI(t *testing.T, guard auth.Guard, log *slog.Logger) (*API, *atomic.Int64) {
	t.Helper()
	home, err := store.New(&rest.Config{Host: "http://127.0.0.1:1"}, "", "")
	require.NoError(t, err)
	probes, temporal := &atomic.Int64{}, &mocks.Client{}
	temporal.On("CheckHealth", mock.Anything, mock.Anything).Return(nil,
		errors.New("dial tcp 10.77.0.7:7233: connection refused"))
	a, err := New(Deps{Metrics: http.NotFoundHandler(), Kuscia: http.NotFoundHandler(), Guard: guard,
		Backend: backend.Backend{Home: home, Temporal: temporal, Log: log}, OwnWorkers: func() error {
			probes.Add(1)
			return errors.New("cannot poll 10.77.0.7")
		}, Installed: func() error { return errors.New("webhooks are called at 10.77.0.7") }})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a, probes
}

// readiness asks with these headers, a name and a value each.
func readiness(t *testing.T, a http.Handler, headers ...string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/readyz", nil)
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	answer := httptest.NewRecorder()
	a.ServeHTTP(answer, r)
	return answer.Code, answer.Body.String()
}

// TestReadiness_SharesProbes_AndHidesReasons: strangers who ask as often as they can cost one probe in two seconds, and
// learn no address.
func TestReadiness_SharesProbes_AndHidesReasons(t *testing.T) {
	t.Parallel()
	a, probes := brokenAPI(t, auth.Guard{Token: lock(t)}, slog.New(slog.DiscardHandler))
	began := time.Now()
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			for range 10 {
				status, body := readiness(t, a)
				if status != http.StatusServiceUnavailable || strings.Contains(body, "127.0.0.1") ||
					strings.Contains(body, "10.77.0.7") {
					t.Errorf("%d: %s", status, body)
				}
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, probes.Load(), 1+int64(time.Since(began)/readinessMaxAge), "500 requests")

	status, body := readiness(t, a)
	require.Equal(t, http.StatusServiceUnavailable, status)
	var report schema.Readiness
	require.NoError(t, json.Unmarshal([]byte(body), &report))
	require.False(t, report.Ready)
	require.Len(t, report.Checks, 5, "which part is not ready is open")
	require.Equal(t, schema.Check{Name: "admission", Message: checkFailed, Optional: true}, report.Checks[4])
	for _, check := range report.Checks {
		require.Equal(t, checkFailed, check.Message, check.Name)
	}
	_, wrong := readiness(t, a, "Authorization", "Bearer wrong")
	require.Equal(t, body, wrong, "a wrong token shows no more")
	status, body = readiness(t, a, "Authorization", "Bearer "+secret)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "dial tcp 10.77.0.7:7233: connection refused", "the token shows why")
	_, after := readiness(t, a)
	require.NotContains(t, after, "10.77.0.7", "the kept report is not the one with reasons")
}

func TestReadiness_ShowsReasons_WhereNoCredentialsAreRequired(t *testing.T) {
	t.Parallel()
	a, _ := brokenAPI(t, auth.Guard{}, slog.New(slog.DiscardHandler))
	_, body := readiness(t, a)
	require.Contains(t, body, "dial tcp 10.77.0.7:7233: connection refused")
}

// TestLog_NamesTheRealClient: a client that forges X-Forwarded-For, or X-Request-Id, does not write into the log.
func TestLog_NamesTheRealClient(t *testing.T) {
	t.Parallel()
	proxies, err := limits.NewProxies([]string{"10.0.0.0/8"})
	require.NoError(t, err)
	for _, c := range []struct{ reason, peer, want string }{
		{"a stranger", "203.0.113.5:4711", "203.0.113.5"},
		{"a process of this machine", "127.0.0.1:4711", "127.0.0.1"},
		{"a client of a trusted proxy", "10.0.0.7:4711", "198.51.100.23"},
	} {
		var text bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		a, _ := brokenAPI(t, auth.Guard{Proxies: proxies}, log)
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/healthz", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Forwarded-For", "198.51.100.23")
		r.Header.Set("X-Real-Ip", "198.51.100.24")
		r.Header.Set("X-Request-Id", strings.Repeat("x", 129))
		answer := httptest.NewRecorder()
		a.ServeHTTP(answer, r)
		require.Equal(t, http.StatusOK, answer.Code, c.reason)
		var line struct{ From, Request string }
		require.NoError(t, json.Unmarshal(text.Bytes(), &line), text.String())
		require.Equal(t, c.want, line.From, c.reason)
		require.NotContains(t, line.Request, "xxx", "%s: an ID that is too long is replaced", c.reason)
	}
}
