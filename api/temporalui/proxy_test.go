package temporalui

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/limits"
)

const secret = "a-token-of-this-test-with-32-or-more"

// closed returns a guard with the secret; an empty one requires none.
func closed(t *testing.T, secret string) auth.Guard {
	t.Helper()
	guard := auth.Guard{Hosts: auth.NewHosts(nil, []string{"slipway.example"}), Basic: true}
	if secret == "" {
		return guard
	}
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(secret), 0o600))
	var err error
	guard.Token.Token, err = auth.OpenToken("the UI", path)
	require.NoError(t, err)
	guard.Token.Failures, err = auth.NewFailures(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	return guard
}

// published serves the UI, played by a handler, with the guard.
func published(t *testing.T, guard auth.Guard, ui http.HandlerFunc) string {
	t.Helper()
	own := httptest.NewServer(ui)
	t.Cleanup(own.Close)
	handler, err := New(own.URL, guard, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	served := httptest.NewServer(limits.Default.Server(handler).Handler)
	t.Cleanup(served.Close)
	return served.URL
}

func send(t *testing.T, method, address string, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader("{}"))
	require.NoError(t, err)
	change(r)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer, string(text)
}

func TestProxy_ForwardsWhatTheUINeeds(t *testing.T) {
	t.Parallel()
	var got *http.Request
	address := published(t, closed(t, secret), func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(t.Context())
		http.SetCookie(w, &http.Cookie{Name: "_csrf", Value: "c"})
		fmt.Fprint(w, "page")
	})
	path := "/api/v1/namespaces/default/workflows/rollout%2Fdefault%2Fshop%2Fweb/signal/approve?a=b"
	for _, credentials := range []func(*http.Request){
		func(r *http.Request) { r.SetBasicAuth("alice", secret) },
		func(r *http.Request) { r.SetBasicAuth("", secret) },
		func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) },
	} {
		answer, text := send(t, http.MethodPost, address+path, func(r *http.Request) {
			credentials(r)
			r.Host = "slipway.example:8233"
			r.Header.Set("Origin", "https://slipway.example:8233")
			r.Header.Set("X-Csrf-Token", "c")
		})
		require.Equal(t, http.StatusOK, answer.StatusCode, text)
		require.Equal(t, "page", text)
		require.Len(t, answer.Cookies(), 1)
		require.Equal(t, path, got.URL.RequestURI(), "the slashes of a workflow's ID stay escaped")
		require.Equal(t, "c", got.Header.Get("X-Csrf-Token"))
		require.Empty(t, got.Header.Get("Authorization"), "the engine's token does not leave the engine")
		require.Empty(t, got.Header.Get("Origin"))
		require.NotContains(t, got.Host, "slipway.example", "the UI sees its own address")
	}
}

func TestProxy_PassesCredentialsOn_WithoutToken(t *testing.T) {
	t.Parallel()
	var got string
	address := published(t, closed(t, ""), func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
	})
	answer, _ := send(t, http.MethodGet, address, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer of-the-ui")
	})
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "Bearer of-the-ui", got, "a login of the UI itself")
}

func TestProxy_RefusesOthers(t *testing.T) {
	t.Parallel()
	asked := 0
	address := published(t, closed(t, secret), func(http.ResponseWriter, *http.Request) { asked++ })
	for reason, header := range map[string][2]string{
		"a page whose name resolves here": {"Host", "evil.example:8233"},
		"another site":                    {"Sec-Fetch-Site", "cross-site"},
		"another port of this machine":    {"Sec-Fetch-Site", "same-site"},
		"another origin":                  {"Origin", "https://evil.example"},
	} {
		answer, _ := send(t, http.MethodPost, address, func(r *http.Request) {
			r.SetBasicAuth("alice", secret)
			r.Header.Set(header[0], header[1])
			if header[0] == "Host" {
				r.Host = header[1]
			}
		})
		require.Equal(t, http.StatusForbidden, answer.StatusCode, reason)
	}
	answer, text := send(t, http.MethodGet, address, func(*http.Request) {})
	require.Equal(t, http.StatusUnauthorized, answer.StatusCode, text)
	require.Contains(t, answer.Header.Get("WWW-Authenticate"), "Basic realm=")
	for n := range 30 {
		answer, _ := send(t, http.MethodGet, address, func(r *http.Request) {
			r.SetBasicAuth(fmt.Sprint("guest-", n), "guess")
		})
		if n < 20 {
			require.Equal(t, http.StatusUnauthorized, answer.StatusCode, n)
			continue
		}
		require.Equal(t, http.StatusTooManyRequests, answer.StatusCode, n)
		require.Equal(t, "60", answer.Header.Get("Retry-After"))
		require.Empty(t, answer.Header.Get("WWW-Authenticate"), "a browser must not ask again")
	}
	require.Zero(t, asked, "the UI has seen none of them")
	answer, _ = send(t, http.MethodGet, address, func(r *http.Request) { r.SetBasicAuth("alice", secret) })
	require.Equal(t, http.StatusOK, answer.StatusCode, "the right password passes at any time")
}

// TestProxy_StreamsAtOnce reads the beginning of an answer before the UI has finished it.
func TestProxy_StreamsAtOnce(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	address := published(t, closed(t, ""), func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-read:
			fmt.Fprintln(w, "second")
		case <-r.Context().Done():
		}
	})
	answer, err := http.Get(address)
	require.NoError(t, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	require.True(t, lines.Scan())
	require.Equal(t, "first", lines.Text())
	close(read)
	require.True(t, lines.Scan())
	require.Equal(t, "second", lines.Text())
}

func TestProxy_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	handler, err := New("http://127.0.0.1:1", closed(t, ""), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	served := httptest.NewServer(handler)
	defer served.Close()
	answer, text := send(t, http.MethodGet, served.URL, func(*http.Request) {})
	require.Equal(t, http.StatusBadGateway, answer.StatusCode)
	require.Contains(t, text, "Temporal's Web UI does not answer (--temporal-ui-upstream)")

	address := published(t, closed(t, ""), func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})
	answer, text = send(t, http.MethodPost, address, func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", 5<<20))), -1
	})
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
	require.Contains(t, text, "larger than 4 MiB")

	_, err = New("http://temporal-ui:8080/ui", closed(t, ""), slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "has a path: name the server of the Web UI alone")
}
