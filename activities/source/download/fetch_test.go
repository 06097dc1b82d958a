package download_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/release/source"
)

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func allow(t *testing.T, entries ...string) source.Allow {
	t.Helper()
	parsed, err := source.ParseAllow(entries)
	require.NoError(t, err)
	return parsed
}

// loopback allows the test servers.
func loopback(t *testing.T) source.Allow { return allow(t, "127.0.0.0/8", "::1") }

func newFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "package"))
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func content(t *testing.T, file *os.File) string {
	t.Helper()
	bytes, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	return string(bytes)
}

func TestFetch(t *testing.T) {
	body := strings.Repeat("package ", 1<<17)
	var headers http.Header
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/app.zip" {
			http.Redirect(w, r, "/v1/app.zip?signature=hidden", http.StatusFound)
			return
		}
		headers = r.Header
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Last-Modified", "Mon, 23 Nov 2026 10:00:00 GMT")
		_, _ = io.WriteString(w, body)
	})
	file := newFile(t)
	_, err := file.WriteString(strings.Repeat("longer content of an earlier attempt", 1<<17))
	require.NoError(t, err)

	done, err := download.New(download.Options{Allow: loopback(t)}).Fetch(context.Background(),
		server.URL+"/latest.zip", file)
	require.NoError(t, err)
	require.Equal(t, source.Fetched{SHA256: digest(body), Bytes: int64(len(body)), ETag: `"one"`,
		LastModified: "Mon, 23 Nov 2026 10:00:00 GMT",
		FinalURL:     server.URL + "/v1/app.zip?…"}, done)
	require.Equal(t, body, content(t, file))
	require.Equal(t, http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {"slipway"}, "Connection": {"close"}},
		headers,
		"the client asks for the uncompressed file, and sends no other header, such as a Referer")
}

func TestFetch_RefusesLoopbackByDefault(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a server on loopback was asked") })
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	_, err = download.New(download.Options{Allow: allow(t)}).Fetch(context.Background(), server.URL+"/app.zip",
		newFile(t))
	require.True(t, download.Is(err, download.Refused))
	require.EqualError(t, err, server.URL+"/app.zip: address "+u.Host+
		" (loopback) is not an allowed source: allow it with --source-allow (SLIPWAY_SOURCE_ALLOW) of the party's worker")
}
