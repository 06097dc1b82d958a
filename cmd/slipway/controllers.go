package main

import (
	"context"

	"go.uber.org/fx"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/api/rollouts"
	rolloutcontroller "slipway.io/slipway/controller/rollout"
	servingcontroller "slipway.io/slipway/controller/serving"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/temporal/presence"
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
		if exists, ours, err := cluster.RolloutsDefinition(ctx); !exists || ours || err != nil {
			return reference.OtherController{}, err
		}
		return reference.OtherController{Message: reference.ForeignDefinition}, nil
	}
}
