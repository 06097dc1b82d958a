package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/dig"
	"go.uber.org/fx"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/leg"
	partyservings "slipway.io/slipway/activities/serving"
	partysource "slipway.io/slipway/activities/source"
	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/packages"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	rolloutcontroller "slipway.io/slipway/controller/rollout"
	servingcontroller "slipway.io/slipway/controller/serving"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/upgrade"
	"slipway.io/slipway/store"
	"slipway.io/slipway/temporal/link"
	"slipway.io/slipway/temporal/presence"
	"slipway.io/slipway/worker"
	"slipway.io/slipway/workflows"
)

func runServer(ctx context.Context, s settings.Settings) error {
	return runEngine(ctx, s, homeModule, rightsModule, serverModule, servingControllerModule, rolloutControllerModule,
		kusciaModule, webhookModule)
}

func runDev(ctx context.Context, s settings.Settings) error {
	return runEngine(ctx, withOwnStore(s), packageStoreModule, homeModule, rightsModule, guardModule, workloadModule,
		partyServingModule, driftModule,
		centreQueues, worker.Module, serverModule, servingControllerModule, rolloutControllerModule, kusciaModule,
		webhookModule)
}

// runWorker serves the engine's queue and the default party's, or only the queues of --party: a party's worker has no
// credentials for the home cluster.
func runWorker(ctx context.Context, s settings.Settings) error {
	if len(s.Parties) > 0 {
		return runEngine(ctx, s, workloadModule, partyServingModule, driftModule, partyQueues, worker.Module,
			healthModule)
	}
	return runEngine(ctx, s, homeModule, rightsModule, workloadModule, partyServingModule, driftModule, centreQueues,
		worker.Module, healthModule)
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
		fx.Provide(newRegistry, newMetrics, newTracing, newTemporal, newRESTConfig, newFleetOptions, newVersions,
			newGuard),
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

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func newMetrics(registry *prometheus.Registry) client.MetricsHandler {
	return worker.NewMetricsHandler(registry)
}

func newVersions(temporal client.Client, s settings.Settings) *versions.Reader {
	return versions.NewReader(temporal, s.TemporalNamespace)
}

func newFleetOptions(s settings.Settings, log *slog.Logger, down fx.Shutdowner) worker.Options {
	return worker.Options{Namespace: s.TemporalNamespace, Identity: identity(), Versioning: versioning(s),
		StopTimeout: s.ShutdownTimeout / 2, Log: log, Fatal: func(err error) {
			log.Error("a worker failed", "error", err)
			_ = down.Shutdown(fx.ExitCode(app.ExitFailure))
		}}
}

func versioning(s settings.Settings) worker.Versioning {
	v := worker.Versioning{Build: upgrade.Unversioned, RollbackWindow: s.RollbackWindow}
	if s.WorkerVersioning {
		v.Build = worker.ThisBuild(upgrade.ID(version.This().ID(), workflows.HistoryLevel))
	}
	return v
}

// homeModule provides the home cluster. Servers and the centre require credentials for it.
var homeModule = fx.Module("home",
	fx.Provide(
		func(config *rest.Config, s settings.Settings) (*store.Store, error) {
			return store.New(config, s.Namespace, s.ServingNamespace)
		},
		func(store *store.Store, temporal client.Client, reader *versions.Reader,
			s settings.Settings) *centre.Activities {
			return centre.NewActivities(store, temporal, reader, s.RecordLimit)
		},
	),
	fx.Invoke(func(lc fx.Lifecycle, home *store.Store, s settings.Settings, log *slog.Logger) {
		setup := store.NewSetup(home, s.InstallCRDs, log)
		lc.Append(fx.Hook{OnStart: setup.Start, OnStop: setup.Stop})
	}),
)

// workloadModule provides the activities for this party's cluster: its workloads and the objects that route traffic to
// them.
var workloadModule = fx.Module("workload",
	fx.Provide(
		func(config *rest.Config, s settings.Settings, log *slog.Logger) (*traffic.Activities, error) {
			typed, objects, err := kube.NewClients(config)
			if err != nil {
				return nil, err
			}
			return traffic.New(typed, objects, traffic.Options{Namespaces: s.WatchNamespaces, Parties: partyNames(s),
				Logger: log})
		},
		newSource,
		func(lc fx.Lifecycle, config *rest.Config, routes *traffic.Activities, packages *partysource.Activities,
			s settings.Settings,
			log *slog.Logger) (*workload.Activities, error) {
			typed, objects, err := kube.NewClients(config)
			if err != nil {
				return nil, err
			}
			activities := workload.New(typed, objects,
				workload.Options{Namespaces: s.WatchNamespaces, Parties: partyNames(s),
					TrafficPreflight: routes.TrafficPreflight, Packages: packages, Logger: log})
			lc.Append(fx.StopHook(activities.Stop))
			return activities, nil
		},
	),
)

// sourceParts are the dependencies for fetching code packages.
type sourceParts struct {
	fx.In
	Config   *rest.Config
	Settings settings.Settings
	Log      *slog.Logger
	// Home reads data that is not stored in workflow histories; nil in a party's own worker, which has no access to it.
	Home *centre.Activities `optional:"true"`
}

func newSource(p sourceParts) (*partysource.Activities, error) {
	typed, err := kube.NewTyped(p.Config)
	if err != nil {
		return nil, err
	}
	s := p.Settings
	policy, err := buildPolicy(s)
	if err != nil {
		return nil, err
	}
	limits := source.DefaultLimits
	limits.Bytes, limits.UnpackedBytes = s.PackageMaxBytes, s.PackageMaxUnpackedBytes
	options := partysource.Options{Logger: p.Log, Namespaces: s.WatchNamespaces, Retention: s.PackageKeep,
		Policy:  policy,
		Fetcher: source.Fetcher{Image: s.Image, Store: s.PackageStore, Allow: s.SourceAllow, Limits: limits}}
	if p.Home != nil {
		options.RecordedURL, options.Template = p.Home.PackageURL, p.Home.BuildTemplate
	}
	switch store, err := packages.NewClient(s); {
	case err != nil:
		return nil, err
	case store != nil:
		options.Store = store
	}
	return partysource.New(typed, options)
}

// partyServingModule provides the activities and the watch for this party's servings.
var partyServingModule = fx.Module("party-servings",
	fx.Provide(func(lc fx.Lifecycle, config *rest.Config, temporal client.Client, reader *versions.Reader,
		s settings.Settings,
		log *slog.Logger) (*partyservings.Activities, error) {
		typed, err := kube.NewTyped(config)
		if err != nil {
			return nil, err
		}
		policy, err := policyOf("serving-policy-file", s.ServingPolicyFile)
		if err != nil {
			return nil, err
		}
		watch, err := partyservings.NewWatch(typed, s.WatchNamespaces, log)
		if err != nil {
			return nil, err
		}
		activities := partyservings.New(typed, reader, watch, partyservings.Options{
			Namespaces: s.WatchNamespaces, AnyNamespace: s.ServingsInAnyNamespace, Policy: policy,
			Queues: partyQueueNames(s),
			Engine: s.TemporalNamespace, Logger: log,
		})
		observer := partyservings.NewObserver(activities, temporal)
		lc.Append(fx.Hook{OnStart: observer.Start, OnStop: observer.Stop})
		lc.Append(fx.Hook{OnStart: watch.Start, OnStop: watch.Stop})
		return activities, nil
	}),
)

// policyOf reads what the party allows in pods of servings or Jobs of builds; without a file it returns the default
// policy.
func policyOf(setting, file string) (admission.Policy, error) {
	if file == "" {
		return admission.Policy{}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return admission.Policy{}, fmt.Errorf("%s: %w", setting, err)
	}
	policy, wrong := admission.Decode(text)
	if err := wrong.Err(); err != nil {
		return admission.Policy{}, fmt.Errorf("%s: invalid policy in %s:\n%w", setting, file, err)
	}
	return policy, nil
}

// buildPolicy returns what the party allows in Jobs of builds: by default the same as for servings.
func buildPolicy(s settings.Settings) (admission.Policy, error) {
	if s.BuildPolicyFile == "" {
		return policyOf("serving-policy-file", s.ServingPolicyFile)
	}
	return policyOf("build-policy-file", s.BuildPolicyFile)
}

var servingControllerModule = fx.Module("serving-controller",
	fx.Invoke(func(lc fx.Lifecycle, config *rest.Config, store *store.Store, temporal client.Client,
		s settings.Settings,
		log *slog.Logger) error {
		objects, err := kube.NewUntyped(config)
		if err != nil {
			return err
		}
		controller, err := servingcontroller.New(store, objects, temporal, servingcontroller.Options{
			Presence: presence.Finder{Temporal: temporal, Namespace: s.TemporalNamespace}, Servings: s.ServingNamespace,
			UnreachableBudget: s.UnreachableBudget, Log: log,
		})
		if err != nil {
			return err
		}
		lc.Append(fx.Hook{OnStart: controller.Start, OnStop: controller.Stop})
		return nil
	}),
)

// rolloutControllerModule runs the controllers for the Rollouts and TrafficRoutings of the home cluster.
var rolloutControllerModule = fx.Module("rollout-controller",
	fx.Invoke(func(lc fx.Lifecycle, config *rest.Config, p apiParts) error {
		typed, objects, err := kube.NewClients(config)
		if err != nil {
			return err
		}
		options := rolloutcontroller.Options{
			Namespaces: p.Settings.WatchNamespaces,
			Served: func(resource schema.GroupVersionResource) bool {
				return kube.Served(typed.Discovery(), resource)
			},
			OtherController: p.OtherReleaser,
			Log:             p.Log,
		}
		controller, err := rolloutcontroller.New(p.Store, objects, rollouts.NewObjects(newBackend(p)), options)
		if err != nil {
			return err
		}
		shared, err := rolloutcontroller.NewTrafficRoutings(p.Store, objects, options)
		if err != nil {
			return err
		}
		lc.Append(fx.Hook{OnStart: controller.Start, OnStop: controller.Stop})
		lc.Append(fx.Hook{OnStart: shared.Start, OnStop: shared.Stop})
		return nil
	}),
)

// otherReleaser reports whether another product also releases the workloads that Rollouts name on the home cluster.
type otherReleaser func(context.Context) (reference.OtherController, error)

func newOtherReleaser(config *rest.Config) (otherReleaser, error) {
	typed, objects, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	cluster := kube.NewCluster(typed, objects, nil)
	return func(ctx context.Context) (reference.OtherController, error) {
		found, err := cluster.KruiseRollouts(ctx)
		if len(found) > 0 || err != nil {
			return reference.OtherControllerOf(found), err
		}
		if whose, err := cluster.RolloutsDefinition(ctx); whose != kube.DefinitionForeign || err != nil {
			return reference.OtherController{}, err
		}
		return reference.OtherController{Message: reference.ForeignDefinition}, nil
	}, nil
}

// driftModule detects changes by other clients to workloads being released and to the objects that route to them, in
// every process that serves a party's queue.
var driftModule = fx.Module("drift",
	fx.Invoke(func(lc fx.Lifecycle, config *rest.Config, temporal client.Client, workloads *workload.Activities,
		routes *traffic.Activities) error {
		kinds, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return err
		}
		detector := workload.NewDriftDetector(workloads, kinds, temporal)
		beside := traffic.NewDriftDetector(routes, detector, temporal, workload.Autoscalers())
		lc.Append(fx.Hook{OnStart: beside.Start, OnStop: beside.Stop})
		lc.Append(fx.Hook{OnStart: detector.Start, OnStop: detector.Stop})
		return nil
	}),
)

var centreQueues = fx.Provide(func(centre *centre.Activities, workloads *workload.Activities,
	routes *traffic.Activities,
	servings *partyservings.Activities, code *partysource.Activities) []worker.Queue {
	return []worker.Queue{
		{Name: workflows.QueueEngine, Workflows: true, Activities: []worker.Registrar{centre}},
		{Name: catalog.PartyQueue(catalog.DefaultParty),
			Activities: []worker.Registrar{workloads, routes, leg.New(workloads, routes, leg.Options{}), servings,
				code}},
	}
})

var partyQueues = fx.Provide(func(s settings.Settings, workloads *workload.Activities, routes *traffic.Activities,
	servings *partyservings.Activities, code *partysource.Activities) []worker.Queue {
	var queues []worker.Queue
	for _, name := range partyQueueNames(s) {
		queues = append(queues, worker.Queue{Name: name,
			Activities: []worker.Registrar{workloads, routes, leg.New(workloads, routes, leg.Options{}), servings,
				code}})
	}
	return queues
})

// partyNames returns the parties that this process serves.
func partyNames(s settings.Settings) []string {
	if len(s.Parties) == 0 {
		return []string{catalog.DefaultParty}
	}
	var names []string
	for _, served := range s.Parties {
		name, _, _ := strings.Cut(served, "=")
		names = append(names, name)
	}
	return names
}

// partyQueueNames returns the queues of the parties that this process serves.
func partyQueueNames(s settings.Settings) []string {
	if len(s.Parties) == 0 {
		return []string{catalog.PartyQueue(catalog.DefaultParty)}
	}
	var names []string
	for _, served := range s.Parties {
		name, queue, own := strings.Cut(served, "=")
		if !own {
			queue = catalog.PartyQueue(name)
		}
		names = append(names, queue)
	}
	return names
}

var serverModule = fx.Module("server",
	fx.Provide(newAPI, newAPITLS, newOtherReleaser),
	fx.Invoke(func(home *store.Store, s settings.Settings) { home.SetEngineName(s.EngineName) }),
	fx.Invoke(func(lc fx.Lifecycle, p httpParts) error {
		server, err := newHTTPServer(p)
		if err != nil {
			return err
		}
		lc.Append(fx.Hook{OnStart: server.start, OnStop: server.stop})
		return nil
	}),
)

// healthModule serves health and metrics of a worker without an API, if --metrics-listen is set.
var healthModule = fx.Invoke(func(lc fx.Lifecycle, p healthParts) error {
	server, err := newHealthServer(p)
	if err != nil || server == nil {
		return err
	}
	lc.Append(fx.Hook{OnStart: server.start, OnStop: server.stop})
	return nil
})

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
		CertFile: s.TemporalCertFile,
		KeyFile:  s.TemporalKeyFile, ServerName: s.TemporalServerName, APIKeyFile: s.TemporalAPIKeyFile,
		CodecKeyDir: s.TemporalCodecKeyDir, Log: logger}, &options)
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

func newRESTConfig(s settings.Settings, traces *tracing) (*rest.Config, error) {
	config, err := kube.Connect(kube.Options{Kubeconfig: s.Kubeconfig, Context: s.Context, QPS: s.KubeQPS,
		Burst:     s.KubeBurst,
		UserAgent: version.UserAgent()})
	if err == nil {
		config.Wrap(traces.transport)
	}
	return config, err
}
