package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/temporal/codec"
	"slipway.io/slipway/worker"
)

// codecName is the name of the codec server in errors.
const codecName = "the codec server"

func runCodec(ctx context.Context, s settings.Settings) error { return runEngine(ctx, s, codecModule) }

// codecModule serves the codec that decrypts payloads for the Temporal UI.
var codecModule = serve(newCodecServer)

func newCodecServer(p Process) (*listener, error) {
	s := p.Settings
	if s.TemporalCodecKeyDir == "" {
		return nil, app.Usagef("the codec server needs the payload keys: set --temporal-codec-key-dir")
	}
	if !isLoopback(s.CodecListen) && (s.CodecTokenFile == "" || s.CodecCertFile == "") {
		return nil, app.Usagef("--codec-listen=%s is reachable from other machines, and its clients can read every "+
			"release: set --codec-token-file and --codec-cert-file, "+
			"or use a loopback address behind a proxy", s.CodecListen)
	}
	keys, err := codec.OpenKeys(s.TemporalCodecKeyDir, p.Log)
	if err != nil {
		return nil, fmt.Errorf("--temporal-codec-key-dir: %w", err)
	}
	encryption, err := ownTLS(codecName, "codec", s.CodecCertFile, s.CodecKeyFile)
	if err != nil {
		return nil, err
	}
	var authenticate func(*http.Request) error
	if s.CodecTokenFile != "" {
		authenticate, err = p.tokenCheck(codecName, "--codec-token-file", s.CodecTokenFile, "its --codec-token-file")
		if err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", worker.HealthHandler([]worker.Check{{Name: "keys", Probe: func(context.Context) error {
		return keys.Err()
	}}}, p.Registry))
	opened := codec.NewHandler(keys, codec.HandlerOptions{Origin: s.TemporalUI, Authenticate: authenticate})
	mux.Handle("/encode", opened)
	mux.Handle("/decode", opened)
	known := auth.NewHosts([]string{s.CodecListen}, s.AllowedHosts)
	l := listenHTTP("the codec", limits.Default.Server(requireKnownHost(known, mux)), encryption)
	l.where = []any{"for", s.TemporalUI}
	return p.listen(l, s.CodecListen, "cannot serve the codec: %w; choose another address with --codec-listen")
}

// requireKnownHost rejects requests for host names that this machine does not have, to prevent DNS rebinding by web
// pages.
func requireKnownHost(hosts auth.Hosts, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if !hosts.Allows(r.Host, local) {
			http.Error(w, fmt.Sprintf("unknown host %q: start the codec server with --allowed-hosts and that name",
				r.Host),
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
