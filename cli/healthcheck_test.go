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
			_, _ = io.WriteString(w, `{"ready":false,"checks":[{"name":"cluster","ok":true,"message":"answers"},{"name":"temporal","ok":false,"message":"does not\nanswer"}]}`)
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
		"Ready": {"An answer of 200 is health.", []string{server.URL + "/readyz"}, app.ExitOK, server.URL + "/readyz: 200 OK\n"},
		"NotReady": {"What is missing is named, what is there is not, and a line stays a line.",
			[]string{server.URL + "/waiting/readyz"}, app.ExitFailure,
			fmt.Sprintf("error: %s/waiting/readyz answered 503 Service Unavailable: temporal: does not answer\n", server.URL)},
		"API": {"The engine that the other commands talk to is asked.", []string{"--api", server.URL}, app.ExitOK, ""},
		"Moved": {"A redirection comes from something else, even when its target is healthy.", []string{server.URL + "/moved"},
			app.ExitFailure, "answered 302 Found: " + healthcheck.UnreadableResponse},
		"Stranger": {"Something else that listens there is not health.", []string{server.URL + "/other"}, app.ExitFailure,
			"answered 404 Not Found: " + healthcheck.UnreadableResponse},
		"Nobody": {"A port without a listener is not health.", []string{"http://127.0.0.1:1/readyz"}, app.ExitFailure,
			"http://127.0.0.1:1/readyz does not answer: connection refused\n"},
		"Slow": {"A process that hangs is found out.", []string{server.URL + "/slow", "--timeout", "50ms"}, app.ExitFailure,
			"does not answer: no answer in time\n"},
		"NoURL": {"A bare address is refused with an example.", []string{"127.0.0.1:8080"}, app.ExitUsage,
			"is not a URL; an example is http://127.0.0.1:8080/readyz"},
		"NoTime":  {"A timeout of nothing cannot be kept.", []string{"--timeout", "0s"}, app.ExitUsage, "--timeout 0s is too short"},
		"TwoURLs": {"One address is asked, not two.", []string{server.URL, server.URL}, app.ExitUsage, "accepts at most 1 arg(s), received 2"},
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
