package rollout

import (
	"context"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// resources are the kinds of workloads that can be released, named as by kruise.KindOf, in the version that is watched.
var resources = map[string]schema.GroupVersionResource{
	"apps/Deployment":            {Group: "apps", Version: "v1", Resource: "deployments"},
	"apps/StatefulSet":           {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"apps/DaemonSet":             {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"apps.kruise.io/CloneSet":    {Group: "apps.kruise.io", Version: "v1alpha1", Resource: "clonesets"},
	"apps.kruise.io/StatefulSet": {Group: "apps.kruise.io", Version: "v1beta1", Resource: "statefulsets"},
	"apps.kruise.io/DaemonSet":   {Group: "apps.kruise.io", Version: "v1alpha1", Resource: "daemonsets"},
}

// kindInterval is how often missing kinds are looked up again, kindIntervalMin how often while there is none at all:
// then the cluster is unreachable.
const kindInterval, kindIntervalMin = 5 * time.Minute, time.Second

// workloads watches the workloads with the mark of a Rollout.
type workloads struct {
	objects dynamic.Interface
	options Options
	// changed is called with each changed workload. watchStarted is called when the watch of a kind has synced: earlier
	// changes of its workloads were not reported.
	changed      func(*kruise.Workload)
	watchStarted func()
	// rescan triggers an immediate lookup of missing kinds.
	rescan chan struct{}

	mu       sync.Mutex
	watching map[string]informers
}

func newWorkloads(objects dynamic.Interface, options Options, changed func(*kruise.Workload), began func()) *workloads {
	return &workloads{objects: objects, options: options, changed: changed, watchStarted: began,
		rescan:   make(chan struct{}, 1),
		watching: map[string]informers{}}
}

// run starts a watch for each kind that the cluster serves, and looks up the others at intervals.
func (w *workloads) run(ctx context.Context) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for {
		again := kindIntervalMin
		for kind, resource := range resources {
			if w.informers(kind) == nil && w.options.Served(resource) {
				w.watch(ctx, kind, resource, &ending)
			}
			if w.informers(kind) != nil {
				again = kindInterval
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		case <-w.rescan:
		}
	}
}

func (w *workloads) watch(ctx context.Context, kind string, resource schema.GroupVersionResource,
	ending *sync.WaitGroup) {
	found, err := watch(w.objects, w.options.Namespaces,
		watchSpec{resource: resource, selector: gate.Label, read: readWorkload,
			what: "workloads of kind " + kind, log: w.options.Log, notify: func(object any) {
				if one, is := object.(*kruise.Workload); is {
					w.changed(one)
				}
			}})
	if err != nil {
		return // impossible: only a started informer returns an error
	}
	w.mu.Lock()
	w.watching[kind] = found
	w.mu.Unlock()
	ending.Go(func() { found.run(ctx) })
	ending.Go(func() {
		if found.synced(ctx) {
			w.watchStarted()
		}
	})
}

// readWorkload converts a workload to what a Rollout needs.
func readWorkload(object any) (any, error) {
	if u, is := object.(*unstructured.Unstructured); is {
		return kruise.ReadWorkload(u), nil
	}
	return object, nil
}

func (w *workloads) informers(kind string) informers {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watching[kind]
}

// named returns the workload that an object names; nil if it does not exist. One without a mark is not in the watch,
// and is read from the API server.
func (w *workloads) named(ctx context.Context, r *v1beta1.Rollout) (*kruise.Workload, error) {
	kind := kruise.KindOf(r.Spec.WorkloadRef.APIVersion, r.Spec.WorkloadRef.Kind)
	resource, known := resources[kind]
	if !known {
		return nil, nil
	}
	watched := w.informers(kind)
	if one, is := watched.get(r.Namespace, r.Spec.WorkloadRef.Name).(*kruise.Workload); is {
		return one, nil
	}
	found, err := w.objects.Resource(resource).Namespace(r.Namespace).Get(ctx, r.Spec.WorkloadRef.Name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if watched == nil { // its definition was just installed
		select {
		case w.rescan <- struct{}{}:
		default:
		}
	}
	return kruise.ReadWorkload(found), nil
}

// strays returns the workloads with the mark of an object that does not name them.
func (w *workloads) strays(r *v1beta1.Rollout) (all []*kruise.Workload) {
	for kind := range resources {
		for _, object := range w.informers(kind).in(r.Namespace) {
			if one, is := object.(*kruise.Workload); is && kruise.Marked(r, one) && !kruise.References(r, one) {
				all = append(all, one)
			}
		}
	}
	return all
}

// resourceOf returns a workload's resource in its own API version.
func resourceOf(w *kruise.Workload) schema.GroupVersionResource {
	resource := resources[kruise.KindOf(w.Ref.APIVersion, w.Ref.Kind)]
	if _, version, is := strings.Cut(w.Ref.APIVersion, "/"); is {
		resource.Version = version
	}
	return resource
}
