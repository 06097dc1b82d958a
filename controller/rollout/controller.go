// Package rollout watches Rollout objects and the workloads that they name. It starts the releases that a change of a workload's pod template
// asks for, passes on what clients ask by the object, and keeps the status of objects without a release. It keeps no state of its own: any
// number of controllers may run side by side.
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

// Releases starts and steers releases.
type Releases interface {
	// Begin starts a release; refused is why it cannot be carried out as things are.
	Begin(ctx context.Context, r kruise.Release) (refused string, err error)
	// Send sends a command to the live release of an object's name.
	Send(ctx context.Context, object rollout.ObjectRef, c rollout.Command, edited *strategy.Strategy) (kruise.Answer, error)
	// Open says whether a release of an object's name runs.
	Open(ctx context.Context, object rollout.ObjectRef) (bool, error)
}

// Options of a controller.
type Options struct {
	// Namespaces are where Rollouts are looked after; none: in all.
	Namespaces []string
	// Served says whether the home cluster serves a resource.
	Served func(resource schema.GroupVersionResource) bool
	// Beside says what else on the home cluster releases what Rollouts name.
	Beside func(ctx context.Context) (reference.Beside, error)
	Log    *slog.Logger
}

const (
	// retryShortest and retryLongest limit the pause before something that did not work is tried again.
	retryShortest, retryLongest = 100 * time.Millisecond, 15 * time.Second
	// lookAgain is how often an object is looked at although nothing has changed: somebody may have terminated its release.
	lookAgain = 5 * time.Minute
	// workers is how many objects are looked at at once: a start waits for its party's answer.
	workers = 32
	// callTimeout is how long one look may take.
	callTimeout = time.Minute
)

// Controller looks after the Rollout objects of the home cluster.
type Controller struct {
	home      homeStore
	objects   dynamic.Interface
	releases  Releases
	options   Options
	rollouts  informers
	workloads *workloads
	queue     workqueue.TypedRateLimitingInterface[cache.ObjectName]
	refusals  refusals
	answers   answers
	beside    beside
	looked    looked
	written   writes
	// namespaces are the engines that namespaces name.
	namespaces namespaces
	cancel     context.CancelFunc
	ending     sync.WaitGroup
}

// New makes a controller on the home cluster that objects reaches. It asks nobody before Start.
func New(home homeStore, objects dynamic.Interface, releases Releases, options Options) (*Controller, error) {
	c := &Controller{home: home, objects: objects, releases: releases, options: options,
		queue: newQueue()}
	c.workloads = newWorkloads(objects, options, c.wake, c.wakeAll)
	var err error
	c.rollouts, err = watch(objects, options.Namespaces, watched{resource: v1beta1.Resource, resync: lookAgain, read: readRollout, what: "Rollouts",
		log: options.Log, tell: func(object any) {
			if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
				c.queue.Add(name)
			}
		}})
	return c, err
}

// readRollout keeps a Rollout as the typed object.
func readRollout(object any) (any, error) {
	u, is := object.(*unstructured.Unstructured)
	if !is {
		return object, nil
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	return store.ReadRollout(u)
}

// Start begins to watch; it returns at once.
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

// Stop ends the watch. What was started goes on.
func (c *Controller) Stop(context.Context) error {
	c.cancel()
	c.queue.ShutDown()
	c.ending.Wait()
	return nil
}

// wakeAll has every object looked at.
func (c *Controller) wakeAll() {
	for _, object := range c.rollouts.list() {
		if name, err := cache.ObjectToName(object); err == nil {
			c.queue.Add(name)
		}
	}
}

// wake has the objects of a namespace looked at that name a workload, or are named by its mark.
func (c *Controller) wake(w *kruise.Workload) {
	for _, object := range c.rollouts.in(w.Namespace) {
		r, is := object.(*v1beta1.Rollout)
		if is && (kruise.Names(r, w) || kruise.Marked(r, w)) {
			c.queue.Add(cache.ObjectName{Namespace: r.Namespace, Name: r.Name})
		}
	}
}

// newQueue is a queue of objects that are to be looked at.
func newQueue() workqueue.TypedRateLimitingInterface[cache.ObjectName] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](retryShortest, retryLongest))
}

// work looks at the objects of a queue, and once more at those that could not be, which it tells, or that are to be looked at again.
func work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[cache.ObjectName],
	look func(context.Context, cache.ObjectName) (again time.Duration, err error), failed func(cache.ObjectName, error)) {
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
	c.options.Log.Warn("a Rollout cannot be looked after yet", "rollout", name.String(), "error", err)
}
