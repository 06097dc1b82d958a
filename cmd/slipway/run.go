package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/dig"
	"go.uber.org/fx"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
)

func runServer(ctx context.Context, s settings.Settings) error {
	return runEngine(ctx, s, homeModule, rightsModule, serverModule, controllersModule, kusciaModule, webhookModule)
}

func runDev(ctx context.Context, s settings.Settings) error {
	return runEngine(ctx, withOwnStore(s), packageStoreModule, homeModule, rightsModule, guardModule, partyModule,
		serverModule, controllersModule, kusciaModule, webhookModule)
}

// runWorker serves the engine's queue and the default party's, or only the queues of --party: a party's worker has no
// credentials for the home cluster.
func runWorker(ctx context.Context, s settings.Settings) error {
	if len(s.Parties) > 0 {
		return runEngine(ctx, s, partyModule, healthModule)
	}
	return runEngine(ctx, s, homeModule, rightsModule, partyModule, healthModule)
}

// runEngine runs these modules until the context ends or one of them fails.
func runEngine(ctx context.Context, s settings.Settings, modules ...fx.Option) error {
	log, err := newLogger(s)
	if err != nil {
		return err
	}
	slog.SetDefault(log)
	lowerGCPercent()
	engine := fx.New(
		fx.NopLogger,
		fx.Supply(s, log),
		fx.Provide(newRegistry, newMetrics, newTracing, newTemporal, newRESTConfig, kube.NewClients,
			newFleetOptions, newVersions, newGuard),
		fx.Options(modules...),
		fx.StopTimeout(s.ShutdownTimeout),
	)
	if err := engine.Err(); err != nil {
		return dig.RootCause(err) // without fx's description of the dependency graph
	}
	start, cancel := context.WithTimeout(ctx, engine.StartTimeout())
	defer cancel()
	if err := engine.Start(start); err != nil {
		return err
	}
	go releaseMemoryAfterBursts(ctx)
	return waitForEnd(ctx, engine, log)
}

func waitForEnd(ctx context.Context, engine *fx.App, log *slog.Logger) error {
	code := 0
	select {
	case <-ctx.Done():
		log.Info("shutting down: waiting for running work")
	case end := <-engine.Wait():
		code = end.ExitCode
	}
	stop, cancel := context.WithTimeout(context.Background(), engine.StopTimeout())
	defer cancel()
	if err := engine.Stop(stop); err != nil {
		return fmt.Errorf("shutdown timed out: %w", err)
	}
	if code != 0 {
		return &app.ExitError{Code: code}
	}
	return nil
}

func newLogger(s settings.Settings) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(os.Stderr, options)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, options)), nil
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}
