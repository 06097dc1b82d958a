// Package rollout watches Rollout objects and the workloads that they name. It starts a release when a workload's pod
// template changes, forwards commands that clients give through the object, and writes the status of objects without a
// release. It is stateless: any number of controllers may run concurrently.
package rollout

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
)

type homeStore interface {
	Engine(ctx context.Context) (workloadops.Engine, error)
	NamespaceLabels(ctx context.Context, namespace string) (map[string]string, error)
	GuardRollout(ctx context.Context, read *v1beta1.Rollout, engine string) error
	AnnotateRollout(ctx context.Context, read *v1beta1.Rollout, key, value string) error
	SetRolloutStatus(ctx context.Context, read *v1beta1.Rollout, status v1beta1.RolloutStatus) (*v1beta1.Rollout, error)
}

// Releases starts and controls releases.
type Releases interface {
	// Begin starts a release; refused is the reason if that is not possible now.
	Begin(ctx context.Context, r kruise.Release) (refused string, err error)
	// Send sends a command to the running release of an object.
	Send(ctx context.Context, object rollout.ObjectRef, c rollout.Command, edited *strategy.Strategy) (kruise.Answer,
		error)
	// Open reports whether a release of an object is running.
	Open(ctx context.Context, object rollout.ObjectRef) (bool, error)
}

// Options of a controller.
type Options struct {
	// Namespaces are the namespaces whose Rollouts are managed; none: all.
	Namespaces []string
	// Served reports whether the home cluster serves a resource.
	Served func(resource schema.GroupVersionResource) bool
	// OtherController returns which other controller on the home cluster releases the workloads of Rollouts.
	OtherController func(ctx context.Context) (reference.OtherController, error)
	Log             *slog.Logger
}

const (
	// retryShortest and retryLongest limit the pause before a retry.
	retryShortest, retryLongest = 100 * time.Millisecond, 15 * time.Second
	// checkInterval is how often an unchanged object is checked: its release may have been terminated.
	checkInterval = 5 * time.Minute
	// workers is how many objects are processed at once: a start waits for its party's answer.
	workers = 32
	// callTimeout bounds the processing of one object.
	callTimeout = time.Minute
)

// Controller manages the Rollout objects of the home cluster.
type Controller struct {
	home            homeStore
	objects         dynamic.Interface
	releases        Releases
	options         Options
	rollouts        informers
	workloads       *workloads
	queue           workqueue.TypedRateLimitingInterface[cache.ObjectName]
	refusals        refusals
	sentCommands    sentCommands
	otherController otherController
	releaseChecks   releaseChecks
	writes          writes
	// namespaces caches the engines named by labels of namespaces.
	namespaces namespaceEngines
	cancel     context.CancelFunc
	ending     sync.WaitGroup
}

// New returns a controller for the home cluster of these clients. It makes no request before Start.
func New(home homeStore, objects dynamic.Interface, releases Releases, options Options) (*Controller, error) {
	c := &Controller{home: home, objects: objects, releases: releases, options: options,
		queue: newQueue()}
	c.workloads = newWorkloads(objects, options, c.wake, c.wakeAll)
	var err error
	c.rollouts, err = watch(objects, options.Namespaces,
		watchSpec{resource: v1beta1.Resource, resync: checkInterval, read: readRollout, what: "Rollouts",
			log: options.Log, notify: func(object any) {
				if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
					c.queue.Add(name)
				}
			}})
	return c, err
}

// readRollout converts a Rollout to the typed object.
func readRollout(object any) (any, error) {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return object, nil
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	return store.ReadRollout(u)
}

// Start starts the watches and workers, and returns at once.
func (c *Controller) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.ending.Go(func() { c.rollouts.run(ctx) })
	c.ending.Go(func() { c.workloads.run(ctx) })
	for range workers {
		c.ending.Go(func() { work(ctx, c.queue, c.reconcile, c.failed) })
	}
	return nil
}

// Stop ends the watches. Started releases continue.
func (c *Controller) Stop(context.Context) error {
	c.cancel()
	c.queue.ShutDown()
	c.ending.Wait()
	return nil
}

// wakeAll queues every object.
func (c *Controller) wakeAll() {
	for _, object := range c.rollouts.list() {
		if name, err := cache.ObjectToName(object); err == nil {
			c.queue.Add(name)
		}
	}
}

// wake queues the objects of a namespace that name a workload, or are named by its mark.
func (c *Controller) wake(w *kruise.Workload) {
	for _, object := range c.rollouts.in(w.Namespace) {
		r, is := object.(*v1beta1.Rollout)
		if is && (kruise.References(r, w) || kruise.Marked(r, w)) {
			c.queue.Add(cache.ObjectName{Namespace: r.Namespace, Name: r.Name})
		}
	}
}

// newQueue returns a queue of objects to process.
func newQueue() workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](
		retryShortest, retryLongest))
}

// work processes the objects of a queue. It retries and reports failed ones, and queues an object again after the
// returned time.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[cache.ObjectName],
	look func(context.Context, cache.ObjectName) (again time.Duration, err error),
	failed func(cache.ObjectName, error)) {
	for {
		name, stopping := queue.Get()
		if stopping {
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		again, err := look(call, name)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			failed(name, err)
			queue.AddRateLimited(name)
		case again > 0:
			queue.Forget(name)
			queue.AddAfter(name, again)
		default:
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

func (c *Controller) failed(name cache.ObjectName, err error) {
	c.options.Log.Warn("could not reconcile a Rollout; retrying", "rollout", name.String(), "error", err)
}
