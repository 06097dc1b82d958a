package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/store"
)

func TestCheckKuscia(t *testing.T) {
	t.Parallel()
	all := settings.Settings{KusciaListen: "0.0.0.0:8082", KusciaGRPCListen: "[::]:8083", KusciaCertFile: "c",
		KusciaKeyFile: "k",
		KusciaCAFile:  "a", KusciaTokenFile: "t"}
	with := func(change func(*settings.Settings)) settings.Settings {
		s := all
		change(&s)
		return s
	}
	bare := settings.Settings{KusciaProtocol: "NOTLS", KusciaListen: "127.0.0.1:8082",
		KusciaGRPCListen: "localhost:8083"}
	cases := map[string]struct {
		reason string
		s      settings.Settings
		want   string
	}{
		"Default": {"Loopback needs no authentication.", bare, ""},
		"IPv6":    {"::1 is loopback.", settings.Settings{KusciaProtocol: "NOTLS", KusciaListen: "[::1]:8082"}, ""},
		"Nowhere": {"An API that is not served needs no authentication.", settings.Settings{KusciaProtocol: "NOTLS"},
			""},
		"Open": {"Other addresses without authentication are rejected.",
			settings.Settings{KusciaProtocol: "NOTLS", KusciaListen: ":8082"},
			"--kuscia-listen :8082 is reachable from other machines"},
		"OpenGRPC": {"The same for gRPC.", settings.Settings{KusciaProtocol: "NOTLS", KusciaListen: "127.0.0.1:8082",
			KusciaGRPCListen: "10.0.0.1:8083"}, "--kuscia-grpc-listen 10.0.0.1:8083 is reachable from other machines"},
		"Said": {"--kuscia-insecure allows it.", settings.Settings{KusciaProtocol: "NOTLS", KusciaListen: ":8082",
			KusciaInsecure: true}, ""},
		"MTLS": {"All files are set.", with(func(s *settings.Settings) { s.KusciaProtocol = "MTLS" }), ""},
		"NoCert": {"The missing flag is named.",
			with(func(s *settings.Settings) {
				s.KusciaProtocol, s.KusciaCertFile = "TLS", ""
			}), "--kuscia-protocol TLS needs --kuscia-cert-file"},
		"NoKey": {"The missing flag is named.",
			with(func(s *settings.Settings) {
				s.KusciaProtocol, s.KusciaKeyFile = "MTLS", ""
			}), "--kuscia-protocol MTLS needs --kuscia-key-file"},
		"NoCA": {"The missing flag is named.",
			with(func(s *settings.Settings) {
				s.KusciaProtocol, s.KusciaCAFile = "MTLS", ""
			}), "--kuscia-protocol MTLS needs --kuscia-ca-file"},
		"NoToken": {"The missing flag is named.",
			with(func(s *settings.Settings) { s.KusciaProtocol, s.KusciaCAFile, s.KusciaTokenFile = "TLS", "", "" }),
			"--kuscia-protocol TLS needs --kuscia-token-file"},
		"CAOfTLS": {"With TLS the CA would not be used.",
			with(func(s *settings.Settings) {
				s.KusciaProtocol = "TLS"
			}), "--kuscia-ca-file is not used with --kuscia-protocol TLS"},
		"TokenOfNOTLS": {"With NOTLS the token would not be used.",
			settings.Settings{KusciaProtocol: "NOTLS", KusciaTokenFile: "t"},
			"--kuscia-token-file is not used with --kuscia-protocol NOTLS"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkKuscia(c.s)
			if c.want == "" {
				require.NoError(t, err, c.reason)
			} else {
				require.ErrorContains(t, err, c.want, c.reason)
			}
		})
	}
}

// kusciaOn returns the parts of listeners with these settings and an unreachable home cluster.
func kusciaOn(t *testing.T, s settings.Settings) kusciaParts {
	t.Helper()
	store, err := store.New(&rest.Config{Host: "http://127.0.0.1:1"}, "", "")
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	service := kuscia.NewService(store, log)
	return kusciaParts{Process: Process{Settings: s, Log: log, Down: shutdowner(func() error { return nil })},
		Service: service, Handler: kuscia.NewHandler(service, kuscia.Security{})}
}

type shutdowner func() error

func (s shutdowner) Shutdown(...fx.ShutdownOption) error { return s() }

func TestKusciasListeners(t *testing.T) {
	t.Parallel()
	p := kusciaOn(t, settings.Settings{KusciaListen: "127.0.0.1:0", KusciaGRPCListen: "127.0.0.1:0"})
	web, err := newKusciaHTTP(p)
	require.NoError(t, err)
	remote, err := newKusciaGRPC(p)
	require.NoError(t, err)
	for _, k := range []*listener{web, remote} {
		require.NoError(t, k.start(t.Context()))
	}
	address := web.Addr().String()
	answer, err := http.Post("http://"+address+"/api/v1/serving/query", "application/json", strings.NewReader(`{}`))
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	//nolint:testifylint // clients compare the exact bytes
	require.Equal(t, `{"status":{"code":11100,"message":"serving id can not be empty","details":[]},"data":null}`,
		string(body))
	conn, err := grpc.NewClient(remote.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	shown, err := kusciapb.NewServingServiceClient(conn).QueryServing(t.Context(), &kusciapb.QueryServingRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 11100, shown.GetStatus().GetCode())

	_, err = newKusciaHTTP(kusciaOn(t, settings.Settings{KusciaListen: address}))
	require.ErrorContains(t, err, "cannot serve Kuscia's API over HTTP: listen tcp "+address)
	require.ErrorContains(t, err, "choose another address with --kuscia-listen (SLIPWAY_KUSCIA_LISTEN), or disable "+
		"it with --kuscia-listen=")
	_, err = newKusciaGRPC(kusciaOn(t, settings.Settings{KusciaGRPCListen: remote.Addr().String()}))
	require.ErrorContains(t, err, "choose another address with --kuscia-grpc-listen (SLIPWAY_KUSCIA_GRPC_LISTEN), or "+
		"disable it with "+
		"--kuscia-grpc-listen=")

	for _, k := range []*listener{web, remote} {
		require.NoError(t, k.stop(context.Background()))
		_, err := net.Dial("tcp", k.Addr().String())
		require.Error(t, err, "the listener is closed")
	}
}

func TestKusciaListeners_AreNil_WithoutAddress(t *testing.T) {
	t.Parallel()
	p := kusciaOn(t, settings.Settings{})
	web, err := newKusciaHTTP(p)
	require.NoError(t, err)
	remote, err := newKusciaGRPC(p)
	require.NoError(t, err)
	for _, k := range []*listener{web, remote} {
		require.Nil(t, k, "no listener without an address")
	}
}
