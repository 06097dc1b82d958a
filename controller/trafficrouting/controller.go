// Package trafficrouting watches TrafficRoutings, whoever wrote them, and keeps the status of those that no release changes: one that was made
// or edited at rest, and one that was deleted. Any number of controllers may run side by side.
package trafficrouting

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
)

type homeStore interface {
	Engine(ctx context.Context) (workloadops.Engine, error)
	SetTrafficStatus(ctx context.Context, t *v1alpha1.TrafficRouting) error
	FreeTraffic(ctx context.Context, t *v1alpha1.TrafficRouting) error
}

// Options of a controller.
type Options struct {
	// Beside says what else on the home cluster works on TrafficRoutings; "" when nothing does.
	Beside func(ctx context.Context) (string, error)
	Log    *slog.Logger
}

const (
	// retryShortest and retryLongest limit the pause before something that did not work is tried again.
	retryShortest, retryLongest = 200 * time.Millisecond, 30 * time.Second
	// callTimeout is how long one look may take.
	callTimeout = 30 * time.Second
)

// Controller keeps the status of TrafficRoutings at rest.
type Controller struct {
	home     homeStore
	options  Options
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	cancel   context.CancelFunc
	ending   sync.WaitGroup
}

// New makes a controller on the home cluster that objects reaches. It asks nobody before Start.
func New(home homeStore, objects dynamic.Interface, options Options) (*Controller, error) {
	c := &Controller{home: home, options: options,
		informer: dynamicinformer.NewFilteredDynamicInformer(objects, v1alpha1.TrafficRoutingResource, "", 0, nil, nil).Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](retryShortest, retryLongest))}
	if err := c.informer.SetTransform(read); err != nil {
		return nil, err
	}
	err := c.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			options.Log.Warn("TrafficRoutings cannot be watched; it is tried again", "error", err)
		}
	})
	if err != nil {
		return nil, err
	}
	add := func(object any) {
		if name, err := cache.ObjectToName(object); err == nil {
			c.queue.Add(name)
		}
	}
	_, err = c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, object any) { add(object) }})
	return c, err
}

// read leaves out what nobody asks for.
func read(object any) (any, error) {
	if u, is := object.(*unstructured.Unstructured); is {
		unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	}
	return object, nil
}

// Start begins to watch; it returns at once.
func (c *Controller) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.ending.Go(func() { c.informer.RunWithContext(ctx) })
	c.ending.Go(func() { kube.Work(ctx, c.queue, c.look) })
	return nil
}

// Stop ends the watch.
func (c *Controller) Stop(context.Context) error {
	c.cancel()
	c.queue.ShutDown()
	c.ending.Wait()
	return nil
}

// look does what is to be done about one TrafficRouting. It is seen anew when it has changed since.
func (c *Controller) look(ctx context.Context, name cache.ObjectName) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.attend(ctx, name)
	if failure.Is(err, failure.Conflict) || failure.Is(err, failure.NotFound) {
		return nil
	}
	if err != nil && ctx.Err() == nil {
		c.options.Log.Warn("the status of a TrafficRouting cannot be kept yet", "trafficrouting", name.String(), "error", err)
	}
	return err
}

func (c *Controller) attend(ctx context.Context, name cache.ObjectName) error {
	found, there, err := c.informer.GetStore().GetByKey(name.String())
	object, is := found.(*unstructured.Unstructured)
	if err != nil || !there || !is {
		return err
	}
	t, err := store.ReadTraffic(object)
	if err != nil {
		return err
	}
	engine, err := c.home.Engine(ctx)
	if err != nil {
		return err
	}
	var holders []string
	for _, claim := range t.Status.Holders {
		holders = append(holders, workloadops.ParseHolder(claim).For(engine))
	}
	next := trafficrouting.Look(t, strings.Join(holders, ", "))
	if !next.Show && !next.Free {
		return nil
	}
	other, err := c.options.Beside(ctx)
	switch {
	case err != nil || other != "": // it keeps them itself
		return err
	case next.Free:
		return c.home.FreeTraffic(ctx, t)
	}
	t.Status.Phase, t.Status.Message = next.Phase, next.Message
	return c.home.SetTrafficStatus(ctx, t)
}
