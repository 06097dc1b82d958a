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

// watched says what is watched, and who is told of it.
type watched struct {
	resource schema.GroupVersionResource
	// selector is a label selector; "" watches all objects of the resource.
	selector string
	resync   time.Duration
	// read is what is kept of an object in its stead.
	read cache.TransformFunc
	// tell is told of each object that has come, has changed or has gone.
	tell func(object any)
	// what is how a problem names the objects.
	what string
	// forbidden says what doesn't work while they may not be watched, and which permissions it takes.
	forbidden string
	log       *slog.Logger
}

// noReleases is watched.forbidden of Rollouts and their workloads.
const noReleases = "no release of theirs begins by kubectl there until the permissions of deploy/rbac/rollouts.yaml are given; --watch-namespaces " +
	"limits where they are needed"

// informers watch one resource: in each of some namespaces, or in all.
type informers []cache.SharedIndexInformer

// watch makes informers. They ask nobody before run.
func watch(objects dynamic.Interface, namespaces []string, w watched) (informers, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var all informers
	for _, namespace := range namespaces {
		informer := dynamicinformer.NewFilteredDynamicInformer(objects, w.resource, namespace, w.resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, func(o *metav1.ListOptions) { o.LabelSelector = w.selector }).Informer()
		_, added := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.tell, UpdateFunc: func(_, object any) { w.tell(object) },
			DeleteFunc: func(object any) {
				if last, is := object.(cache.DeletedFinalStateUnknown); is {
					object = last.Obj
				}
				w.tell(object)
			}})
		err := errors.Join(added, informer.SetTransform(w.read), informer.SetWatchErrorHandlerWithContext(w.troubled(namespace)))
		if err != nil {
			return nil, err
		}
		all = append(all, informer)
	}
	return all, nil
}

// troubled says once that something cannot be watched: a permission may stay away for ever.
func (w watched) troubled(namespace string) cache.WatchErrorHandlerWithContext {
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
			w.log.Warn(w.what+" cannot be watched "+where+"; it is tried again", "error", err)
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

// synced waits until all that is there was told; false when the context ends before.
func (all informers) synced(ctx context.Context) bool {
	for _, informer := range all {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return false
		}
	}
	return true
}

// list is what is kept of all objects.
func (all informers) list() (found []any) {
	for _, informer := range all {
		found = append(found, informer.GetStore().List()...)
	}
	return found
}

// get is what is kept of an object; nil when it is not there.
func (all informers) get(namespace, name string) any {
	for _, informer := range all {
		if object, there, _ := informer.GetStore().GetByKey(namespace + "/" + name); there { // the key is a text
			return object
		}
	}
	return nil
}

// in is what is kept of the objects of a namespace.
func (all informers) in(namespace string) (found []any) {
	for _, informer := range all {
		some, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace) // the index is there
		found = append(found, some...)
	}
	return found
}
