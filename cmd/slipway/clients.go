package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/worker"
)

// newLogger writes structured logs to standard error.
func newLogger(s settings.Settings) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(os.Stderr, options)
	if s.LogFormat == "json" {
		handler = slog.NewJSONHandler(os.Stderr, options)
	}
	return slog.New(handler), nil
}

// newTemporal does not dial: a process that starts before its Temporal server waits for it and says so in /readyz.
func newTemporal(s settings.Settings, logger *slog.Logger, registry *prometheus.Registry) (client.Client, error) {
	return client.NewLazyClient(client.Options{
		HostPort:                s.TemporalAddress,
		Namespace:               s.TemporalNamespace,
		Logger:                  log.NewStructuredLogger(logger.With("from", "temporal")),
		MetricsHandler:          worker.NewMetricsHandler(registry),
		Identity:                identity(),
		WorkerHeartbeatInterval: party.Interval,
	})
}

// identity is how this process shows in Temporal's lists of workers.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("slipway-%s@%s-%d", version.This().Version, host, os.Getpid())
}

// newRESTConfig finds the cluster that the settings name.
func newRESTConfig(s settings.Settings) (*rest.Config, error) {
	return kube.Connect(kube.Options{Kubeconfig: s.Kubeconfig, Context: s.Context, QPS: s.KubeQPS, Burst: s.KubeBurst,
		UserAgent: version.UserAgent()})
}
