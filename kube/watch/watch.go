// Package watch keeps objects of a cluster in memory by watches, wakes goroutines that wait for a change, processes
// queues of changed objects, and finds out which kinds of objects a cluster has.
package watch

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// distrustPeriod is how long a watch is considered unreliable after an error.
const distrustPeriod = 30 * time.Second

// Options of a watch. The zero value watches all objects in all namespaces.
type Options struct {
	// Namespaces are watched separately, so that one without permission does not disturb the others; none: one watch
	// covers all namespaces.
	Namespaces []string
	// Labels and Fields are selectors.
	Labels, Fields string
	// Resync is how often the handlers receive unchanged objects again, as updated; 0: never.
	Resync time.Duration
	// Synced is called when all existing objects are in memory; nil: no call.
	Synced func()
	// Failed is called with each error of the watch in a namespace (see Once); nil: client-go logs it.
	Failed func(namespace string, err error)
}

// Watch keeps the objects of one resource in memory, each reduced to a T. It is prepared by New, Index and Handle, and
// empty until Run. Its objects are shared and must not be modified.
type Watch[T any] struct {
	source  Source
	options Options
	// example is an object as the source delivers it, transform reduces one to a T.
	example   runtime.Object
	transform cache.TransformFunc
	indexers  cache.Indexers
	handlers  []Handler[T]

	mu sync.RWMutex
	// scopes are the running watches by namespace; "" covers all.
	scopes map[string]*scope
}

// scope is the watch in one namespace, or in all; failedAt is the time of its last error, in Unix nanoseconds.
type scope struct {
	cache.SharedIndexInformer
	failedAt atomic.Int64
}

// New returns a watch that keeps of each object what keep returns.
func New[O runtime.Object, T any](source Source, keep func(O) (T, error), o Options) *Watch[T] {
	return &Watch[T]{source: source, options: o, indexers: cache.Indexers{},
		example: reflect.New(reflect.TypeFor[O]().Elem()).Interface().(runtime.Object),
		transform: func(object any) (any, error) {
			if whole, is := object.(O); is {
				return keep(whole)
			}
			return object, nil // it was reduced before
		}}
}

// Whole is for New: it keeps objects whole.
func Whole[O any](object O) (O, error) { return object, nil }

// Index adds an index by values of the objects; "" is not indexed.
func (w *Watch[T]) Index(name string, values func(T) []string) *Watch[T] {
	w.indexers[name] = func(object any) ([]string, error) {
		one, is := object.(T)
		if !is {
			return nil, nil
		}
		return slices.DeleteFunc(values(one), func(value string) bool { return value == "" }), nil
	}
	return w
}

// Handle adds a receiver of all changes.
func (w *Watch[T]) Handle(h Handler[T]) *Watch[T] {
	w.handlers = append(w.handlers, h)
	return w
}

// Run watches until the context ends. It may be called once.
func (w *Watch[T]) Run(ctx context.Context) {
	namespaces := w.options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	scopes := map[string]*scope{}
	for _, namespace := range namespaces {
		scopes[namespace] = w.scope(namespace)
	}
	w.mu.Lock()
	w.scopes = scopes
	w.mu.Unlock()
	var running sync.WaitGroup
	for _, s := range scopes {
		running.Go(func() { s.RunWithContext(ctx) })
	}
	if w.options.Synced != nil && cache.WaitForCacheSync(ctx.Done(), w.Synced) {
		w.options.Synced()
	}
	running.Wait()
}

// scope prepares the watch in a namespace.
func (w *Watch[T]) scope(namespace string) *scope {
	s := &scope{}
	failed := func(ctx context.Context, failed error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(failed) && !apierrors.IsGone(failed) {
			s.failedAt.Store(time.Now().UnixNano())
			w.options.Failed(namespace, failed)
		}
	}
	again := reconnection{failed: failed}
	if w.options.Failed == nil {
		again.failed = func(context.Context, error) {}
	}
	s.SharedIndexInformer = cache.NewSharedIndexInformerWithOptions(w.source.in(namespace, w.options, again), w.example,
		cache.SharedIndexInformerOptions{ResyncPeriod: w.options.Resync, Indexers: w.indexers,
			ObjectDescription: w.source.resource})
	err := s.SetTransform(w.transform)
	if w.options.Failed != nil {
		err = errors.Join(err, s.SetWatchErrorHandlerWithContext(
			func(ctx context.Context, _ *cache.Reflector, why error) { failed(ctx, why) }))
	}
	for _, h := range w.handlers {
		_, added := s.AddEventHandler(h)
		err = errors.Join(err, added)
	}
	if err != nil {
		panic(err) // impossible: only a running informer returns an error
	}
	return s
}

// Synced reports whether all existing objects are in memory, and the watch is running.
func (w *Watch[T]) Synced() bool {
	all := w.all()
	for _, s := range all {
		if !s.HasSynced() || s.IsStopped() {
			return false
		}
	}
	return len(all) > 0
}

// Live reports whether the watch that covers a namespace has synced and had no recent error, so that it is reliable.
func (w *Watch[T]) Live(namespace string) bool {
	s := w.covering(namespace)
	if s == nil || !s.HasSynced() {
		return false
	}
	at := s.failedAt.Load()
	return at == 0 || time.Since(time.Unix(0, at)) > distrustPeriod
}

// Get returns an object; the zero value of T if it does not exist or is not watched.
func (w *Watch[T]) Get(namespace, name string) (found T) {
	if s := w.covering(namespace); s != nil {
		object, _, _ := s.GetStore().GetByKey(namespace + "/" + name) // the key is a string: no error
		found, _ = object.(T)
	}
	return found
}

// List returns all objects.
func (w *Watch[T]) List() (found []T) {
	for _, s := range w.all() {
		found = appendAll(found, s.GetStore().List())
	}
	return found
}

// By returns the objects with a value of an index.
func (w *Watch[T]) By(index, value string) (found []T) {
	for _, s := range w.all() {
		some, err := s.GetIndexer().ByIndex(index, value)
		if err != nil {
			panic(err) // the index was not added
		}
		found = appendAll(found, some)
	}
	return found
}

// Values returns all values of an index; one that occurs in several namespaces is repeated.
func (w *Watch[T]) Values(index string) (found []string) {
	for _, s := range w.all() {
		found = append(found, s.GetIndexer().ListIndexFuncValues(index)...)
	}
	return found
}

func appendAll[T any](to []T, objects []any) []T {
	for _, object := range objects {
		if one, is := object.(T); is {
			to = append(to, one)
		}
	}
	return to
}

func (w *Watch[T]) all() map[string]*scope {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.scopes
}

func (w *Watch[T]) covering(namespace string) *scope {
	all := w.all()
	if s := all[metav1.NamespaceAll]; s != nil {
		return s
	}
	return all[namespace]
}

// Source is where a watch gets the objects of a resource.
type Source struct {
	in func(namespace string, o Options, again reconnection) cache.ListerWatcher
	// resource names the resource in errors; "": the type of its objects does.
	resource string
}

// resourceClient is a client of one resource, in a namespace or in all.
type resourceClient[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// From returns the source of what a client lists and watches: From(client, client.CoreV1().Services).
func From[L runtime.Object, C resourceClient[L]](client any, of func(namespace string) C) Source {
	return Source{in: func(namespace string, selected Options, again reconnection) cache.ListerWatcher {
		objects := of(namespace)
		return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector, o.FieldSelector = selected.Labels, selected.Fields
				return reconnect(ctx, again, func() (L, error) { return objects.List(ctx, o) })
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector, o.FieldSelector = selected.Labels, selected.Fields
				return reconnect(ctx, again, func() (watch.Interface, error) { return objects.Watch(ctx, o) })
			},
		}, client)
	}}
}

// Untyped returns the source of the objects of any resource.
func Untyped(client dynamic.Interface, resource schema.GroupVersionResource) Source {
	s := From(client, client.Resource(resource).Namespace)
	s.resource = resource.String()
	return s
}

// Handler receives the changes of watched objects. A function that is nil receives none.
type Handler[T any] struct {
	// Added receives new objects, and first those that exist already: for them, initial is true.
	Added   func(object T, initial bool)
	Updated func(before, object T)
	// Deleted receives the last known state, also of an object that was deleted while the watch was interrupted.
	Deleted func(object T)
}

// OnChange returns a handler that calls f with each object that is added, changed or deleted.
func OnChange[T any](f func(T)) Handler[T] {
	return Handler[T]{Added: func(object T, _ bool) { f(object) }, Updated: func(_, object T) { f(object) }, Deleted: f}
}

// OnAdd implements cache.ResourceEventHandler.
func (h Handler[T]) OnAdd(object any, initial bool) {
	if one, is := object.(T); is && h.Added != nil {
		h.Added(one, initial)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h Handler[T]) OnUpdate(before, object any) {
	if one, is := object.(T); is && h.Updated != nil {
		old, _ := before.(T)
		h.Updated(old, one)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h Handler[T]) OnDelete(object any) {
	if last, is := object.(cache.DeletedFinalStateUnknown); is {
		object = last.Obj
	}
	if one, is := object.(T); is && h.Deleted != nil {
		h.Deleted(one)
	}
}

// Once returns a function for Options.Failed that reports the first error in each namespace, unless that is that the
// cluster does not have the resource.
func Once(report func(namespace string, err error)) func(namespace string, err error) {
	var seen sync.Map
	return func(namespace string, err error) {
		if _, before := seen.LoadOrStore(namespace, nil); !before && !apierrors.IsNotFound(err) {
			report(namespace, err)
		}
	}
}

// Where names what the watch in a namespace covers: "all namespaces", or "namespace shop".
func Where(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return "namespace " + namespace
}
