package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/fx"

	"slipway.io/slipway/activities/source/packages"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/temporal/codec"
	"slipway.io/slipway/worker"
)

// storeName is the name of the package store in errors.
const storeName = "the package store"

func runPackageServe(ctx context.Context, s settings.Settings) error {
	if !servesPackages(s) {
		return app.Usagef("the package store has no storage: set --package-dir or --package-bucket")
	}
	return runEngine(ctx, s, packageStoreModule)
}

// servesPackages reports whether this process runs a package store.
func servesPackages(s settings.Settings) bool { return s.PackageDir != "" || s.PackageBucket != "" }

// withOwnStore makes the worker use the package store of the same process, unless another one is set.
func withOwnStore(s settings.Settings) settings.Settings {
	_, port, err := net.SplitHostPort(s.PackageListen)
	if !servesPackages(s) || s.PackageStore != "" || err != nil || port == "0" {
		return s
	}
	scheme := "http://"
	if s.PackageCertFile != "" {
		scheme = "https://"
	}
	s.PackageStore, s.PackageStoreTokenFile = scheme+s.PackageListen,
		cmp.Or(s.PackageStoreTokenFile, packageTokenFile(s))
	return s
}

// packageTokenFile returns the file of the store's token; "" if none is set.
func packageTokenFile(s settings.Settings) string {
	if s.PackageDir == "" {
		return s.PackageTokenFile
	}
	return cmp.Or(s.PackageTokenFile, filepath.Join(s.PackageDir, "token"))
}

// packageStoreModule serves the package store if one is configured.
var packageStoreModule = fx.Module("package-store", serve(newPackageServer))

func newPackageServer(p Process) (*listener, error) {
	if !servesPackages(p.Settings) {
		return nil, nil
	}
	encryption, err := p.ownTLS(storeName, "package", p.Settings.PackageCertFile, p.Settings.PackageKeyFile)
	if err != nil {
		return nil, err
	}
	file := packageTokenFile(p.Settings)
	if file == "" {
		return nil, app.Usagef("a package store in a bucket requires --package-token-file")
	}
	store, err := openPackages(p.Settings)
	if err != nil {
		return nil, err
	}
	authenticate, err := p.tokenCheck(auth.Lock{API: storeName, Label: "packages",
		Source: "the store's --package-token-file"}, "--package-token-file", file)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	// The handler extends the time limits with every part of a transfer, and rejects packages that are too large with an
	// explanation.
	own := limits.Default
	own.Body, own.BodyBytes = time.Minute, p.Settings.PackageMaxBytes+1<<20
	server := own.Server(packageHandler(p, store, authenticate))
	l := listenHTTP("packages", server, encryption)
	l.where = []any{"in", cmp.Or(p.Settings.PackageDir, p.Settings.PackageBucket)}
	l.insecure = "the package store is not encrypted: its token and packages can be intercepted unless a proxy encrypts " +
		"the connection (--package-cert-file)"
	l.stop = func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, server.Close()) // clients must repeat longer transfers
		}
		return errors.Join(err, store.Close())
	}
	return p.listen(l, p.Settings.PackageListen,
		"cannot serve packages: %w; choose another address with --package-listen")
}

// openPackages opens the store in its folder or bucket.
func openPackages(s settings.Settings) (*packages.Store, error) {
	options := packages.Options{MaxBytes: s.PackageMaxBytes, TempBytes: tempBytes(s)}
	setting := "--package-dir"
	var store *packages.Store
	var err error
	switch {
	case s.PackageDir != "" && s.PackageBucket != "":
		return nil, app.Usagef("--package-dir and --package-bucket are mutually exclusive: set only one of them")
	case s.PackageDir != "":
		store, err = packages.Open(s.PackageDir, options)
	default:
		setting = "--package-bucket"
		where := packages.BucketOptions{Endpoint: s.PackageS3Endpoint, Region: s.PackageS3Region}
		if where.Bucket, where.Prefix, err = source.ParseBucket(s.PackageBucket); err == nil {
			store, err = packages.OpenBucket(context.Background(), where, options)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return store, nil
}

// serviceNames are the hosts of Services in a cluster. No page on the internet can have such a name.
var serviceNames = []string{".svc", ".svc.cluster.local"}

// tempBytes returns the maximum total size of unfinished packages, which every package of the permitted size fits into.
func tempBytes(s settings.Settings) int64 { return max(s.PackageTempBytes, s.PackageMaxBytes) }

// packageHandler serves the store and its health.
func packageHandler(p Process, store *packages.Store, authenticate func(*http.Request) error) http.Handler {
	guard := auth.Guard{Hosts: auth.NewHosts([]string{p.Settings.PackageListen}, slices.Concat(p.Settings.AllowedHosts,
		serviceNames))}
	handler := packages.NewHandler(store, packages.HandlerOptions{Log: p.Log, Admit: guard.Admit,
		Authenticate: authenticate})
	mux := http.NewServeMux()
	mux.Handle("/packages", handler)
	mux.Handle("/packages/", handler)
	mux.Handle("/", guard.Handler(worker.HealthHandler("packages", store.Ready, p.Registry)))
	return mux
}

// tokenCheck returns the check of a request's token, which is read again when its file changes. setting is the setting
// of the file, and lock says everything else.
func (p Process) tokenCheck(lock auth.Lock, setting, path string) (func(*http.Request) error, error) {
	var err error
	if lock.Token, err = auth.OpenToken(lock.API, path); err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	lock.Header, lock.Failures = auth.BearerHeader, p.Failures
	return func(r *http.Request) error {
		return lock.Authenticate(limits.Proxies{}.Client(r), auth.Bearer(r.Header.Get("Authorization")))
	}, nil
}

// ownTLS returns the TLS configuration of a server whose settings begin with prefix; nil for no TLS.
func (p Process) ownTLS(server, prefix, certificate, key string) (*tls.Config, error) {
	switch {
	case (certificate == "") != (key == ""):
		return nil, app.Usagef("--%s-cert-file and --%s-key-file must be set together", prefix, prefix)
	case certificate == "":
		return nil, nil
	}
	files, err := auth.LoadTLS(server, p.Log, certificate, key, "", tls.NoClientCert)
	return files.Config(), err
}

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
	encryption, err := p.ownTLS(codecName, "codec", s.CodecCertFile, s.CodecKeyFile)
	if err != nil {
		return nil, err
	}
	var authenticate func(*http.Request) error
	if s.CodecTokenFile != "" {
		authenticate, err = p.tokenCheck(auth.Lock{API: codecName, Label: "codec", Source: "its --codec-token-file"},
			"--codec-token-file", s.CodecTokenFile)
		if err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", worker.HealthHandler("keys", func(context.Context) error { return keys.Err() }, p.Registry))
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
				r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
