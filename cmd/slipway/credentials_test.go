package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/test/harness"
)

const createServing = "/api/v1/serving/create"

// createOverGRPC creates an empty serving with these metadata; a request that passes is invalid.
func createOverGRPC(t *testing.T, address string, encryption credentials.TransportCredentials,
	pairs ...string) (codes.Code, int32) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(encryption))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), pairs...), 20*time.Second)
	defer cancel()
	answer, err := kusciapb.NewServingServiceClient(conn).CreateServing(ctx, &kusciapb.CreateServingRequest{})
	return status.Code(err), answer.GetStatus().GetCode()
}

// TestKuscia_RequiresTokenOfAPI_WithoutOneOfItsOwn: the listeners without TLS, which are on by default, are no way
// around the token of the HTTP API.
func TestKuscia_RequiresTokenOfAPI_WithoutOneOfItsOwn(t *testing.T) {
	t.Parallel()
	on := assemble(t, settings.Settings{APITokenFile: write(t, "token", []byte(secret))})
	for _, c := range []struct {
		reason string
		header string
		status int
		code   codes.Code
	}{
		{"no token", "Accept: */*", http.StatusUnauthorized, codes.Unauthenticated},
		{"a wrong token", "Token: wrong", http.StatusUnauthorized, codes.Unauthenticated},
		{"a wrong bearer token", "Authorization: Bearer wrong", http.StatusUnauthorized, codes.Unauthenticated},
		{"the token as Kuscia's clients send it", "Token: " + secret, http.StatusOK, codes.OK},
		{"the token as Slipway's clients send it", "Authorization: Bearer " + secret, http.StatusOK, codes.OK},
	} {
		code, body := request(t, http.MethodPost, on.kuscia+createServing, c.header)
		require.Equal(t, c.status, code, c.reason)
		name, value, _ := strings.Cut(c.header, ": ")
		remote, answer := createOverGRPC(t, on.grpc, insecure.NewCredentials(), strings.ToLower(name), value)
		require.Equal(t, c.code, remote, c.reason)
		if c.status == http.StatusOK {
			require.Contains(t, body, `"code":11100`, c.reason)
			require.EqualValues(t, 11100, answer, c.reason)
		} else {
			require.Empty(t, body, "Kuscia refuses without a body")
		}
	}
	open := assemble(t, settings.Settings{})
	code, _ := request(t, http.MethodPost, open.kuscia+createServing)
	require.Equal(t, http.StatusOK, code, "an open API has open listeners")
}

// Without TLS, no listener can ask for the client certificates that the API requires: that is said.
func TestKusciaSecurity_Warns_WhenOnlyAPIAsksForCertificates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		guard  auth.Guard
		listen string
		warns  bool
	}{
		{auth.Guard{Certificate: true}, "127.0.0.1:8082", true},
		{auth.Guard{Certificate: true}, "", false},
		{auth.Guard{}, "127.0.0.1:8082", false},
		{auth.Guard{Certificate: true, Token: auth.Lock{Token: harness.Token(t, secret)}}, "127.0.0.1:8082", false},
	} {
		var log bytes.Buffer
		_, err := newKusciaSecurity(settings.Settings{KusciaProtocol: "NOTLS", KusciaListen: c.listen}, c.guard,
			slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		require.Equal(t, c.warns, strings.Contains(log.String(), "choose --kuscia-protocol MTLS"), "%+v", c)
	}
}

func TestShortTokens_AreRefusedAtStart(t *testing.T) {
	t.Parallel()
	short := write(t, "token", []byte(strings.Repeat("x", 31)))
	_, err := newGuard(settings.Settings{APITokenFile: short}, nil)
	require.ErrorContains(t, err, "--api-token-file: the token file of the HTTP API, "+short+
		", holds a token of 31 characters, which could be guessed: write one of at least 32 characters")
	_, err = newPackageServer(Process{Settings: settings.Settings{PackageDir: t.TempDir(), PackageTokenFile: short},
		Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "--package-token-file: the token file of the package store, ")
	_, err = newGuard(settings.Settings{APITokenFile: filepath.Join(t.TempDir(), "made")}, nil)
	require.NoError(t, err, "a created token is long enough")
}

// TestWrongTokens_GetRefused: after 20 wrong tokens, an address gets 429 for others on all listeners together.
func TestWrongTokens_GetRefused(t *testing.T) {
	t.Parallel()
	failures, err := auth.NewFailures(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	on := assembleWith(t, settings.Settings{APITokenFile: write(t, "token", []byte(secret))}, failures)
	for n := range 30 {
		answer := get(t, http.DefaultClient, on.api+"/openapi.yaml", fmt.Sprint("Bearer guess-", n))
		if n < 20 {
			require.Equal(t, http.StatusUnauthorized, answer.StatusCode, n)
			continue
		}
		require.Equal(t, http.StatusTooManyRequests, answer.StatusCode, n)
		require.Equal(t, "60", answer.Header.Get("Retry-After"))
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "/docs#problem-too-many-failures")
	}
	code, _ := request(t, http.MethodPost, on.kuscia+createServing, "Token: wrong")
	require.Equal(t, http.StatusTooManyRequests, code)
	require.Equal(t, http.StatusTooManyRequests, get(t, http.DefaultClient, on.ui, "Basic Ondyb25n").StatusCode)
	require.Equal(t, http.StatusOK, get(t, http.DefaultClient, on.api+"/openapi.yaml", "Bearer "+secret).StatusCode,
		"the right token from the same address")
	code, _ = request(t, http.MethodPost, on.kuscia+createServing, "Token: "+secret)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, http.StatusOK, get(t, http.DefaultClient, on.api+"/healthz", "Bearer wrong").StatusCode,
		"probes need no token")
}

// get sends a request with a header Authorization.
func get(t *testing.T, client *http.Client, address, authorization string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", authorization)
	answer, err := client.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// TestCredentials_AreReadAgain: a new token and a new certificate hold without a restart, and the old ones no longer.
func TestCredentials_AreReadAgain(t *testing.T) {
	t.Parallel()
	first, second := harness.NewAuthority(t), harness.NewAuthority(t)
	cert, key := first.Issue()
	token := write(t, "token", []byte(secret))
	on := assemble(t, settings.Settings{APITokenFile: token, APICertFile: cert, APIKeyFile: key, KusciaProtocol: "TLS",
		KusciaCertFile: cert, KusciaKeyFile: key, KusciaTokenFile: token})
	web := "https://" + strings.TrimPrefix(on.kuscia, "http://")
	// all asks with new connections that trust one authority; it returns the codes of API, Kuscia over HTTP and over
	// gRPC, and 0 where the connection fails.
	all := func(trusted *harness.Authority, token string) (codes [3]int) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted.Client(nil), DisableKeepAlives: true,
			ForceAttemptHTTP2: true}}
		for n, address := range []string{on.api + "/openapi.yaml", web + "/healthZ"} {
			r, err := http.NewRequestWithContext(t.Context(), []string{"GET", "POST"}[n], address, strings.NewReader("{}"))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+token)
			r.Header.Set("Token", token)
			if answer, err := client.Do(r); err == nil {
				codes[n] = answer.StatusCode
				require.Equal(t, 2, answer.ProtoMajor, "HTTP/2 is offered as before")
				require.NoError(t, answer.Body.Close())
			}
		}
		code, _ := createOverGRPC(t, on.grpc, credentials.NewTLS(trusted.Client(nil)), "token", token)
		codes[2] = int(code)
		return codes
	}
	require.Equal(t, [3]int{200, 200, int(codes.OK)}, all(first, secret))
	changed := strings.Repeat("another-token", 3)
	require.NoError(t, os.WriteFile(token, []byte(changed), 0o600))
	require.Equal(t, [3]int{401, 401, int(codes.Unauthenticated)}, all(first, secret), "the old token")
	require.Equal(t, [3]int{200, 200, int(codes.OK)}, all(first, changed), "the new token")

	require.NoError(t, os.WriteFile(key, []byte("half a key"), 0o600))
	time.Sleep(1100 * time.Millisecond) // the files are looked at once a second
	require.Equal(t, [3]int{200, 200, int(codes.OK)}, all(first, changed), "while the pair is being replaced")
	newCert, newKey := second.Issue()
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	require.Eventually(t, func() bool { return all(second, changed) == [3]int{200, 200, int(codes.OK)} },
		20*time.Second, 100*time.Millisecond, "the new certificate")
	require.Equal(t, [3]int{0, 0, int(codes.Unavailable)}, all(first, changed), "the old certificate is not served")
}
