package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.temporal.io/sdk/client"
	"go.uber.org/dig"
	"go.uber.org/fx"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/home"
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/api"
	"slipway.io/slipway/cmd/slipway/settings"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/worker"
	"slipway.io/slipway/workflows"
)

func runServer(ctx context.Context, s settings.Settings) error {
	return runEngine(ctx, s, homeModule, serverModule)
}

func runDev(ctx context.Context, s settings.Settings) error {
	return runEngine(ctx, s, homeModule, workloadModule, centreQueues, worker.Module, serverModule)
}

// runWorker serves the engine's queue and the default party's, or the queues of the parties that are named and nothing else: a party's
// worker has no credentials for the home cluster.
func runWorker(ctx context.Context, s settings.Settings) error {
	if len(s.Parties) > 0 {
		return runEngine(ctx, s, workloadModule, partyQueues, worker.Module, healthModule)
	}
	return runEngine(ctx, s, homeModule, workloadModule, centreQueues, worker.Module, healthModule)
}

// runEngine runs these modules until the context ends or one of them gives up.
func runEngine(ctx context.Context, s settings.Settings, modules ...fx.Option) error {
	log, err := newLogger(s)
	if err != nil {
		return err
	}
	slog.SetDefault(log)
	app := fx.New(
		fx.NopLogger,
		fx.Supply(s, log),
		fx.Provide(newRegistry, newTemporal, newRESTConfig, newFleetOptions),
		fx.Options(modules...),
		fx.StopTimeout(s.ShutdownTimeout),
	)
	if err := app.Err(); err != nil {
		return dig.RootCause(err) // how the parts are wired together helps nobody who reads this
	}
	start, cancel := context.WithTimeout(ctx, app.StartTimeout())
	defer cancel()
	if err := app.Start(start); err != nil {
		return err
	}
	return waitForEnd(ctx, app, log)
}

func waitForEnd(ctx context.Context, app *fx.App, log *slog.Logger) error {
	code := 0
	select {
	case <-ctx.Done():
		log.Info("ending: what is under way may finish")
	case end := <-app.Wait():
		code = end.ExitCode
	}
	stop, cancel := context.WithTimeout(context.Background(), app.StopTimeout())
	defer cancel()
	if err := app.Stop(stop); err != nil {
		return fmt.Errorf("the process did not end in time: %w", err)
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func newFleetOptions(s settings.Settings, log *slog.Logger, down fx.Shutdowner) worker.Options {
	return worker.Options{Namespace: s.TemporalNamespace, StopTimeout: s.ShutdownTimeout / 2, Log: log, Fatal: func(err error) {
		log.Error("a worker cannot go on", "error", err)
		_ = down.Shutdown(fx.ExitCode(exitFailure))
	}}
}

// homeModule is the home cluster. Without credentials for it there is no server and no centre.
var homeModule = fx.Module("home",
	fx.Provide(
		func(config *rest.Config, s settings.Settings) (*home.Store, error) {
			return home.NewStore(config, s.Namespace)
		},
		func(store *home.Store, temporal client.Client, s settings.Settings) *home.Activities {
			return home.NewActivities(store, temporal, s.RecordLimit)
		},
	),
	fx.Invoke(func(lc fx.Lifecycle, store *home.Store, s settings.Settings, log *slog.Logger) {
		setup := home.NewSetup(store, s.InstallCRDs, log)
		lc.Append(fx.Hook{OnStart: setup.Start, OnStop: setup.Stop})
	}),
)

// workloadModule is the cluster that this process's party releases on.
var workloadModule = fx.Module("workload",
	fx.Provide(func(lc fx.Lifecycle, config *rest.Config, s settings.Settings, log *slog.Logger) (*workload.Activities, error) {
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		activities := workload.New(kube, workload.Options{Namespaces: s.WatchNamespaces, Logger: log})
		lc.Append(fx.StopHook(activities.Stop))
		return activities, nil
	}),
)

var centreQueues = fx.Provide(func(centre *home.Activities, workloads *workload.Activities) []worker.Queue {
	return []worker.Queue{
		{Name: workflows.QueueEngine, Workflows: true, Activities: []worker.Registrar{centre}},
		{Name: catalog.PartyQueue(catalog.DefaultParty), Activities: []worker.Registrar{workloads}},
	}
})

var partyQueues = fx.Provide(func(s settings.Settings, workloads *workload.Activities) []worker.Queue {
	var queues []worker.Queue
	for _, party := range s.Parties {
		name, queue, own := strings.Cut(party, "=")
		if !own {
			queue = catalog.PartyQueue(name)
		}
		queues = append(queues, worker.Queue{Name: queue, Activities: []worker.Registrar{workloads}})
	}
	return queues
})

var serverModule = fx.Module("server",
	fx.Provide(newAPI),
	fx.Invoke(func(lc fx.Lifecycle, a *api.API, s settings.Settings, log *slog.Logger, down fx.Shutdowner, registry *prometheus.Registry) error {
		server, err := newHTTPServer(a, s, log, down, registry)
		if err != nil {
			return err
		}
		lc.Append(fx.Hook{OnStart: server.start, OnStop: server.stop})
		return nil
	}),
)

// healthModule answers for a worker that serves no API, where --metrics-listen says so.
var healthModule = fx.Invoke(func(lc fx.Lifecycle, fleet *worker.Fleet, s settings.Settings, registry *prometheus.Registry, log *slog.Logger) error {
	if s.MetricsListen == "" {
		return nil
	}
	checks := []worker.Check{{Name: "worker", Probe: func(context.Context) error { return fleet.Ready() }}}
	health, err := worker.NewHealth(s.MetricsListen, checks, registry, log)
	if err != nil {
		return fmt.Errorf("metrics-listen: %w", err)
	}
	lc.Append(fx.Hook{OnStart: health.Start, OnStop: health.Stop})
	return nil
})
