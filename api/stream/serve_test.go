package stream

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/api/problem"
)

// changingSource is a source whose value changes with every read.
func changingSource() Source {
	var looks atomic.Int64
	return Source{
		Read:  func(context.Context) (Snapshot, error) { return Snapshot{Value: looks.Add(1)}, nil },
		Watch: func(ctx context.Context, _ func()) { <-ctx.Done() }, Interval: 20 * time.Millisecond,
	}
}

// serveStreams serves events with these limits; a refusal is returned as its status.
func serveStreams(t *testing.T, h *Hub, l limits.Limits, http2 bool) (url string, asker *http.Client) {
	t.Helper()
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) { _ = c.JSON(problem.Of(err).Status, problem.Of(err).Problem) }
	e.GET("/", func(c echo.Context) error { return h.Serve(c, "a", changingSource) })
	server := httptest.NewUnstartedServer(nil)
	server.Config = l.Server(e)
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	return server.URL, server.Client()
}

func open(t *testing.T, url string, asker *http.Client) (answer *http.Response, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	answer, err = asker.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer, cancel
}

func TestServe_RefusesStream_WhenLimitReached(t *testing.T) {
	t.Parallel()
	url, asker := serveStreams(t, NewHub(2, nil), limits.Default, false)
	first, leave := open(t, url, asker)
	second, _ := open(t, url, asker)
	require.Equal(t, []int{http.StatusOK, http.StatusOK}, []int{first.StatusCode, second.StatusCode})
	third, _ := open(t, url, asker)
	require.Equal(t, http.StatusTooManyRequests, third.StatusCode)
	require.Equal(t, "10", third.Header.Get("Retry-After"))
	text, err := io.ReadAll(third.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), "2 event streams are open already, which is the maximum (--max-event-streams)")
	leave()
	require.Eventually(t, func() bool {
		answer, leave := open(t, url, asker)
		defer leave()
		return answer.StatusCode == http.StatusOK
	}, hubTimeout, 10*hubTick, "a stream is admitted after another one has ended")
}

// Clients of one address leave room for others; loopback, from which load tests and all tools of a machine come, does
// not count.
func TestServe_LimitsStreamsByAddress_WithoutCredentials(t *testing.T) {
	t.Parallel()
	h := NewHub(8, limits.NewByAddress(8))
	e := echo.New()
	e.IPExtractor = func(r *http.Request) string { return r.Header.Get("Client") }
	e.HTTPErrorHandler = func(err error, c echo.Context) { _ = c.JSON(problem.Of(err).Status, problem.Of(err).Problem) }
	e.GET("/", func(c echo.Context) error { return h.Serve(c, "a", changingSource) })
	server := httptest.NewServer(e)
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	watch := func(client string) (status int, body io.ReadCloser) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		request.Header.Set("Client", client)
		answer, err := server.Client().Do(request)
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer.StatusCode, answer.Body
	}
	for n, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		status, body := watch("203.0.113.5")
		require.Equal(t, want, status, n)
		if status == http.StatusTooManyRequests {
			text, err := io.ReadAll(body)
			require.NoError(t, err)
			require.Contains(t, string(text), "2 event streams are open already from this address")
		}
	}
	status, _ := watch("203.0.113.6")
	require.Equal(t, http.StatusOK, status, "another address")
	for range 5 {
		status, _ = watch("127.0.0.1")
		require.Equal(t, http.StatusOK, status, "loopback takes all that is left")
	}
	status, _ = watch("127.0.0.1")
	require.Equal(t, http.StatusTooManyRequests, status, "the limit of all holds for each")
}

// An event stream outlives all limits of the listener: each event has its own deadline.
func TestServe_StreamOutlivesListenerLimits(t *testing.T) {
	t.Parallel()
	l := limits.Limits{Header: time.Second, Body: 100 * time.Millisecond, Answer: 300 * time.Millisecond,
		Idle:        100 * time.Millisecond,
		HeaderBytes: 4 << 10, BodyBytes: 1 << 10}
	for protocol, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			url, asker := serveStreams(t, NewHub(1, nil), l, http2)
			answer, leave := open(t, url, asker)
			defer leave()
			require.Equal(t, protocol, answer.Proto)
			began, events := time.Now(), bufio.NewScanner(answer.Body)
			for events.Scan() && time.Since(began) < 5*l.Answer {
				if text := events.Text(); text != "" {
					require.Regexp(t, "^(event|id|data): ", text)
				}
			}
			require.NoError(t, events.Err(), "cut off after %s", time.Since(began))
			require.GreaterOrEqual(t, time.Since(began), 5*l.Answer, "the stream ended early")
		})
	}
}
