package rollout

import (
	"context"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
)

type trafficStore interface {
	Engine(ctx context.Context) (workloadops.Engine, error)
	SetTrafficStatus(ctx context.Context, t *v1alpha1.TrafficRouting) error
	FreeTraffic(ctx context.Context, t *v1alpha1.TrafficRouting) error
}

// TrafficRoutings watches the TrafficRoutings of the home cluster, whoever wrote them, and keeps the status of those that no release changes: one
// that was made or edited at rest, and one that was deleted. It keeps no state of its own: any number may run side by side.
type TrafficRoutings struct {
	home      trafficStore
	options   Options
	beside    beside
	informers informers
	queue     workqueue.TypedRateLimitingInterface[cache.ObjectName]
	cancel    context.CancelFunc
	ending    sync.WaitGroup
}

// NewTrafficRoutings makes a controller on the home cluster that objects reaches. It asks nobody before Start.
func NewTrafficRoutings(home trafficStore, objects dynamic.Interface, options Options) (*TrafficRoutings, error) {
	c := &TrafficRoutings{home: home, options: options, queue: newQueue()}
	var err error
	c.informers, err = watch(objects, options.Namespaces, watched{resource: v1alpha1.TrafficRoutingResource, read: readTrafficRouting,
		what: "TrafficRoutings", forbidden: "their status at rest isn't kept until the permissions of deploy/rbac/centre.yaml are given", log: options.Log,
		tell: func(object any) {
			if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
				c.queue.Add(name)
			}
		}})
	return c, err
}

// shared is what a watch keeps of a TrafficRouting.
type shared struct {
	metav1.PartialObjectMetadata
	*v1alpha1.TrafficRouting
}

// readTrafficRouting keeps a TrafficRouting as it is read.
func readTrafficRouting(object any) (any, error) {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return object, nil
	}
	t, err := store.ReadTraffic(u)
	if err != nil {
		return nil, err
	}
	kept := &shared{TrafficRouting: t}
	kept.PartialObjectMetadata.Namespace, kept.PartialObjectMetadata.Name = u.GetNamespace(), u.GetName()
	kept.PartialObjectMetadata.ResourceVersion = u.GetResourceVersion()
	return kept, nil
}

// Start begins to watch; it returns at once.
func (c *TrafficRoutings) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.ending.Go(func() { c.informers.run(ctx) })
	c.ending.Go(func() {
		work(ctx, c.queue, c.look, func(name cache.ObjectName, err error) {
			c.options.Log.Warn("the status of a TrafficRouting cannot be kept yet", "trafficrouting", name.String(), "error", err)
		})
	})
	return nil
}

// Stop ends the watch.
func (c *TrafficRoutings) Stop(context.Context) error {
	c.cancel()
	c.queue.ShutDown()
	c.ending.Wait()
	return nil
}

// look does what is to be done about one TrafficRouting. It is seen anew when it has changed since.
func (c *TrafficRoutings) look(ctx context.Context, name cache.ObjectName) (again time.Duration, err error) {
	found, there := c.informers.get(name.Namespace, name.Name).(*shared)
	if !there {
		return 0, nil
	}
	engine, err := c.home.Engine(ctx)
	if err != nil {
		return 0, err
	}
	t := *found.TrafficRouting // the watch keeps its own
	var holders []string
	for _, claim := range t.Status.Holders {
		holders = append(holders, workloadops.ParseHolder(claim).For(engine))
	}
	next := trafficrouting.Look(&t, strings.Join(holders, ", "))
	if !next.Show && !next.Free {
		return 0, nil
	}
	if other, err := c.beside.look(ctx, c.options.Beside); err != nil || other.Says != "" { // it keeps them itself
		return besideAgain, err
	}
	err = c.write(ctx, &t, next)
	if failure.Is(err, failure.Conflict) || failure.Is(err, failure.NotFound) {
		return 0, nil
	}
	return 0, err
}

func (c *TrafficRoutings) write(ctx context.Context, t *v1alpha1.TrafficRouting, next trafficrouting.Unattended) error {
	if next.Free {
		return c.home.FreeTraffic(ctx, t)
	}
	t.Status.Phase, t.Status.Message = next.Phase, next.Message
	return c.home.SetTrafficStatus(ctx, t)
}
