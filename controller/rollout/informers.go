package rollout

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// watchSpec describes what is watched, and the callback for changes.
type watchSpec struct {
	resource schema.GroupVersionResource
	// selector is a label selector; "" watches all objects of the resource.
	selector string
	resync   time.Duration
	// read transforms an object into what is cached.
	read cache.TransformFunc
	// notify is called with each object that was added, changed or deleted.
	notify func(object any)
	// what names the objects in log messages.
	what string
	// forbidden is a log text: what does not work without the permission to watch, and which permissions are needed.
	forbidden string
	log       *slog.Logger
}

// noReleases is watchSpec.forbidden for Rollouts and their workloads.
const noReleases = "kubectl changes there start no release until the permissions of deploy/rbac/rollouts.yaml are " +
	"granted; --watch-namespaces limits the namespaces"

// informers watch one resource: in each of some namespaces, or in all.
type informers []cache.SharedIndexInformer

// watch returns informers. They make no request before run.
func watch(objects dynamic.Interface, namespaces []string, w watchSpec) (informers, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all informers
	for _, namespace := range namespaces {
		informer := dynamicinformer.NewFilteredDynamicInformer(objects, w.resource, namespace, w.resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(o *metav1.ListOptions) {
				o.LabelSelector = w.selector
			}).Informer()
		_, added := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.notify,
			UpdateFunc: func(_, object any) { w.notify(object) },
			DeleteFunc: func(object any) {
				if last, is := object.(cache.DeletedFinalStateUnknown); is {
					object = last.Obj
				}
				w.notify(object)
			}})
		err := errors.Join(added, informer.SetTransform(w.read),
			informer.SetWatchErrorHandlerWithContext(w.watchErrorHandler(namespace)))
		if err != nil {
			return nil, err
		}
		all = append(all, informer)
	}
	return all, nil
}

// watchErrorHandler logs once that a resource may not be watched: the permission may never be granted.
func (w watchSpec) watchErrorHandler(namespace string) cache.WatchErrorHandlerWithContext {
	var forbidden sync.Once
	where := "in all namespaces"
	if namespace != metav1.NamespaceAll {
		where = "in namespace " + namespace
	}
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		switch {
		case ctx.Err() != nil:
		case apierrors.IsForbidden(err):
			forbidden.Do(func() {
				w.log.Warn(w.what+" cannot be watched "+where+": "+cmp.Or(w.forbidden, noReleases), "error", err)
			})
		default:
			w.log.Warn(w.what+" cannot be watched "+where+"; retrying", "error", err)
		}
	}
}

// run watches until the context ends.
func (all informers) run(ctx context.Context) {
	var ending sync.WaitGroup
	for _, informer := range all {
		ending.Go(func() { informer.RunWithContext(ctx) })
	}
	ending.Wait()
}

// synced waits until all existing objects are cached; false if the context ends first.
func (all informers) synced(ctx context.Context) bool {
	for _, informer := range all {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return false
		}
	}
	return true
}

// list returns all cached objects.
func (all informers) list() (found []any) {
	for _, informer := range all {
		found = append(found, informer.GetStore().List()...)
	}
	return found
}

// get returns a cached object; nil if it does not exist.
func (all informers) get(namespace, name string) any {
	for _, informer := range all {
		// the key is a string: no error
		if object, there, _ := informer.GetStore().GetByKey(namespace + "/" + name); there {
			return object
		}
	}
	return nil
}

// in returns the cached objects of a namespace.
func (all informers) in(namespace string) (found []any) {
	for _, informer := range all {
		some, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace) // the index exists: no error
		found = append(found, some...)
	}
	return found
}
