// Package rollout watches Rollout objects and the workloads that they name. It starts a release when a workload's pod
// template changes, forwards commands that clients give through the object, and writes the status of objects without a
// release. It is stateless: any number of controllers may run concurrently.
package rollout

import (
	"context"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
)

type homeStore interface {
	Engine(ctx context.Context) (workload.Engine, error)
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
	// HasGivenBack reports whether the release that made a claim has ended and given everything back.
	HasGivenBack(ctx context.Context, claim string) (bool, error)
	// RecordNotHeld writes the record of a change of a pod template that moved pods without a release, once.
	RecordNotHeld(ctx context.Context, u kruise.Unheld) error
}

// Options of a controller.
type Options struct {
	// Namespaces are the namespaces whose Rollouts are managed; none: all.
	Namespaces []string
	// Served reports whether the home cluster serves a resource.
	Served func(resource schema.GroupVersionResource) bool
	// OtherController returns which other controller on the home cluster releases the workloads of Rollouts.
	OtherController func(ctx context.Context) (reference.OtherController, error)
	// Unchecked returns why nothing proves that the authors of an object may change what it refers to; "" if it is
	// proved.
	Unchecked func(ctx context.Context, o author.Object) (why string, err error)
	// Protection returns what the API server does to edits, as it was at most fresh ago, or why that is unknown: whether
	// it records the names of users.
	Protection func(ctx context.Context, fresh time.Duration) (p guard.Protection, unknown string, err error)
	// RequireGate refuses what the API server has not checked: releases of objects without the proof of Unchecked, and
	// commands in the status of a Rollout whose sender it does not record.
	RequireGate bool
	// CountNotHeld counts a change of a pod template that moved pods without a release; nil: nothing counts.
	CountNotHeld func()
	// Events writes the events of the objects.
	Events typedcorev1.EventsGetter
	Log    *slog.Logger
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
	watch.Background
	home            homeStore
	objects         dynamic.Interface
	releases        Releases
	options         Options
	rollouts        *watch.Watch[*v1beta1.Rollout]
	workloads       *workloads
	queue           watch.Queue[cache.ObjectName]
	memories        memories
	otherController otherController
	warnings        *warnings
	// namespaces caches the labels of namespaces, which may name an engine.
	namespaces recent.Cache
	// givenBack caches which releases have given everything back, by their claims.
	givenBack recent.Cache
}

// New returns a controller for the home cluster of these clients. It makes no request before Start.
func New(home homeStore, objects dynamic.Interface, releases Releases, options Options) *Controller {
	c := &Controller{home: home, objects: objects, releases: releases, options: options,
		warnings: newWarnings(options),
		queue:    watch.NewQueue[cache.ObjectName](retryShortest, retryLongest)}
	c.workloads = newWorkloads(objects, options, c.wake, c.wakeAll)
	c.workloads.extras.Handle(watch.OnChange(c.wakeFor))
	c.rollouts = watch.New(watch.Untyped(objects, v1beta1.Resource), readRollout, watch.Options{
		Namespaces: options.Namespaces, Resync: checkInterval,
		Failed: warnUnwatched(options.Log, "Rollouts", noReleases)}).
		Index(byNamespace, func(r *v1beta1.Rollout) []string { return []string{r.Namespace} }).
		Handle(watch.OnChange(func(r *v1beta1.Rollout) { c.queue.Add(cache.MetaObjectToName(r)) }))
	return c
}

// readRollout converts a Rollout to the typed object.
func readRollout(u *unstructured.Unstructured) (*v1beta1.Rollout, error) {
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	return store.ReadRollout(u)
}

// Start starts the watches and workers, and returns at once. Releases that it starts continue after Stop.
func (c *Controller) Start(context.Context) error {
	c.Begin(c.rollouts.Run, c.workloads.kinds.Run, c.workloads.extras.Run, c.warnings.run, func(ctx context.Context) {
		c.queue.Run(ctx, watch.Work[cache.ObjectName]{Do: c.reconcile, Workers: workers, Timeout: callTimeout,
			Failed: func(name cache.ObjectName, err error) {
				c.options.Log.Warn("could not reconcile a Rollout; retrying", "rollout", name.String(), "error", err)
			}})
	})
	return nil
}

// wakeAll queues every object.
func (c *Controller) wakeAll() {
	for _, r := range c.rollouts.List() {
		c.queue.Add(cache.MetaObjectToName(r))
	}
}

// wake queues the objects of a namespace that name a workload, or are named by its mark.
func (c *Controller) wake(w *kruise.Workload) {
	for _, r := range c.rollouts.By(byNamespace, w.Namespace) {
		if kruise.References(r, w) || kruise.Marked(r, w) {
			c.queue.Add(cache.MetaObjectToName(r))
		}
	}
}

// wakeFor queues the objects whose workload has an extra workload.
func (c *Controller) wakeFor(e *kruise.Extra) {
	for _, r := range c.rollouts.By(byNamespace, e.Namespace) {
		if strategy.CanaryOf(r.Spec.WorkloadRef.Name) == e.Of {
			c.queue.Add(cache.MetaObjectToName(r))
		}
	}
}

// noReleases is what does not work without the permission to watch Rollouts and their workloads.
const noReleases = "kubectl changes there start no release until the permissions of deploy/rbac/rollouts.yaml are " +
	"granted; --watch-namespaces limits the namespaces"

// byNamespace is the index of objects by their namespace.
const byNamespace = "namespace"

// warnUnwatched returns what logs that objects cannot be watched; what names them. The lack of a permission is logged
// once, since that may never be granted; forbidden says what does not work, and which permissions are needed.
func warnUnwatched(log *slog.Logger, what, forbidden string) func(namespace string, err error) {
	warn := func(namespace, rest string, err error) {
		log.Warn(what+" cannot be watched in "+watch.Where(namespace)+rest, "error", err)
	}
	once := watch.Once(func(namespace string, err error) { warn(namespace, ": "+forbidden, err) })
	return func(namespace string, err error) {
		if apierrors.IsForbidden(err) {
			once(namespace, err)
		} else {
			warn(namespace, "; retrying", err)
		}
	}
}

// workloads watches the workloads with the mark of a Rollout, and extra workloads.
type workloads struct {
	objects dynamic.Interface
	kinds   *watch.Kinds
	watches map[string]*watch.Watch[*kruise.Workload]
	extras  *watch.Watch[*kruise.Extra]
}

// newWorkloads prepares a watch for each kind. changed is called with each changed workload, began when the watch of a
// kind has synced: earlier changes of its workloads were not reported.
func newWorkloads(objects dynamic.Interface, options Options, changed func(*kruise.Workload), began func()) *workloads {
	w := &workloads{objects: objects, kinds: watch.NewKinds(options.Served),
		watches: map[string]*watch.Watch[*kruise.Workload]{}}
	w.extras = watch.New(watch.Untyped(objects, extraResource), readExtra, watch.Options{
		Namespaces: options.Namespaces, Labels: strategy.LabelCanaryOf,
		Failed: warnUnwatched(options.Log, "extra workloads", noReleases)})
	for _, kind := range workload.Kinds {
		watched := watch.New(watch.Untyped(objects, kind.Resource), readWorkload, watch.Options{
			Namespaces: options.Namespaces, Labels: gate.Label, Synced: began,
			Failed: warnUnwatched(options.Log, "workloads of kind "+kind.Key(), noReleases)}).
			Index(byNamespace, func(w *kruise.Workload) []string { return []string{w.Namespace} }).
			Handle(watch.OnChange(changed))
		w.watches[kind.Key()] = watched
		w.kinds.Add(kind.Resource, watched.Run)
	}
	return w
}

// extraResource is the resource of extra workloads.
var extraResource = appsv1.SchemeGroupVersion.WithResource("deployments")

// extra returns the extra workload of the release that has claimed a workload; nil if it has none.
func (w *workloads) extra(of *kruise.Workload) *kruise.Extra {
	if of == nil || of.Saved == nil || of.Saved.CanaryWorkload == "" {
		return nil
	}
	return w.extras.Get(of.Namespace, of.Saved.CanaryWorkload)
}

func readExtra(u *unstructured.Unstructured) (*kruise.Extra, error) { return kruise.ReadExtra(u), nil }

// readWorkload converts a workload to what a Rollout needs.
func readWorkload(u *unstructured.Unstructured) (*kruise.Workload, error) {
	return kruise.ReadWorkload(u), nil
}

// named returns the workload that an object names; nil if it does not exist. One without a mark is not in the watch,
// and is read from the API server.
func (w *workloads) named(ctx context.Context, r *v1beta1.Rollout) (*kruise.Workload, error) {
	kind := workload.Of(r.Spec.WorkloadRef.APIVersion, r.Spec.WorkloadRef.Kind)
	if !kind.Known() {
		return nil, nil
	}
	if one := w.watches[kind.Key()].Get(r.Namespace, r.Spec.WorkloadRef.Name); one != nil {
		return one, nil
	}
	found, err := w.objects.Resource(kind.Resource).Namespace(r.Namespace).Get(ctx, r.Spec.WorkloadRef.Name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w.kinds.Recheck(kind.Resource) // its definition may just have been installed
	return kruise.ReadWorkload(found), nil
}

// strays returns the workloads with the mark of an object that does not name them.
func (w *workloads) strays(r *v1beta1.Rollout) (all []*kruise.Workload) {
	for _, k := range workload.Kinds {
		for _, one := range w.watches[k.Key()].By(byNamespace, r.Namespace) {
			if kruise.Marked(r, one) && !kruise.References(r, one) {
				all = append(all, one)
			}
		}
	}
	return all
}
