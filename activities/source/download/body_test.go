package download_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/test/race"
)

func TestSizeLimit(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/declared" {
			w.Header().Set("Content-Length", "11")
		} else {
			w.(http.Flusher).Flush() // no length
		}
		if r.URL.Path == "/exact" {
			_, _ = io.WriteString(w, "0123456789")
			return
		}
		_, _ = io.WriteString(w, "0123456789x")
	})
	options := download.Options{Allow: loopback(t), MaxBytes: 10}
	_, err := fetch(t, options, server.URL+"/exact")
	require.NoError(t, err)
	for _, path := range []string{"/declared", "/streamed"} {
		file := newFile(t)
		_, err := download.New(options).Fetch(context.Background(), server.URL+path, file)
		requireRefused(t, err, server.URL+path+": the package is larger than the limit of 10 bytes")
		require.LessOrEqual(t, len(content(t, file)), 10)
	}
	_, err = fetch(t, download.Options{Allow: loopback(t)}, rawServer(t, func(string) string {
		return "HTTP/1.1 200 OK\r\nContent-Length: 2147483649\r\n\r\n"
	}))
	requireRefused(t, err, "larger than the limit of 2147483648 bytes")
}

func TestTruncatedBodies(t *testing.T) {
	for name, answer := range map[string]string{
		"shorter than declared": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
		"cut in a chunk":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nshort",
		"cut between chunks":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
		"cut in the header":     "HTTP/1.1 200 OK\r\nContent-Le",
		"no answer":             "",
	} {
		_, err := fetch(t, download.Options{Allow: loopback(t)}, rawServer(t, func(string) string { return answer }))
		require.True(t, download.Is(err, download.Temporary), "%s: %v", name, err)
	}
}

func TestSilentServer_IsTemporaryError(t *testing.T) {
	stay := make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "the beginning")
			w.(http.Flusher).Flush()
		}
		<-stay
	})
	defer close(stay)
	options := download.Options{Allow: loopback(t), IdleTimeout: 50 * time.Millisecond,
		HeaderTimeout: 60 * time.Millisecond}
	_, err := fetch(t, options, server.URL+"/body")
	require.True(t, download.Is(err, download.Temporary))
	require.ErrorContains(t, err, "the server sent nothing for 50ms")
	_, err = fetch(t, options, server.URL+"/header")
	require.True(t, download.Is(err, download.Temporary))
	require.ErrorContains(t, err, "the server did not answer in time")

	// When the caller's context ends, the error is the caller's, not one of the server.
	for _, path := range []string{"/body", "/header"} {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err = download.New(download.Options{Allow: loopback(t)}).Fetch(ctx, server.URL+path, newFile(t))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, download.Is(err, download.Temporary))
	}
}

func TestSlowServer_DoesNotTimeOut(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for range 6 {
			_, _ = io.WriteString(w, "x")
			w.(http.Flusher).Flush()
			select {
			case <-time.After(100 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	})
	done, err := fetch(t, download.Options{Allow: loopback(t), IdleTimeout: 400 * time.Millisecond}, server.URL)
	require.NoError(t, err)
	require.EqualValues(t, 6, done.Bytes)
}

func TestStatuses(t *testing.T) {
	var status int
	var after string
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(status)
	})
	for _, c := range []struct {
		status int
		after  string
		kind   download.Kind
		pause  time.Duration
		says   string
	}{
		{404, "", download.NotAvailable, 0, "the server answered 404 Not Found: check the URL"},
		{410, "", download.NotAvailable, 0, "410 Gone"},
		{401, "", download.NotAvailable, 0, "401 Unauthorized"},
		{403, "5", download.NotAvailable, 0, "403 Forbidden"},
		{416, "", download.NotAvailable, 0, "416"},
		{499, "", download.NotAvailable, 0, "the server answered 499: check"},
		{408, "", download.Temporary, 0, "408"},
		{425, "", download.Temporary, 0, "425"},
		{429, "7", download.Temporary, 7 * time.Second, "429 Too Many Requests"},
		{500, "", download.Temporary, 0, "500"},
		{503, "120", download.Temporary, 2 * time.Minute, "503"},
		{503, "-1", download.Temporary, 0, "503"},
		{503, "soon", download.Temporary, 0, "503"},
		{503, "Mon, 01 Jan 2001 00:00:00 GMT", download.Temporary, 0, "503"},
		{204, "", download.Refused, 0, "204 No Content: a download needs 200 OK"},
		{206, "", download.Refused, 0, "206 Partial Content: a download needs 200 OK"},
		{304, "", download.Refused, 0, "304 Not Modified: a download needs 200 OK"},
	} {
		status, after = c.status, c.after
		_, err := fetch(t, download.Options{Allow: loopback(t)}, server.URL)
		var failed *download.Error
		require.ErrorAs(t, err, &failed, c.status)
		require.Equal(t, c.kind, failed.Kind, c.status)
		require.Equal(t, c.pause, failed.RetryAfter, "%d %s", c.status, c.after)
		require.ErrorContains(t, err, c.says)
	}
	status, after = 503, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	_, err := fetch(t, download.Options{Allow: loopback(t)}, server.URL)
	var failed *download.Error
	require.ErrorAs(t, err, &failed)
	require.InDelta(t, time.Hour, failed.RetryAfter, float64(10*time.Second))
}

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		reason   string
		err      error
		failed   int
		from, to time.Duration
		again    bool
	}{
		{"the first pause", &download.Error{Kind: download.Temporary}, 1, 750 * time.Millisecond, time.Second, true},
		{"it doubles", &download.Error{Kind: download.Temporary}, 3, 3 * time.Second, 4 * time.Second, true},
		{"up to 15 seconds", &download.Error{Kind: download.Temporary}, 5, 11 * time.Second, 15 * time.Second, true},
		{"and stays there", &download.Error{Kind: download.Temporary}, 1 << 40, 11 * time.Second, 15 * time.Second,
			true},
		{"no attempt yet", &download.Error{Kind: download.Temporary}, 0, 750 * time.Millisecond, time.Second, true},
		{"the server's Retry-After", &download.Error{Kind: download.Temporary, RetryAfter: 30 * time.Second}, 1,
			30 * time.Second, 30 * time.Second, true},
		{"a Retry-After that is shorter", &download.Error{Kind: download.Temporary, RetryAfter: time.Second}, 5,
			11 * time.Second, 15 * time.Second, true},
		{"a Retry-After above the limit", &download.Error{Kind: download.Temporary, RetryAfter: time.Hour}, 1,
			2 * time.Minute, 2 * time.Minute, true},
		{"wrapped", fmt.Errorf("fetch: %w", &download.Error{Kind: download.Temporary}), 1, 750 * time.Millisecond,
			time.Second, true},
		{"not available", &download.Error{Kind: download.NotAvailable}, 1, 0, 0, false},
		{"refused", &download.Error{Kind: download.Refused}, 1, 0, 0, false},
		{"another error", context.Canceled, 1, 0, 0, false},
		{"none", nil, 1, 0, 0, false},
	} {
		pause, again := download.RetryAfter(c.err, c.failed)
		require.Equal(t, c.again, again, c.reason)
		require.GreaterOrEqual(t, pause, c.from, c.reason)
		require.LessOrEqual(t, pause, c.to, c.reason)
	}
}

func TestNetworkErrors_AreTemporary(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	listener.Close()
	_, err = fetch(t, download.Options{Allow: loopback(t)}, "http://"+address)
	require.True(t, download.Is(err, download.Temporary))
	require.ErrorContains(t, err, "the connection to "+address+" failed: connect: connection refused")

	nowhere := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no DNS")
	}}
	_, err = fetch(t, download.Options{Allow: loopback(t), Resolver: nowhere}, "http://a.example.com")
	require.True(t, download.Is(err, download.Temporary))
	require.ErrorContains(t, err, "host a.example.com can't be resolved: ")
}

func TestFileError_IsNoDownloadError(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "package") })
	file := newFile(t)
	readOnly, err := os.Open(file.Name())
	require.NoError(t, err)
	defer readOnly.Close()
	_, err = download.New(download.Options{Allow: loopback(t)}).Fetch(context.Background(), server.URL, readOnly)
	var failed *download.Error
	require.Error(t, err)
	require.NotErrorAs(t, err, &failed)
}

func TestContentEncoding(t *testing.T) {
	var encoding string
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", encoding)
		_, _ = io.WriteString(w, "\x1f\x8b unchanged")
	})
	for _, c := range []struct {
		reason, encoding, path string
		taken                  bool
	}{
		{"identity is no compression", "identity", "/app.zip", true},
		{"Apache labels .tar.gz files this way", "x-gzip", "/app.tar.gz", true},
		{"other servers label .tgz files this way", "GZIP", "/app.tgz", true},
		{"a zstd file", "zstd", "/app.tar.zst", true},
		{"compressed for the transfer", "gzip", "/app.zip", false},
		{"compressed for the transfer, a jar", "gzip", "/app.jar", false},
		{"compressed a second time", "gzip, gzip", "/app.tgz", false},
		{"another encoding", "br", "/app.tar.gz", false},
	} {
		encoding = c.encoding
		file := newFile(t)
		_, err := download.New(download.Options{Allow: loopback(t)}).Fetch(context.Background(), server.URL+c.path,
			file)
		if !c.taken {
			requireRefused(t, err, "turn off compression")
			continue
		}
		require.NoError(t, err, c.reason)
		require.Equal(t, "\x1f\x8b unchanged", content(t, file), "%s: the bytes are stored as they were sent", c.reason)
	}
}

// A package of 2 GiB must not need memory of its size.
func TestFetch_MemoryIsConstant(t *testing.T) {
	race.SkipBounds(t)
	block := []byte(strings.Repeat("x", 1<<20))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 256 {
			_, _ = w.Write(block)
		}
	}))
	defer server.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	done, err := fetch(t, download.Options{Allow: loopback(t)}, server.URL)
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.EqualValues(t, 256<<20, done.Bytes)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}
