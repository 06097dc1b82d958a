package rollout

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
)

type trafficStore interface {
	Engine(ctx context.Context) (workload.Engine, error)
	SetTrafficStatus(ctx context.Context, t *v1alpha1.TrafficRouting) error
	FreeTraffic(ctx context.Context, t *v1alpha1.TrafficRouting) error
}

// TrafficRoutings watches the TrafficRoutings of the home cluster, and writes the status of those that no release
// holds: created, edited or deleted ones. It is stateless: any number may run concurrently.
type TrafficRoutings struct {
	watch.Background
	home            trafficStore
	options         Options
	otherController otherController
	warnings        *warnings
	cached          *watch.Watch[*unstructured.Unstructured]
	queue           watch.Queue[cache.ObjectName]
}

// NewTrafficRoutings returns a controller for the home cluster of these clients. It makes no request before Start.
func NewTrafficRoutings(home trafficStore, objects dynamic.Interface, options Options) *TrafficRoutings {
	c := &TrafficRoutings{home: home, options: options, warnings: newWarnings(options),
		queue: watch.NewQueue[cache.ObjectName](retryShortest, retryLongest)}
	failed := warnUnwatched(options.Log, "TrafficRoutings", "the status of those without a release is not updated until "+
		"the permissions of deploy/rbac/centre.yaml are granted")
	c.cached = watch.New(watch.Untyped(objects, v1alpha1.TrafficRoutingResource), withoutHistory,
		watch.Options{Namespaces: options.Namespaces, Resync: checkInterval, Failed: failed}).
		Handle(watch.OnChange(func(u *unstructured.Unstructured) { c.queue.Add(cache.MetaObjectToName(u)) }))
	return c
}

// withoutHistory keeps of an object what decisions need.
func withoutHistory(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u.SetManagedFields(nil)
	return u, nil
}

// Start starts the watch and the worker, and returns at once.
func (c *TrafficRoutings) Start(context.Context) error {
	c.Begin(c.cached.Run, c.warnings.run, func(ctx context.Context) {
		c.queue.Run(ctx, watch.Work[cache.ObjectName]{Do: c.reconcile, Timeout: callTimeout,
			Failed: func(name cache.ObjectName, err error) {
				c.options.Log.Warn("could not update the status of a TrafficRouting; retrying", "trafficrouting",
					name.String(), "error", err)
			}})
	})
	return nil
}

// reconcile executes what is necessary for one TrafficRouting. After a conflict the watch delivers it again.
func (c *TrafficRoutings) reconcile(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	found := c.cached.Get(name.Namespace, name.Name)
	if found == nil {
		return 0, nil
	}
	engine, err := c.home.Engine(ctx)
	if err != nil {
		return 0, err
	}
	t, err := store.ReadTraffic(found)
	if err != nil {
		return 0, err
	}
	holders := phrase.Each(t.Status.Holders,
		func(claim string) string { return workload.ParseHolder(claim).NameFor(engine) })
	unchecked, err := uncheckedBy(ctx, c.options, trafficrouting.AuthoredBy(t), !t.Deleting)
	if err != nil {
		return 0, err
	}
	next := trafficrouting.Decide(t, strings.Join(holders, ", "), unchecked)
	if !next.WriteStatus && !next.RemoveFinalizers {
		return 0, nil
	}
	// the other controller writes the status itself
	if other, err := c.otherController.check(ctx, c.options.OtherController); err != nil || other.Message != "" {
		return otherControllerInterval, err
	}
	write := c.home.FreeTraffic
	if !next.RemoveFinalizers {
		t.Status.Phase, t.Status.Message = next.Phase, next.Message
		write = c.home.SetTrafficStatus
	}
	was := found.Object["status"]
	if err := write(ctx, t); err != nil {
		return 0, failure.Ignore(err, failure.Conflict, failure.NotFound)
	}
	if shown, _ := was.(map[string]any); shown["message"] != next.Message {
		c.warnings.unchecked(referenceToTraffic(t), unchecked)
	}
	return 0, nil
}
