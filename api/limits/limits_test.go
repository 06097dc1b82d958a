package limits

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds the wait for connections and handlers that end only because of a limit.
const patience = 10 * time.Second

// shortLimits are limits short enough to wait for in a test.
var shortLimits = Limits{Header: 200 * time.Millisecond, Body: 200 * time.Millisecond, Answer: 2 * time.Second,
	Idle:        200 * time.Millisecond,
	HeaderBytes: 4 << 10, BodyBytes: 1 << 20}

func serve(t *testing.T, l Limits, handler http.HandlerFunc) (address string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = l.Server(handler)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// dial sends the beginning of a request.
func dial(t *testing.T, address, begin string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, begin)
	require.NoError(t, err)
	return conn
}

// requireCut checks that the server closes the connection.
func requireCut(t *testing.T, conn net.Conn, why string) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s: the connection is still open", why)
}

// trickle sends a chunk every 20 ms until the server closes the connection.
func trickle(conn net.Conn, chunk string) {
	for {
		if _, err := io.WriteString(conn, chunk); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond) // simulates a slow client
	}
}

func TestServer_ClosesConnection_WhenClientIsSlow(t *testing.T) {
	t.Parallel()
	readAll := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
	}
	for name, c := range map[string]struct {
		reason, begin, then string
		handler             http.HandlerFunc
	}{
		"Nothing": {"A connection without a request.", "", "", readAll},
		"Header":  {"Headers that never end.", "GET / HTTP/1.1\r\nHost: a\r\n", "X-A: b\r\n", readAll},
		"Idle":    {"A connection whose request is answered.", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", readAll},
		"Body": {"A body that is never sent.", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n", "",
			readAll},
		"Chunks": {"A body that never ends.", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
			"1\r\nx\r\n", readAll},
		"Unread": {"A body that the handler does not read.",
			"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n",
			func(http.ResponseWriter, *http.Request) {}},
		"BodyOfGet": {"A body of a GET request.", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
			"1\r\nx\r\n", func(http.ResponseWriter, *http.Request) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, serve(t, shortLimits, c.handler), c.begin)
			if c.then != "" {
				go trickle(conn, c.then)
			}
			requireCut(t, conn, c.reason)
		})
	}
}

func TestServer_EndsResponse_WhenClientDoesNotRead(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	address := serve(t, shortLimits, func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	})
	dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(patience):
		require.Fail(t, "the handler still writes to a client that reads nothing")
	}
}

func TestServer_RejectsLargeBodiesAndHeaders(t *testing.T) {
	t.Parallel()
	address := serve(t, shortLimits, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
		_, _ = fmt.Fprint(w, len(body))
	})
	answer, err := http.Post("http://"+address, "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "1048576", string(body), "the largest allowed body")

	conn := dial(t, address, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
	go func() {
		for {
			if _, err := io.WriteString(conn, chunk); err != nil {
				return
			}
		}
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode, "an endless body is cut off at the limit")

	second := dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\nX-A: "+strings.Repeat("x", 16<<10)+"\r\n\r\n")
	response, err = http.ReadResponse(bufio.NewReader(second), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, response.StatusCode)
}

// A slow handler is not affected: the limits of a body end with the body.
func TestServer_DoesNotCancelSlowHandler(t *testing.T) {
	t.Parallel()
	address := serve(t, shortLimits, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusTeapot)
		case <-time.After(shortLimits.Header + shortLimits.Body/2 + 50*time.Millisecond):
		}
	})
	for _, body := range []io.Reader{http.NoBody, strings.NewReader("x")} {
		answer, err := http.Post("http://"+address, "text/plain", body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusOK, answer.StatusCode, "the request was cancelled")
	}
}
