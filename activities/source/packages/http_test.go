package packages

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/test/buckets"
	"slipway.io/slipway/test/race"
)

// noToken refuses a request without the token.
type noToken struct{}

func (noToken) Error() string      { return "show the token" }
func (noToken) HTTPStatus() int    { return http.StatusUnauthorized }
func (noToken) RetryAfter() string { return "" }

// serve serves a store that requires a token.
func serve(t *testing.T, s *Store) (address string) {
	t.Helper()
	server := httptest.NewServer(NewHandler(s, HandlerOptions{Log: slog.New(slog.DiscardHandler),
		Admit: func(*http.Request) error { return nil },
		Authenticate: func(r *http.Request) error {
			if r.Header.Get("Authorization") != "Bearer secret" {
				return noToken{}
			}
			return nil
		}}))
	t.Cleanup(server.Close)
	return server.URL
}

func secret() string { return "secret" }

// has reports whether a store has a package, without a use of it.
func has(ctx context.Context, c *Client, digest string) (bool, error) {
	err := c.finish(c.api.HeadPackage(ctx, digest))
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

// send sends a request with the token and these headers, "Name: value" each.
func send(t *testing.T, method, address string, body io.Reader, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, body)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer secret")
	for _, header := range headers {
		if name, value, given := strings.Cut(header, ": "); given {
			r.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(text)
}

func TestHandler_Responses(t *testing.T) {
	t.Parallel()
	forEachBackend(t, testResponses)
}

func testResponses(t *testing.T, at location) {
	content, absent := "a package", "/packages/sha256/"+strings.Repeat("0", 64)
	present, other := "/packages/sha256/"+digestOf([]byte(content)), "/packages/sha256/"+digestOf([]byte("other"))
	address := serve(t, at.open(t, Options{MaxBytes: 20}))
	first, text := send(t, "PUT", address+present, strings.NewReader(content))
	require.Equal(t, http.StatusCreated, first.StatusCode, text)
	for _, c := range []struct {
		reason, method, path, body string
		header                     string
		status                     int
		says                       string
	}{
		{"The complete package.", "GET", present, "", "", 200, content},
		{"A download needs no token.", "GET", present, "", "Authorization: ", 200, content},
		{"A range.", "GET", present, "", "Range: bytes=2-5", 206, "pack"},
		{"The rest of a download, if it is the same package.", "GET", present, "", `Range: bytes=2-`, 206, "package"},
		{"A range beyond the end.", "GET", present, "", "Range: bytes=90-", 416, ""},
		{"A package never changes.", "GET", present, "", `If-None-Match: "` + digestOf([]byte(content)) + `"`, 304, ""},
		{"HEAD of a package.", "HEAD", present, "", "", 200, ""},
		{"HEAD of an absent package.", "HEAD", absent, "", "", 404, ""},
		{"An absent package.", "GET", absent, "", "", 404, "the store has no such package"},
		{"A path that is no digest.", "GET", "/packages/sha256/..%2f..%2flock", "", "", 404,
			"the store has no such package"},
		{"An upload under no digest.", "PUT", "/packages/sha256/ABC", "x", "", 400,
			"64 hexadecimal digits in lower case"},
		{"The package exists already.", "PUT", present, content, "", 200, `"bytes":9`},
		{"The body of an existing package is ignored.", "PUT", present, "?", "", 200, `"bytes":9`},
		{"Bytes of another digest.", "PUT", other, content, "", 422,
			"these 9 bytes have the SHA-256 " + digestOf([]byte(content))},
		{"Those are not stored.", "GET", other, "", "", 404, ""},
		{"Too many bytes.", "PUT", other, strings.Repeat("x", 21), "", 413, "20 bytes at most"},
		{"An upload needs the token.", "PUT", other, "other", "Authorization: Bearer wrong", 401, "show the token"},
		{"A list needs the token.", "GET", "/packages", "", "Authorization: ", 401, "show the token"},
		{"Use needs the token.", "POST", present + "/use", "", "Authorization: ", 401, "show the token"},
		{"A deletion needs the token.", "DELETE", present + "?unusedSince=2100-01-01T00:00:00Z", "", "Authorization: ",
			401, "show the token"},
		{"Use of a package.", "POST", present + "/use", "", "", 204, ""},
		{"Use of an absent package.", "POST", absent + "/use", "", "", 404, "no such package"},
		{"A deletion needs unusedSince.", "DELETE", present, "", "", 400, "unusedSince"},
		{"unusedSince must be a time.", "DELETE", present + "?unusedSince=yesterday", "", "", 400,
			`is not an RFC 3339 time`},
		{"The package was used since.", "DELETE", present + "?unusedSince=2020-01-01T00:00:00Z", "", "", 409,
			"used since 2020-01-01T00:00:00Z, at 20"},
		{"The list.", "GET", "/packages", "", "", 200, `"sha256":"` + digestOf([]byte(content)) + `"`},
		{"The list behind the last package.", "GET", "/packages?after=" + strings.Repeat("f", 64), "", "", 200,
			`{"items":[]}`},
		{"A page that is too large.", "GET", "/packages?limit=501", "", "", 400, "from 1 to 500"},
		{"An unknown parameter.", "GET", "/packages?afer=1", "", "", 400, `is no query parameter of this address`},
		{"A repeated parameter.", "GET", "/packages?limit=1&limit=2", "", "", 400, "more than once"},
		{"A deletion.", "DELETE", present + "?unusedSince=2100-01-01T00:00:00Z", "", "", 204, ""},
		{"A second deletion.", "DELETE", present + "?unusedSince=2100-01-01T00:00:00Z", "", "", 404, "no such package"},
	} {
		response, text := send(t, c.method, address+c.path, strings.NewReader(c.body), c.header)
		require.Equal(t, c.status, response.StatusCode, "%s %s: %s", c.reason, c.path, text)
		require.Contains(t, text, c.says, c.reason)
		if c.status >= 400 && c.status != 416 {
			require.Equal(t, typeProblem, response.Header.Get("Content-Type"), c.reason)
		}
	}
	headers, _ := send(t, "PUT", address+present, strings.NewReader(content))
	require.Equal(t, http.StatusCreated, headers.StatusCode)
	headers, _ = send(t, "GET", address+present, nil)
	require.Equal(t, `"`+digestOf([]byte(content))+`"`, headers.Header.Get("ETag"))
	require.Contains(t, headers.Header.Get("Cache-Control"), "immutable")
	require.Equal(t, "nosniff", headers.Header.Get("X-Content-Type-Options"))
}

func TestClient(t *testing.T) {
	t.Parallel()
	forEachBackend(t, testClient)
}

func testClient(t *testing.T, at location) {
	address := serve(t, at.open(t, Options{MaxBytes: 100}))
	c, ctx := NewClient(address+"/", secret, nil), t.Context()
	for _, content := range []string{"", "one", "two", "three"} {
		digest := digestOf([]byte(content))
		had, err := has(ctx, c, digest)
		require.NoError(t, err)
		require.False(t, had)
		used, err := c.Use(ctx, digest)
		require.NoError(t, err)
		require.False(t, used)
		for range 2 {
			require.NoError(t, c.Put(ctx, digest, strings.NewReader(content), int64(len(content))))
		}
		had, err = has(ctx, c, digest)
		require.NoError(t, err)
		require.True(t, had)
		_, body := send(t, "GET", c.URL(digest), nil, "Authorization: ")
		require.Equal(t, content, body)
	}
	page, next, err := c.List(ctx, 3, "")
	require.NoError(t, err)
	require.Len(t, page, 3)
	rest, last, err := c.List(ctx, 3, next)
	require.NoError(t, err)
	require.Len(t, rest, 1)
	require.Empty(t, last)
	seen := page[0]
	used, err := c.Use(ctx, seen.SHA256)
	require.NoError(t, err)
	require.True(t, used)
	justAfter := time.Nanosecond
	require.ErrorIs(t, c.Delete(ctx, seen.SHA256, seen.UsedAt.Add(justAfter)), ErrUsed,
		"it was used since it was listed")
	now, _, err := c.List(ctx, 1, "")
	require.NoError(t, err)
	require.NoError(t, c.Delete(ctx, seen.SHA256, now[0].UsedAt.Add(justAfter)),
		"the time reaches the store with full precision")
	require.ErrorIs(t, c.Delete(ctx, seen.SHA256, time.Now()), ErrAbsent)
	require.ErrorIs(t, c.Put(ctx, digestOf([]byte("x")), strings.NewReader("y"), 1), ErrWrongBytes)
	require.ErrorIs(t, c.Put(ctx, digestOf([]byte("x")), bytes.NewReader(make([]byte, 101)), 101), ErrTooLarge)
	require.ErrorContains(t, c.Put(ctx, digestOf([]byte("x")), strings.NewReader("x"), 2), "does not answer",
		"a file that shrinks while it is sent")
	require.Eventually(t, func() bool { return len(at.partials(t)) == 0 }, 10*time.Second, 5*time.Millisecond,
		"the server notices the disconnected client after a while")
}

// countingReader counts the bytes that are read of a package.
type countingReader struct {
	io.Reader
	n atomic.Int64
}

func (c *countingReader) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	c.n.Add(int64(n))
	return n, err
}

func TestClient_SendsNoBody_WhenRefused(t *testing.T) {
	t.Parallel()
	content := make([]byte, 4<<20)
	s := open(t, t.TempDir(), Options{MaxBytes: 5 << 20})
	_, _, err := s.Put(t.Context(), digestOf(content), bytes.NewReader(content))
	require.NoError(t, err)
	address := serve(t, s)
	for reason, c := range map[string]struct {
		token  string
		digest string
		size   int64
		says   string
	}{
		"the token is wrong": {"wrong", digestOf(content), int64(len(content)),
			"answered 401 Unauthorized: the token is wrong: the file of --package-store-token-file"},
		"it exists already":     {"secret", digestOf(content), int64(len(content)), ""},
		"it is far too large":   {"secret", strings.Repeat("1", 64), 6 << 20, "answered 413 Request Entity Too Large"},
		"its digest is invalid": {"secret", "abc", 6 << 20, "answered 400 Bad Request"},
	} {
		body := &countingReader{Reader: bytes.NewReader(content)}
		err := NewClient(address, func() string { return c.token }, nil).Put(t.Context(), c.digest, body, c.size)
		if c.says == "" {
			require.NoError(t, err, reason)
		} else {
			require.ErrorContains(t, err, c.says, reason)
		}
		require.Zero(t, body.n.Load(), reason)
	}
}

func TestClient_RecognisesOtherServers(t *testing.T) {
	t.Parallel()
	redirected := false
	webServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/elsewhere") {
			redirected = true
		}
		if r.Method == http.MethodPost {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(webServer.Close)
	c, digest := NewClient(webServer.URL, secret, nil), strings.Repeat("0", 64)
	_, err := has(t.Context(), c, digest)
	require.ErrorContains(t, err, "answered 404 Not Found: is this the address of a package store?",
		"this does not mean that the package is absent")
	_, err = c.Use(t.Context(), digest)
	require.ErrorContains(t, err, "answered 307")
	require.False(t, redirected, "the token is not sent to another address")
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", typeProblem)
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(
			[]byte(`{"type":"/docs#problem-not-found","status":404,"detail":"this address does not exist: /docs lists all that do"}`))
	}))
	t.Cleanup(engine.Close)
	for _, ask := range []func(*Client) (bool, error){
		func(c *Client) (bool, error) { return has(t.Context(), c, digest) },
		func(c *Client) (bool, error) { return c.Use(t.Context(), digest) },
	} {
		_, err = ask(NewClient(engine.URL, secret, nil))
		require.ErrorContains(t, err, "answered 404 Not Found: is this the address of a package store?",
			"the engine's API answers in the same format")
	}
	webServer.Close()
	_, err = has(t.Context(), c, digest)
	require.ErrorContains(t, err, "the package store "+webServer.URL+" does not answer")
}

// randomPackage is a package that is generated while it is read.
type randomPackage struct{ *rand.ChaCha8 }

func TestPackages_AreNotHeldInMemory(t *testing.T) {
	race.SkipBounds(t)
	t.Run("folder", func(t *testing.T) { testMemoryIsConstant(t, inFolder(t.TempDir()), 12<<20) })
	t.Run("bucket", func(t *testing.T) { testMemoryIsConstant(t, inBucket(buckets.Start(t)), 2*partBytes) })
}

// testMemoryIsConstant uploads and downloads a package, and limits the bytes that both together allocate.
func testMemoryIsConstant(t *testing.T, at location, most uint64) {
	const size = 96 << 20
	s := at.open(t, Options{MaxBytes: size})
	from := func() io.Reader { return io.LimitReader(randomPackage{rand.NewChaCha8([32]byte{})}, size) }
	file, err := os.CreateTemp(t.TempDir(), "package")
	require.NoError(t, err)
	defer file.Close()
	digest, err := sum(io.TeeReader(from(), file))
	require.NoError(t, err)
	c := NewClient(serve(t, s), secret, nil)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	require.NoError(t, c.Put(t.Context(), digest, file, size))
	answer, err := http.Get(c.URL(digest))
	require.NoError(t, err)
	defer answer.Body.Close()
	have, err := sum(answer.Body)
	require.NoError(t, err)
	require.Equal(t, digest, have)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, most, "the allocations of both directions")
	_, err = file.Stat()
	require.NoError(t, err, "the caller's file stays open")
}
