package kuscia

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/test/harness"
)

const secret = "a-token-of-this-test-with-32-or-more"

// lock requires the secret.
func lock(t *testing.T) auth.Lock {
	return auth.Lock{API: thisAPI, Label: "kuscia", Source: "its file", Header: "header `Token`",
		Token: harness.Token(t, secret)}
}

// send sends a request as JSON with these headers, "Name: value" each; "+Name: value" is another value of one.
func send(h http.Handler, method, host, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader("{}"))
	r.Header.Set("Content-Type", typeJSON)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if more, another := strings.CutPrefix(name, "+"); another {
			r.Header.Add(more, value)
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestHandler_GuardsEveryRoute iterates over the router's own routes, so that none is forgotten.
func TestHandler_GuardsEveryRoute(t *testing.T) {
	t.Parallel()
	h := NewHandler(sample(t).service(), Security{Token: lock(t),
		Hosts: auth.NewHosts(nil, []string{"kuscia.example"})})
	routes := h.echo.Routes()
	require.Len(t, routes, 12)
	const here, token = "127.0.0.1:8082", "Token: " + secret
	for _, route := range routes {
		for _, c := range []struct {
			reason, host string
			headers      []string
			status       int
		}{
			{"a page of another site", here, []string{token, "Origin: https://evil.example"}, 403},
			{"a page of another port", here, []string{token, "Origin: http://127.0.0.1:3000"}, 403},
			{"a page of another site, according to the browser", here, []string{token, "Sec-Fetch-Site: cross-site"},
				403},
			{"a page of another port, according to the browser", here, []string{token, "Sec-Fetch-Site: same-site"},
				403},
			{"a name that resolves to this machine", "evil.example:8082", []string{token}, 403},
			{"no token", here, nil, 401},
			{"a wrong token", here, []string{"Token: wrong"}, 401},
			{"a wrong token in the header of the HTTP API", here, []string{"Authorization: Bearer wrong"}, 401},
			{"the token after a guess", here, []string{"Token: wrong", "+Token: " + secret}, 401},
			{"the token in another scheme", here, []string{"Authorization: Basic " + secret}, 401},
			{"the token in the header of the HTTP API", here, []string{"Authorization: Bearer " + secret}, 200},
			{"a proxy adds the token to that of a client", here, []string{"Token: wrong",
				"Authorization: Bearer " + secret}, 200},
			{"the right token", here, []string{token}, 200},
			{"the right token, with an allowed host name", "kuscia.example", []string{token}, 200},
			{"a page of this engine", here, []string{token, "Origin: http://127.0.0.1:8082",
				"Sec-Fetch-Site: same-origin"}, 200},
		} {
			for _, path := range []string{route.Path, "/api/v1/nothing"} {
				want := c.status
				if path != route.Path && want == 200 {
					want = 404
				}
				answer := send(h, route.Method, c.host, path, c.headers...)
				require.Equal(t, want, answer.Code, "%s, %s: %s", path, c.reason, answer.Body)
				if want == 403 {
					require.Equal(t, "application/json; charset=utf-8", answer.Header().Get("Content-Type"))
					require.Contains(t, answer.Body.String(), `{"status":{"code":11100,"message":"`,
						"the refusal has the form of the API")
				}
			}
		}
	}
}

// Pages of any site may send text/plain, forms, and bodies without a type, without a CORS preflight.
func TestHandler_RefusesBrowserRequests_UnlessJSON(t *testing.T) {
	t.Parallel()
	party := `{"serving_id":"s9","initiator":"alice","parties":[{"domain_id":"alice","app_image":"sf-serving-image"}]}`
	for _, c := range []struct {
		reason, contentType, header string
		created                     bool
	}{
		{"curl and scripts send text/plain.", "text/plain", "User-Agent: curl/8.5.0", true},
		{"Scripts omit the type.", "", "User-Agent: python-requests/2.31", true},
		{"A browser with the origin of this engine.", "text/plain", "Origin: http://127.0.0.1", false},
		{"A browser without site headers.", "text/plain", "User-Agent: Mozilla/5.0 (X11; Linux x86_64)", false},
		{"A page of this engine.", "text/plain", "Sec-Fetch-Site: same-origin", false},
		{"A form.", "text/plain", "Sec-Fetch-Mode: navigate", false},
		{"A body without a type.", "", "Sec-Fetch-Mode: no-cors", false},
		{"A browser with a referrer.", "text/plain", "Referer: http://127.0.0.1/docs", false},
		{"A type that needs a CORS preflight.", "application/json", "Sec-Fetch-Site: same-origin", true},
	} {
		m := sample(t)
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+createPath, strings.NewReader(party))
		if c.contentType != "" {
			r.Header.Set("Content-Type", c.contentType)
		}
		name, value, _ := strings.Cut(c.header, ": ")
		r.Header.Set(name, value)
		answer := httptest.NewRecorder()
		handler(m).ServeHTTP(answer, r)
		require.Equal(t, http.StatusOK, answer.Code, c.reason)
		_, made := m.servings["s9"]
		require.Equal(t, c.created, made, "%s: %s", c.reason, answer.Body)
		if !c.created {
			require.Contains(t, answer.Body.String(),
				`{"status":{"code":11100,"message":"a browser sent this request, with the Content-Type`, c.reason)
		}
	}
}

// The HTTP API serves the same paths with the same handler, on its own connections.
func TestHandler_RequiresClientCertificate_OnEveryListener(t *testing.T) {
	t.Parallel()
	ours, theirs := harness.NewAuthority(t), harness.NewAuthority(t)
	cert, key := ours.Issue()
	security, err := LoadSecurity(MTLS, Files{Certificate: cert, Key: key, CA: ours.File,
		Token: t.TempDir() + "/token"}, auth.Lock{}, quiet)
	require.NoError(t, err)
	secret, err := security.Token.Token.Token()
	require.NoError(t, err)
	h := NewHandler(sample(t).service(), security)
	token := "Token: " + string(secret)
	plain := send(h, http.MethodPost, "127.0.0.1", "/healthZ", token)
	require.Equal(t, http.StatusForbidden, plain.Code, "port 8080 must not allow what port 8082 refuses: %s",
		plain.Body)
	require.Contains(t, plain.Body.String(), "requires a client certificate")

	for ca, want := range map[*harness.Authority]int{ours: http.StatusOK, theirs: http.StatusForbidden} {
		other, err := auth.LoadTLS("another API", quiet, cert, key, ca.File,
			tls.VerifyClientCertIfGiven)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(h)
		server.TLS = other.Config()
		server.StartTLS()
		t.Cleanup(server.Close)
		client := http.Client{Transport: &http.Transport{TLSClientConfig: ours.Client(ca)}}
		r, err := http.NewRequest(http.MethodPost, server.URL+"/healthZ", strings.NewReader("{}"))
		require.NoError(t, err)
		r.Header.Set("Token", string(secret))
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode, "a certificate verified by another listener counts if its CA is "+
			"this API's")
	}
}

// serveGRPC serves on a free port.
func serveGRPC(t *testing.T, server *grpc.Server) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}

func dialAs(t *testing.T, address, authority string) *grpc.ClientConn {
	t.Helper()
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if authority != "" {
		options = append(options, grpc.WithAuthority(authority))
	}
	conn, err := grpc.NewClient(address, options...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestGRPCServer_GuardsEveryMethod(t *testing.T) {
	t.Parallel()
	server := NewGRPCServer(sample(t).service(), Security{Token: lock(t),
		Hosts: auth.NewHosts(nil, []string{"kuscia.example"})})
	address := serveGRPC(t, server)
	methods := 0
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			methods++
			require.False(t, method.IsClientStream || method.IsServerStream,
				"%s: a stream bypasses the unary interceptors", method.Name)
			for _, c := range []struct {
				reason, authority string
				shown             []string
				want              codes.Code
			}{
				{"a foreign host", "evil.example:8083", []string{"token", secret}, codes.PermissionDenied},
				{"a page of another site", "", []string{"token", secret, "origin", "https://evil.example"},
					codes.PermissionDenied},
				{"a page of another site, according to the browser", "",
					[]string{"token", secret, "sec-fetch-site", "cross-site"}, codes.PermissionDenied},
				{"no token", "", nil, codes.Unauthenticated},
				{"a wrong token", "", []string{"token", "wrong"}, codes.Unauthenticated},
				{"a wrong token as the HTTP API has it", "", []string{"authorization", "Bearer wrong"},
					codes.Unauthenticated},
				{"the right token", "", []string{"token", secret}, codes.OK},
				{"the right token, as the HTTP API has it", "", []string{"authorization", "Bearer " + secret},
					codes.OK},
				{"with an allowed host name", "kuscia.example", []string{"token", secret}, codes.OK},
			} {
				ctx := metadata.AppendToOutgoingContext(t.Context(), c.shown...)
				// An empty message is valid for every type, and HealthRequest has no fields with which a response could
				// conflict.
				err := dialAs(t, address, c.authority).Invoke(ctx, "/"+service+"/"+method.Name,
					&kusciapb.HealthRequest{}, &kusciapb.HealthRequest{})
				require.Equal(t, c.want, status.Code(err), "%s/%s, %s: %v", service, method.Name, c.reason, err)
			}
		}
	}
	require.Equal(t, 12, methods)
}

func TestLimitCalls_RefusesCall_WhenTooManyOpen(t *testing.T) {
	t.Parallel()
	c := calls{most: 2, timeout: time.Hour}
	begin := func(ctx context.Context) error {
		_, err := c.begin(ctx, &tap.Info{})
		return err
	}
	first, end := context.WithCancel(t.Context())
	require.NoError(t, begin(first))
	require.NoError(t, begin(t.Context()))
	err := begin(t.Context())
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "one call too many")
	end()
	require.Eventually(t, func() bool { return begin(t.Context()) == nil }, 10*time.Second, time.Millisecond,
		"a call is admitted after another one has ended")
}

// hang begins a call that never sends its message, and returns the code that the server ends it with.
func hang(ctx context.Context, conn *grpc.ClientConn) codes.Code {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true},
		kusciapb.HealthService_HealthZ_FullMethodName)
	if err == nil {
		err = stream.RecvMsg(&kusciapb.HealthResponse{})
	}
	return status.Code(err)
}

// TestGRPCServer_StrangersOccupyNothing: calls without the token that never end leave all 256 to those with it.
func TestGRPCServer_StrangersOccupyNothing(t *testing.T) {
	t.Parallel()
	address := serveGRPC(t, NewGRPCServer(sample(t).service(), Security{Token: lock(t)}))
	const strangers, connections = 300, 3
	ended := make(chan codes.Code, strangers)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for range connections {
		conn := dialAs(t, address, "")
		for range strangers / connections {
			go func() { ended <- hang(ctx, conn) }()
		}
	}
	refused := 0
	for range strangers {
		if <-ended == codes.Unauthenticated {
			refused++
		}
		if refused == 0 {
			break // they hang
		}
	}
	owner := metadata.AppendToOutgoingContext(t.Context(), "token", secret)
	_, err := kusciapb.NewHealthServiceClient(dialAs(t, address, "")).HealthZ(owner, &kusciapb.HealthRequest{})
	require.NoError(t, err, "the client with the token")
	require.Equal(t, strangers, refused)
}

func TestCalls_LeaveRoomForOtherAddresses_WithoutToken(t *testing.T) {
	t.Parallel()
	proxies, err := limits.NewProxies([]string{"10.0.0.7"})
	require.NoError(t, err)
	c := calls{security: Security{Proxies: proxies}, most: 8, timeout: time.Hour, byAddress: limits.NewByAddress(8)}
	proxy := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.ParseIP("10.0.0.7"), Port: 1}})
	begin := func(client string) codes.Code {
		_, err := c.begin(proxy, &tap.Info{Header: metadata.Pairs("x-forwarded-for", client)})
		return status.Code(err)
	}
	for n, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		require.Equal(t, want, begin("203.0.113.5"), n)
	}
	require.Equal(t, codes.OK, begin("203.0.113.6"), "a client of another address")
}

// A client that forges X-Forwarded-For does not write into the log.
func TestHandler_LogsTheRealClient(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	proxies, err := limits.NewProxies([]string{"10.0.0.0/8"})
	require.NoError(t, err)
	service := NewService(sample(t), slog.New(slog.NewTextHandler(&text, nil)))
	for peer, want := range map[string]string{"203.0.113.5:1": "203.0.113.5", "10.0.0.7:1": "198.51.100.23"} {
		text.Reset()
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+queryPath, strings.NewReader("{}"))
		r.RemoteAddr = peer
		r.Header.Set("X-Forwarded-For", "198.51.100.23")
		NewHandler(service, Security{Proxies: proxies}).ServeHTTP(httptest.NewRecorder(), r)
		require.Contains(t, text.String(), " from="+want+"\n")
	}
}

// Wrong tokens over HTTP and gRPC count together, and the right one always passes.
func TestKuscia_LimitsWrongTokens(t *testing.T) {
	t.Parallel()
	failures, err := auth.NewFailures(quiet, prometheus.NewRegistry())
	require.NoError(t, err)
	security := Security{Token: lock(t)}
	security.Token.Failures = failures
	s := serve(t, sample(t), security)
	for n := range 30 {
		code, err := s.overHTTP(t, nil, "wrong")
		require.NoError(t, err)
		if n < 20 {
			require.Equal(t, http.StatusUnauthorized, code, n)
		} else {
			require.Equal(t, http.StatusTooManyRequests, code, n)
		}
	}
	require.Equal(t, codes.ResourceExhausted, s.overGRPC(t, nil, "wrong"))
	require.Equal(t, codes.Unauthenticated, s.overGRPC(t, nil, ""), "no token is no guess")
	require.Equal(t, codes.OK, s.overGRPC(t, nil, secret))
	code, err := s.overHTTP(t, nil, secret)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, code)
}

func TestGRPCServer_EndsCall_WhenMessageNeverArrives(t *testing.T) {
	t.Parallel()
	server := grpc.NewServer(callLimits(Security{}, 2, 300*time.Millisecond)...)
	kusciapb.RegisterHealthServiceServer(server, sample(t).service())
	stream, err := dialAs(t, serveGRPC(t, server), "").NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true},
		kusciapb.HealthService_HealthZ_FullMethodName)
	require.NoError(t, err)
	require.Equal(t, codes.DeadlineExceeded, status.Code(stream.RecvMsg(&kusciapb.HealthResponse{})),
		"the server does not wait forever")
}
