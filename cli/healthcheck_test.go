package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/healthcheck"
)

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/readyz":
			_, _ = io.WriteString(w, `{"ready":true,"checks":[]}`)
		case "/waiting/readyz":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w,
				`{"ready":false,"checks":[{"name":"cluster","ok":true,"message":"answers"},{"name":"temporal","ok":false,"message":"does not\nanswer"}]}`)
		case "/moved":
			http.Redirect(w, r, "/readyz", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		want   string
	}{
		"Ready": {"Status 200 means healthy.", []string{server.URL + "/readyz"}, app.ExitOK,
			server.URL + "/readyz: 200 OK\n"},
		"NotReady": {"Only failed checks are named, on one line.",
			[]string{server.URL + "/waiting/readyz"}, app.ExitFailure,
			fmt.Sprintf("error: %s/waiting/readyz returned 503 Service Unavailable: temporal: does not answer\n",
				server.URL)},
		"API": {"Without a URL it checks the engine of the other commands.", []string{"--api", server.URL}, app.ExitOK,
			""},
		"Moved": {"A redirect does not come from Slipway, even if its target is healthy.",
			[]string{server.URL + "/moved"},
			app.ExitFailure, "returned 302 Found: " + healthcheck.UnreadableResponse},
		"Stranger": {"Another server at the address is not healthy.", []string{server.URL + "/other"}, app.ExitFailure,
			"returned 404 Not Found: " + healthcheck.UnreadableResponse},
		"Nobody": {"A port without a listener is not healthy.", []string{"http://127.0.0.1:1/readyz"}, app.ExitFailure,
			"http://127.0.0.1:1/readyz does not respond: connection refused\n"},
		"Slow": {"A process that hangs is not healthy.", []string{server.URL + "/slow", "--timeout", "50ms"},
			app.ExitFailure,
			"does not respond: timed out\n"},
		"NoURL": {"An address without a scheme is rejected with an example.", []string{"127.0.0.1:8080"}, app.ExitUsage,
			"is not a URL: use, for example, http://127.0.0.1:8080/readyz"},
		"NoTime": {"A timeout of 0 is rejected.", []string{"--timeout", "0s"}, app.ExitUsage,
			"--timeout 0s must be greater than 0"},
		"TwoURLs": {"Only one URL is accepted.", []string{server.URL, server.URL}, app.ExitUsage,
			"accepts at most 1 arg(s), received 2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, nil, append([]string{"healthcheck"}, c.args...)...)
			require.Equal(t, c.code, got.code, c.reason)
			require.Contains(t, got.out+got.err, c.want, c.reason)
		})
	}
}

// The token is for the engine only: another address does not get it, and the check works without it.
func TestHealthcheck_SendsToken_ToEngineOnly(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, `{"ready":false,"checks":[{"name":"sent","ok":false,"message":"'%s'"}]}`,
			r.Header.Get("Authorization"))
	}))
	t.Cleanup(server.Close)
	token := write(t, "token", "secret\n")
	for name, c := range map[string]struct {
		reason string
		args   []string
		sent   string
	}{
		"Engine":  {"The engine of --api.", []string{"--api", server.URL, "--api-token-file", token}, "Bearer secret"},
		"Address": {"An address of it.", []string{server.URL + "/readyz", "--api", server.URL, "--api-token-file", token}, "Bearer secret"},
		"Other":   {"Another address.", []string{server.URL + "/readyz", "--api-token-file", token}, ""},
		"None":    {"No token.", []string{"--api", server.URL}, ""},
		"Missing": {"A file that does not exist.", []string{"--api", server.URL, "--api-token-file", token + "x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, nil, append([]string{"healthcheck"}, c.args...)...)
			require.Equal(t, app.ExitFailure, got.code, c.reason)
			require.Contains(t, got.err, "sent: '"+c.sent+"'\n", c.reason)
		})
	}
}
