package kuscia

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/test/harness"
)

var quiet = slog.New(slog.DiscardHandler)

// testServer is Kuscia's API over HTTP and gRPC, with the settings of its listeners.
type testServer struct {
	web, remote string
}

func serve(t *testing.T, m *memory, security Security) testServer {
	t.Helper()
	service := m.service()
	web := httptest.NewUnstartedServer(NewHandler(service, security))
	if security.TLS != nil {
		web.TLS = security.TLS.Config()
		web.StartTLS()
	} else {
		web.Start()
	}
	t.Cleanup(web.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	remote := NewGRPCServer(service, security)
	go func() { _ = remote.Serve(listener) }()
	t.Cleanup(remote.Stop)
	return testServer{web: web.URL, remote: listener.Addr().String()}
}

// overHTTP returns the status of a request; an error is one of the connection.
func (s testServer) overHTTP(t *testing.T, config *tls.Config, token string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.web+"/healthZ", strings.NewReader("{}"))
	require.NoError(t, err)
	if token != "" {
		r.Header.Set("Token", token)
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	if answer.StatusCode == http.StatusOK {
		require.Contains(t, string(body), `"ready":true`)
	} else {
		require.Empty(t, body)
	}
	return answer.StatusCode, nil
}

func (s testServer) dial(t *testing.T, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(s.remote, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s testServer) overGRPC(t *testing.T, config *tls.Config, token string) codes.Code {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	answer, err := kusciapb.NewHealthServiceClient(s.dial(t, config)).HealthZ(ctx, &kusciapb.HealthRequest{})
	if err == nil {
		require.True(t, answer.GetData().GetReady())
	}
	return status.Code(err)
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	ours, theirs := harness.NewAuthority(t), harness.NewAuthority(t)
	cert, key := ours.Issue()
	token := filepath.Join(t.TempDir(), "token")
	files := Files{Certificate: cert, Key: key, CA: ours.File, Token: token}
	cases := map[string]struct {
		reason    string
		protocol  Protocol
		client    *tls.Config
		token     bool
		connected bool
		permitted bool
	}{
		"Plain":       {"Neither TLS nor a token.", NOTLS, nil, false, true, true},
		"PlainToken":  {"A superfluous token is ignored.", NOTLS, nil, true, true, true},
		"TLS":         {"TLS with the token.", TLS, ours.Client(nil), true, true, true},
		"TLSNoToken":  {"Without the token, requests are refused.", TLS, ours.Client(nil), false, true, false},
		"TLSPlain":    {"Connections without TLS are refused.", TLS, nil, true, false, false},
		"TLSStranger": {"The client trusts only another CA.", TLS, theirs.Client(nil), true, false, false},
		"MTLS": {"A client certificate of the CA, and the token.", MTLS, ours.Client(ours), true, true,
			true},
		"MTLSNoToken":     {"Only the certificate.", MTLS, ours.Client(ours), false, true, false},
		"MTLSNoCert":      {"Only the token.", MTLS, ours.Client(nil), true, false, false},
		"MTLSForeignCert": {"A client certificate of another CA.", MTLS, ours.Client(theirs), true, false, false},
	}
	secret := ""
	for _, protocol := range []Protocol{TLS, MTLS} {
		security, err := LoadSecurity(protocol, files, auth.Lock{}, quiet)
		require.NoError(t, err)
		token, err := security.Token.Token.Token()
		require.NoError(t, err)
		require.Len(t, token, 32)
		require.True(t, secret == "" || secret == string(token), "an existing token is kept")
		secret = string(token)
	}
	info, err := os.Stat(token)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm(), "only the owner can read the token")
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			security, err := LoadSecurity(c.protocol, files, auth.Lock{}, quiet)
			require.NoError(t, err)
			s := serve(t, sample(t), security)
			shown := ""
			if c.token {
				shown = secret
			}
			code, err := s.overHTTP(t, c.client, shown)
			remote := s.overGRPC(t, c.client, shown)
			switch {
			case c.permitted:
				require.NoError(t, err, c.reason)
				require.Equal(t, http.StatusOK, code, c.reason)
				require.Equal(t, codes.OK, remote, c.reason)
			case c.connected:
				require.NoError(t, err, c.reason)
				require.Equal(t, http.StatusUnauthorized, code, c.reason)
				require.Equal(t, codes.Unauthenticated, remote, c.reason)
			default:
				// net/http answers plain HTTP on a TLS port with a 400
				require.True(t, err != nil || code == http.StatusBadRequest, "%s: %d", c.reason, code)
				require.Equal(t, codes.Unavailable, remote, c.reason)
			}
		})
	}
}

func TestOperationsOverGRPC(t *testing.T) {
	t.Parallel()
	m := sample(t)
	conn := serve(t, m, Security{}).dial(t, nil)
	servings, images := kusciapb.NewServingServiceClient(conn), kusciapb.NewAppImageServiceClient(conn)
	ctx := t.Context()

	made, err := images.CreateAppImage(ctx, &kusciapb.CreateAppImageRequest{Name: "app",
		Image:           &kusciapb.AppImageInfo{Name: "app", Tag: "v1"},
		DeployTemplates: []*kusciapb.DeployTemplate{{Name: "t", Containers: []*kusciapb.Container{{Name: "c"}}}}})
	require.NoError(t, err)
	require.Equal(t, "success", made.GetStatus().GetMessage())
	list, err := images.ListAppImage(ctx, &kusciapb.ListAppImageRequest{PageSize: 1})
	require.NoError(t, err)
	require.Equal(t, "app", list.GetData().GetAppimageList()[0].GetName())

	created, err := servings.CreateServing(ctx, &kusciapb.CreateServingRequest{ServingId: "s1", Initiator: "alice",
		Parties: []*kusciapb.ServingParty{{DomainId: "alice", AppImage: "app"}}})
	require.NoError(t, err)
	require.Equal(t, "success", created.GetStatus().GetMessage())
	queried, err := servings.QueryServing(ctx, &kusciapb.QueryServingRequest{ServingId: "s1"})
	require.NoError(t, err)
	require.Equal(t, "Pending", queried.GetData().GetStatus().GetState())
	batch, err := servings.BatchQueryServingStatus(ctx,
		&kusciapb.BatchQueryServingStatusRequest{ServingIds: []string{"s1"}})
	require.NoError(t, err)
	require.Len(t, batch.GetData().GetServings(), 1)
	updated, err := servings.UpdateServing(ctx, &kusciapb.UpdateServingRequest{ServingId: "s1",
		ServingInputConfig: "new"})
	require.NoError(t, err)
	require.Zero(t, updated.GetStatus().GetCode())
	deleted, err := servings.DeleteServing(ctx, &kusciapb.DeleteServingRequest{ServingId: "s1"})
	require.NoError(t, err)
	require.Zero(t, deleted.GetStatus().GetCode())

	missing, err := servings.QueryServing(ctx, &kusciapb.QueryServingRequest{ServingId: "s1"})
	require.NoError(t, err, "the outcome is in the response, as over HTTP")
	require.EqualValues(t, 11601, missing.GetStatus().GetCode())
	empty, err := servings.CreateServing(ctx, &kusciapb.CreateServingRequest{Parties: []*kusciapb.ServingParty{nil}})
	require.NoError(t, err)
	require.Equal(t, "serving id can not be empty", empty.GetStatus().GetMessage())

	large := strings.Repeat("x", 1<<20)
	require.Equal(t, codes.OK, status.Code(updateConfig(ctx, images, large)), "1 MiB and more")
	require.Equal(t, codes.ResourceExhausted, status.Code(updateConfig(ctx, images, large+large)),
		"a larger request is refused")

	m.mu.Lock()
	m.panics = true
	m.mu.Unlock()
	_, err = servings.QueryServing(ctx, &kusciapb.QueryServingRequest{ServingId: "s1"})
	require.Equal(t, codes.Internal, status.Code(err), "the process continues")
	require.Contains(t, err.Error(), "doBizProcess panic, err: broken")
}

func updateConfig(ctx context.Context, images kusciapb.AppImageServiceClient, text string) error {
	_, err := images.UpdateAppImage(ctx, &kusciapb.UpdateAppImageRequest{Name: "app",
		Image:           &kusciapb.AppImageInfo{Name: "app", Tag: "v1"},
		ConfigTemplates: map[string]string{"a": text}})
	return err
}

func TestLoadSecurity_ReportsInvalidFiles(t *testing.T) {
	t.Parallel()
	ca := harness.NewAuthority(t)
	cert, key := ca.Issue()
	text := func(content string) string {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	missing := filepath.Join(t.TempDir(), "none", "file")
	good := text(secret)
	cases := map[string]struct {
		reason string
		files  Files
		want   string
	}{
		"NoCertificate": {"A missing file.", Files{missing, key, ca.File, good},
			"the certificate of Kuscia's API cannot be used: "},
		"OtherKey": {"A key of another certificate.", Files{cert, ca.File, ca.File, good},
			"the certificate of Kuscia's API cannot be used: "},
		"NoCA": {"No CA.", Files{cert, key, missing, good},
			"the CA of the clients of Kuscia's API cannot be read: "},
		"BadCA": {"No certificate in it.", Files{cert, key, good, good}, "holds no certificate in PEM form"},
		"NoFolder": {"A token file that cannot be created.", Files{cert, key, ca.File, missing},
			"the token file of Kuscia's API cannot be created: "},
		"EmptyToken": {"An empty token would allow all requests.", Files{cert, key, ca.File, text("")},
			"is empty: write a token to it, or delete it to create a new one"},
		"NewLine": {"A header cannot contain a new line: no request could be authorised.",
			Files{cert, key, ca.File, text(secret + "\n")}, "begins or ends with a blank or a new line"},
		"ShortToken": {"A short token could be guessed.", Files{cert, key, ca.File, text(secret[:31])},
			"holds a token of 31 characters, which could be guessed: write one of at least 32 characters"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := LoadSecurity(MTLS, c.files, auth.Lock{}, quiet)
			require.ErrorContains(t, err, c.want, c.reason)
		})
	}
	security, err := LoadSecurity(TLS, Files{Certificate: cert, Key: key, Token: good}, auth.Lock{}, quiet)
	require.NoError(t, err)
	token, err := security.Token.Token.Token()
	require.NoError(t, err)
	require.EqualValues(t, secret, token, "an existing token is used unchanged")
}
