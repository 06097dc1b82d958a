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

// resources are the workloads that can be released, by kind as kruise.KindOf names it, each in the version that is watched.
var resources = map[string]schema.GroupVersionResource{
	"apps/Deployment":            {Group: "apps", Version: "v1", Resource: "deployments"},
	"apps/StatefulSet":           {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"apps/DaemonSet":             {Group: "apps", Version: "v1", Resource: "daemonsets"},
	"apps.kruise.io/CloneSet":    {Group: "apps.kruise.io", Version: "v1alpha1", Resource: "clonesets"},
	"apps.kruise.io/StatefulSet": {Group: "apps.kruise.io", Version: "v1beta1", Resource: "statefulsets"},
	"apps.kruise.io/DaemonSet":   {Group: "apps.kruise.io", Version: "v1alpha1", Resource: "daemonsets"},
}

// lookForKinds is how often kinds that the cluster did not have are looked for again, lookSoon how often while it has none at all: then it is
// out of reach.
const lookForKinds, lookSoon = 5 * time.Minute, time.Second

// workloads watches the workloads that Rollouts name, by their mark.
type workloads struct {
	objects dynamic.Interface
	options Options
	// changed is told of each workload that has changed, began when a kind is watched from now on: what happened to its workloads before was told
	// to nobody.
	changed func(*kruise.Workload)
	began   func()
	// unwatched has kinds looked for at once.
	unwatched chan struct{}

	mu       sync.Mutex
	watching map[string]informers
}

func newWorkloads(objects dynamic.Interface, options Options, changed func(*kruise.Workload), began func()) *workloads {
	return &workloads{objects: objects, options: options, changed: changed, began: began, unwatched: make(chan struct{}, 1),
		watching: map[string]informers{}}
}

// run begins a watch for each kind that the cluster has, and looks for the others now and then.
func (w *workloads) run(ctx context.Context) {
	var ending sync.WaitGroup
	defer ending.Wait()
	for {
		again := lookSoon
		for kind, resource := range resources {
			if w.informers(kind) == nil && w.options.Served(resource) {
				w.watch(ctx, kind, resource, &ending)
			}
			if w.informers(kind) != nil {
				again = lookForKinds
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		case <-w.unwatched:
		}
	}
}

func (w *workloads) watch(ctx context.Context, kind string, resource schema.GroupVersionResource, ending *sync.WaitGroup) {
	found, err := watch(w.objects, w.options.Namespaces, watched{resource: resource, selector: gate.Label, read: readWorkload,
		what: "workloads of kind " + kind, log: w.options.Log, tell: func(object any) {
			if one, is := object.(*kruise.Workload); is {
				w.changed(one)
			}
		}})
	if err != nil {
		return // only of an informer that has started
	}
	w.mu.Lock()
	w.watching[kind] = found
	w.mu.Unlock()
	ending.Go(func() { found.run(ctx) })
	ending.Go(func() {
		if found.synced(ctx) {
			w.began()
		}
	})
}

// readWorkload keeps of a workload what a Rollout needs to know.
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

// named is the workload that an object names; nil when there is none. One without a mark is not watched yet, and is asked for.
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
	found, err := w.objects.Resource(resource).Namespace(r.Namespace).Get(ctx, r.Spec.WorkloadRef.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if watched == nil { // its definition has just come
		select {
		case w.unwatched <- struct{}{}:
		default:
		}
	}
	return kruise.ReadWorkload(found), nil
}

// strays are the workloads with the mark of an object that does not name them.
func (w *workloads) strays(r *v1beta1.Rollout) (all []*kruise.Workload) {
	for kind := range resources {
		for _, object := range w.informers(kind).in(r.Namespace) {
			if one, is := object.(*kruise.Workload); is && kruise.Marked(r, one) && !kruise.Names(r, one) {
				all = append(all, one)
			}
		}
	}
	return all
}

// resourceOf is where a workload is served.
func resourceOf(w *kruise.Workload) schema.GroupVersionResource {
	resource := resources[kruise.KindOf(w.Ref.APIVersion, w.Ref.Kind)]
	if _, version, is := strings.Cut(w.Ref.APIVersion, "/"); is {
		resource.Version = version
	}
	return resource
}
