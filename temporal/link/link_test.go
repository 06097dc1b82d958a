package link

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestOptionsUsesTLS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		o      Options
		want   bool
	}{
		{"Nothing requires it.", Options{}, false},
		{"It is requested.", Options{TLS: TLSOn}, true},
		{"A CA.", Options{TLS: TLSAuto, CAFile: "ca"}, true},
		{"A certificate.", Options{TLS: TLSAuto, CertFile: "cert", KeyFile: "key"}, true},
		{"A server name.", Options{TLS: TLSAuto, ServerName: "temporal.example"}, true},
		{"An API key must not be sent in clear text.", Options{TLS: TLSAuto, APIKeyFile: "key"}, true},
		{"Unless a proxy encrypts.", Options{TLS: TLSOff, APIKeyFile: "key"}, false},
	} {
		require.Equal(t, c.want, c.o.usesTLS(), c.reason)
	}
}

func TestApply_RejectsInvalidSettings(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{CertFile: "cert"}, "belong together"},
		{Options{TLS: TLSOff, CAFile: "ca"}, "--temporal-tls=off contradicts"},
		{Options{CAFile: missing}, "--temporal-ca-file cannot be read: open " + missing},
		{Options{CAFile: empty}, empty + ", holds no certificate"},
		{Options{CertFile: empty, KeyFile: empty}, "--temporal-cert-file " + empty},
		{Options{APIKeyFile: missing}, "--temporal-api-key-file: open " + missing},
		{Options{APIKeyFile: empty}, empty + " is empty"},
		{Options{CodecRequire: true}, "--codec-require needs the payload keys: set --temporal-codec-key-dir"},
		{Options{CodecKeyDir: missing}, "--temporal-codec-key-dir: stat " + missing},
	} {
		require.ErrorContains(t, Apply(c.o, &client.Options{}), c.says)
	}
}

func TestPermissionErrorNamesIdentity(t *testing.T) {
	t.Parallel()
	refuse := func(code codes.Code) grpc.UnaryInvoker {
		return func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			return status.Error(code, "Request unauthorized.")
		}
	}
	ask := func(o Options, code codes.Code) error {
		return explainRefusals(o)(context.Background(),
			"/temporal.api.workflowservice.v1.WorkflowService/PollWorkflowTaskQueue", nil, nil, nil, refuse(code))
	}
	err := ask(Options{Address: "t:7233", APIKeyFile: "/run/key"}, codes.PermissionDenied)
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	require.ErrorContains(t, err, "the Temporal server at t:7233 rejected PollWorkflowTaskQueue; this process uses "+
		"the API key in /run/key (--temporal-api-key-file)")
	require.ErrorContains(t, ask(Options{CertFile: "c.pem"}, codes.Unauthenticated),
		"uses the client certificate c.pem")
	require.ErrorContains(t, ask(Options{}, codes.Unauthenticated),
		"has no API key (--temporal-api-key-file) and no client certificate")
	require.NotContains(t, ask(Options{APIKeyFile: "/run/key"}, codes.Unavailable).Error(), "/run/key",
		"other errors are not about permissions")
}

// A server that requires TLS closes an unencrypted connection; one without TLS answers a handshake with something else.
func TestTLSMismatchIsExplained(t *testing.T) {
	t.Parallel()
	serve := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 1024))
				_, _ = c.Write([]byte(answer))
				_ = c.Close()
			}
		}()
		return l.Addr().String()
	}
	says := func(o Options, want string) {
		options := client.Options{HostPort: o.Address}
		require.NoError(t, Apply(o, &options))
		c, err := client.NewLazyClient(options)
		require.NoError(t, err)
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err = c.CheckHealth(ctx, &client.CheckHealthRequest{})
		require.ErrorContains(t, err, want)
	}
	says(Options{Address: serve("")}, "if it requires TLS, set --temporal-tls=on")
	says(Options{Address: serve("HTTP/1.1 400 Bad Request\r\n\r\n"), TLS: TLSOn},
		"does not use TLS: set --temporal-tls=off")
}
