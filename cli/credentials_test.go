package cli_test

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/test/harness"
)

// locked is an API that asks for a token, as the engine does.
func locked(t *testing.T, token string) *fakeAPI {
	t.Helper()
	f := newFakeAPI(t)
	f.on("GET /api/v1/services", func(r request) answer {
		if r.header.Get("Authorization") != "Bearer "+token {
			return problem(http.StatusUnauthorized, "the token is wrong: send what the engine's --api-token-file contains")
		}
		return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{}})
	})
	return f
}

func TestTheTokenOfTheEngine(t *testing.T) {
	t.Parallel()
	f := locked(t, "secret")
	file := func(text string) string { return write(t, "token", text) }
	missing := filepath.Join(t.TempDir(), "none")
	for name, c := range map[string]struct {
		reason string
		args   []string
		code   int
		want   string
	}{
		"Right":   {"What the file contains is sent.", []string{"--api-token-file", file("secret")}, app.ExitOK, ""},
		"NewLine": {"A line break at the end is an editor's.", []string{"--api-token-file", file("secret\n")}, app.ExitOK, ""},
		"None": {"What to do is said.", nil, app.ExitFailure, "error: the token is wrong: send what the engine's --api-token-file contains\n" +
			"Name the file of the engine's token with --api-token-file or SLIPWAY_API_TOKEN_FILE, a client certificate with --api-cert-file and --api-key-file.\n"},
		"Wrong":   {"Of a wrong one too.", []string{"--api-token-file", file("other")}, app.ExitFailure, "Name the file of the engine's token"},
		"Empty":   {"An empty file is a slip.", []string{"--api-token-file", file("")}, app.ExitFailure, "is empty: give a file with a token in it, or none"},
		"Missing": {"A file that isn't there is named.", []string{"--api-token-file", missing}, app.ExitFailure, "--api-token-file: open " + missing},
		"NoCert": {"A certificate that isn't there.", []string{"--api-cert-file", "c", "--api-key-file", "k"}, app.ExitFailure,
			"--api-cert-file: the client certificate cannot be used: open c"},
		"Half": {"A certificate without its key.", []string{"--api-cert-file", "c"}, app.ExitFailure, "--api-cert-file and --api-key-file belong together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, f, append([]string{"service", "list"}, c.args...)...)
			require.Equal(t, c.code, got.code, "%s: %s", c.reason, got.err)
			require.Contains(t, got.err, c.want, c.reason)
		})
	}
}

func TestAnUnknownHostSaysWhatToDo(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	f.on("GET /api/v1/services", func(request) answer { return problem(http.StatusForbidden, "the request is addressed to the host x") })
	require.Contains(t, slipway(t, f, "service", "list").err, "Name another address of the engine with --api or SLIPWAY_API")
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs := harness.NewAuthority(t), harness.NewAuthority(t)
	f := newFakeAPI(t)
	own, err := tls.LoadX509KeyPair(ours.Issue())
	require.NoError(t, err)
	server := newTLSServer(t, f, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own},
		ClientCAs: ours.Client(nil).RootCAs, ClientAuth: tls.RequireAndVerifyClientCert})
	f.on("GET /readyz", func(request) answer {
		return answerJSON(http.StatusOK, client.Readiness{Ready: true, Checks: []client.Check{}})
	})
	cert, key := ours.Issue()
	shown := []string{"--api", server, "--api-cert-file", cert, "--api-key-file", key}
	healthy := slipway(t, nil, append([]string{"healthcheck"}, append(shown, "--api-ca-file", ours.File)...)...)
	require.Equal(t, app.ExitOK, healthy.code, "a health check goes by TLS too: %s", healthy.err)
	for name, c := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Both":      {"Each side shows one that the other trusts.", append(shown, "--api-ca-file", ours.File), ""},
		"Untrusted": {"A CA of the system is not ours.", shown, "Name the CA of the engine's certificate with --api-ca-file or SLIPWAY_API_CA_FILE.\n"},
		"OtherCA":   {"Nor is another.", append(shown, "--api-ca-file", theirs.File), "certificate signed by unknown authority"},
		"NoCA":      {"A file that holds none.", append(shown, "--api-ca-file", key), "the CA of the engine, " + key + ", holds no certificate in PEM form"},
		"None":      {"The engine asks for one.", []string{"--api", server, "--api-ca-file", ours.File}, "does not answer: "},
		"PlainHTTP": {"Without TLS nobody would see it.", append(shown, "--api", f.URL), "are for TLS, and " + f.URL + " is without: name the engine with https://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, nil, append([]string{"service", "list"}, c.args...)...)
			require.Equal(t, c.want == "", got.code == app.ExitOK, "%s: %s", c.reason, got.err)
			require.Contains(t, got.err, c.want, c.reason)
		})
	}
}
