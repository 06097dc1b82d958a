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

// locked is an API that requires a token.
func locked(t *testing.T, token string) *fakeAPI {
	t.Helper()
	f := newFakeAPI(t)
	f.on("GET /api/v1/services", func(r request) answer {
		if r.header.Get("Authorization") != "Bearer "+token {
			return problem(http.StatusUnauthorized,
				"the token is wrong: send what the engine's --api-token-file contains")
		}
		return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{}})
	})
	return f
}

func TestAPIToken(t *testing.T) {
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
		"Right": {"The content of the file is sent.", []string{"--api-token-file", file("secret")}, app.ExitOK, ""},
		"NewLine": {"A trailing line break is ignored.", []string{"--api-token-file", file("secret\n")}, app.ExitOK,
			""},
		"None": {"The error says what to do.", nil, app.ExitFailure,
			"error: the token is wrong: send what the engine's --api-token-file contains\nSet the engine's token " +
				"with --api-token-file or SLIPWAY_API_TOKEN_FILE, or a client certificate with --api-cert-file and " +
				"--api-key-file.\n"},
		"Wrong": {"So does the error for a wrong token.", []string{"--api-token-file", file("other")},
			app.ExitFailure, "Set the engine's token with"},
		"Empty": {"An empty file is rejected.", []string{"--api-token-file", file("")}, app.ExitFailure,
			"is empty: write a token to it, or leave out the setting"},
		"Missing": {"A missing file is named.", []string{"--api-token-file", missing}, app.ExitFailure,
			"--api-token-file: open " + missing},
		"NoCert": {"A missing certificate file is named.", []string{"--api-cert-file", "c", "--api-key-file", "k"},
			app.ExitFailure,
			"--api-cert-file: cannot load the client certificate: open c"},
		"Half": {"A certificate without its key.", []string{"--api-cert-file", "c"}, app.ExitFailure,
			"--api-cert-file and --api-key-file must be set together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, f, append([]string{"service", "list"}, c.args...)...)
			require.Equal(t, c.code, got.code, "%s: %s", c.reason, got.err)
			require.Contains(t, got.err, c.want, c.reason)
		})
	}
}

func TestForbidden_HintsAtAllowedHosts(t *testing.T) {
	t.Parallel()
	f := newFakeAPI(t)
	f.on("GET /api/v1/services", func(request) answer {
		return problem(http.StatusForbidden, "the request is addressed to the host x")
	})
	require.Contains(t, slipway(t, f, "service", "list").err,
		"Use another address of the engine with --api or SLIPWAY_API")
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
	require.Equal(t, app.ExitOK, healthy.code, "the health check supports TLS: %s", healthy.err)
	for name, c := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Both": {"Both certificates are trusted.", append(shown, "--api-ca-file", ours.File), ""},
		"Untrusted": {"The system's CAs do not include the engine's.", shown,
			"Set the CA of the engine's certificate with --api-ca-file or SLIPWAY_API_CA_FILE.\n"},
		"OtherCA": {"Another CA is not trusted.", append(shown, "--api-ca-file", theirs.File),
			"certificate signed by unknown authority"},
		"NoCA": {"A file without a certificate is rejected.", append(shown, "--api-ca-file", key),
			"the CA of the engine, " + key + ", holds no certificate in PEM form"},
		"None": {"The engine requires a client certificate.",
			[]string{"--api", server, "--api-ca-file", ours.File}, "does not respond: "},
		"PlainHTTP": {"Without TLS the certificate would not be used.", append(shown, "--api", f.URL),
			"require TLS, but the engine's address is " + f.URL + ": use an https:// address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slipway(t, nil, append([]string{"service", "list"}, c.args...)...)
			require.Equal(t, c.want == "", got.code == app.ExitOK, "%s: %s", c.reason, got.err)
			require.Contains(t, got.err, c.want, c.reason)
		})
	}
}
