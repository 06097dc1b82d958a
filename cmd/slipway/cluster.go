package main

import (
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/fx"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/versions"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	rolloutcontroller "slipway.io/slipway/controller/rollout"
	servingcontroller "slipway.io/slipway/controller/serving"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/store"
	"slipway.io/slipway/temporal/presence"
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

// controllersModule runs the controllers for the servings, Rollouts and TrafficRoutings of the home cluster.
var controllersModule = fx.Module("controllers",
	fx.Invoke(func(lc fx.Lifecycle, objects dynamic.Interface, p apiParts) {
		controller := servingcontroller.New(p.Store, objects, p.Temporal, servingcontroller.Options{
			Presence: presence.Finder{Temporal: p.Temporal, Namespace: p.Settings.TemporalNamespace},
			Servings: p.Settings.ServingNamespace, UnreachableBudget: p.Settings.UnreachableBudget, Log: p.Log,
		})
		lc.Append(fx.Hook{OnStart: controller.Start, OnStop: controller.Stop})
	}),
	fx.Invoke(func(lc fx.Lifecycle, typed kube.Typed, objects dynamic.Interface, p apiParts) {
		options := rolloutcontroller.Options{
			Namespaces: p.Settings.WatchNamespaces,
			Served: func(resource schema.GroupVersionResource) bool {
				return watch.Served(typed.Discovery(), resource)
			},
			OtherController: p.OtherReleaser,
			Log:             p.Log,
		}
		controller := rolloutcontroller.New(p.Store, objects, rollouts.NewObjects(newBackend(p)), options)
		shared := rolloutcontroller.NewTrafficRoutings(p.Store, objects, options)
		lc.Append(fx.Hook{OnStart: controller.Start, OnStop: controller.Stop})
		lc.Append(fx.Hook{OnStart: shared.Start, OnStop: shared.Stop})
	}),
)

// otherReleaser reports whether another product also releases the workloads that Rollouts name on the home cluster.
type otherReleaser func(context.Context) (reference.OtherController, error)

func newOtherReleaser(typed kube.Typed, objects dynamic.Interface) otherReleaser {
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
	}
}

// guardRetryInterval is the pause before retrying on a cluster that did not respond or does not have the Rollout
// definition yet.
const guardRetryInterval = 10 * time.Second

// guardModule installs the guard in the API server. The engine starts even if that fails: preflights report what is not
// guarded.
var guardModule = fx.Module("guard",
	fx.Invoke(func(lc fx.Lifecycle, config *rest.Config, s settings.Settings, log *slog.Logger) {
		if !s.InstallGuard {
			return
		}
		inBackground(lc, func(ctx context.Context) { installGuard(ctx, config, s.Gate != settings.GateOff, log) })
	}),
)

func installGuard(ctx context.Context, config *rest.Config, gate bool, log *slog.Logger) {
	for last := ""; ; {
		message, done, err := guard.Ensure(ctx, config, gate)
		if err == nil && message != last {
			log.InfoContext(ctx, "guard", "status", message)
			last = message
		}
		switch {
		case done && err == nil:
			return
		case err == nil: // the Rollout definition may be applied later
		case ctx.Err() != nil:
			return
		case failure.Is(err, failure.Refused): // Kruise Rollouts may be removed later
			if reason := err.Error(); reason != last {
				log.WarnContext(ctx, "guard", "status", reason)
				last = reason
			}
		case kube.Classify(err) != kube.Unreachable:
			log.WarnContext(ctx, "cannot install the guard", "error", err)
			return
		}
		if pause.For(ctx, guardRetryInterval) != nil {
			return
		}
	}
}
