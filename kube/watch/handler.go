package watch

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

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
