package main

import (
	"fmt"
	"log/slog"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/fx"
	"google.golang.org/grpc"

	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/temporal/link"
	"slipway.io/slipway/worker"
)

// newTemporal does not connect: a process that starts before Temporal waits for it and reports that in /readyz.
func newTemporal(s settings.Settings, logger *slog.Logger, metrics client.MetricsHandler,
	traces *tracing) (client.Client, error) {
	traced, err := traces.interceptors()
	if err != nil {
		return nil, err
	}
	options := client.Options{
		HostPort:                s.TemporalAddress,
		Namespace:               s.TemporalNamespace,
		Logger:                  log.NewStructuredLogger(logger.With("from", "temporal")),
		MetricsHandler:          metrics,
		Identity:                identity(),
		Interceptors:            traced,
		WorkerHeartbeatInterval: party.HeartbeatInterval,
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			backend.RecordRateLimits)}},
	}
	err = link.Apply(link.Options{Address: s.TemporalAddress, TLS: s.TemporalTLS, CAFile: s.TemporalCAFile,
		CertFile: s.TemporalCertFile, KeyFile: s.TemporalKeyFile, ServerName: s.TemporalServerName,
		APIKeyFile: s.TemporalAPIKeyFile, CodecKeyDir: s.TemporalCodecKeyDir, Log: logger}, &options)
	if err != nil {
		return nil, err
	}
	return client.NewLazyClient(options)
}

// identity returns the name of this process in Temporal's lists of workers.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("slipway-%s@%s-%d", version.This().Version, host, os.Getpid())
}

func newVersions(temporal client.Client, s settings.Settings) *versions.Reader {
	return versions.NewReader(temporal, s.TemporalNamespace)
}

func newFleetOptions(s settings.Settings, log *slog.Logger, down fx.Shutdowner) worker.Options {
	return worker.Options{Namespace: s.TemporalNamespace, Identity: identity(), Build: buildID(s),
		StopTimeout: s.ShutdownTimeout / 2, Log: log, Fatal: func(err error) {
			log.Error("a worker failed", "error", err)
			_ = down.Shutdown(fx.ExitCode(app.ExitFailure))
		}}
}

// buildID returns the build ID with which this process polls.
func buildID(s settings.Settings) string {
	if !s.WorkerVersioning {
		return upgrade.Unversioned
	}
	return worker.ThisBuild(version.This().ID())
}
