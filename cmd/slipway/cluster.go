package main

import (
	"log/slog"

	"go.temporal.io/sdk/client"
	"go.uber.org/fx"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/store"
)

// newRESTConfig returns the configuration of all clients for the cluster of this process.
func newRESTConfig(s settings.Settings, traces *tracing) (*rest.Config, error) {
	config, err := kube.Connect(kube.Options{Kubeconfig: s.Kubeconfig, Context: s.Context, QPS: s.KubeQPS,
		Burst: s.KubeBurst, UserAgent: version.UserAgent()})
	if err == nil {
		config.Wrap(traces.transport)
	}
	return config, err
}

// homeModule provides the home cluster. Servers and the centre require credentials for it.
var homeModule = fx.Module("home",
	fx.Provide(
		func(config *rest.Config, s settings.Settings) (*store.Store, error) {
			return store.New(config, s.Namespace, s.ServingNamespace)
		},
		func(home *store.Store, temporal client.Client, reader *versions.Reader, s settings.Settings) *centre.Activities {
			return centre.NewActivities(home, temporal, reader, s.RecordLimit)
		},
	),
	fx.Invoke(func(lc fx.Lifecycle, home *store.Store, s settings.Settings, log *slog.Logger) {
		setup := store.NewSetup(home, s.InstallCRDs, log)
		lc.Append(fx.Hook{OnStart: setup.Start, OnStop: setup.Stop})
	}),
)
