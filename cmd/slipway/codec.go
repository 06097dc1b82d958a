package main

import (
	"context"
	"errors"
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

func newCodecServer(p standaloneParts) (*listener, error) {
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
	authenticate, err := codecToken(s)
	if err != nil {
		return nil, err
	}
	address, err := net.Listen("tcp", s.CodecListen)
	if err != nil {
		return nil, fmt.Errorf("cannot serve the codec: %w; choose another address with --codec-listen", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", worker.HealthHandler("keys", func(context.Context) error { return keys.Err() }, p.Registry))
	opened := codec.NewHandler(keys, codec.HandlerOptions{Origin: s.TemporalUI, Authenticate: authenticate})
	mux.Handle("/encode", opened)
	mux.Handle("/decode", opened)
	known := auth.NewHosts([]string{s.CodecListen}, s.AllowedHosts)
	server := limits.Default.Server(requireKnownHost(known, mux))
	return &listener{what: "the codec", where: []any{"address", address.Addr().String(), "for", s.TemporalUI},
		Listener: address,
		serve:    serveHTTP(server, encryption), stop: server.Shutdown, log: p.Log, down: p.Down}, nil
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

// codecToken returns the check of a request's token; nil if no token is required.
func codecToken(s settings.Settings) (func(*http.Request) error, error) {
	if s.CodecTokenFile == "" {
		return nil, nil
	}
	file, err := auth.NewTokenFile(s.CodecTokenFile, func() (auth.Token, error) {
		return auth.LoadToken(codecName, s.CodecTokenFile)
	})
	if err != nil {
		return nil, fmt.Errorf("--codec-token-file: %w", err)
	}
	return func(r *http.Request) error {
		now, err := file.Token()
		if err != nil {
			return errors.New("the codec server cannot read its token: see its log")
		}
		return now.Authenticate(r, codecName, "its --codec-token-file")
	}, nil
}
