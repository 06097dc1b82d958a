package watch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Source is where a watch gets the objects of a resource.
type Source struct {
	in func(namespace string, o Options) cache.ListerWatcher
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
	return Source{in: func(namespace string, selected Options) cache.ListerWatcher {
		objects := of(namespace)
		return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector, o.FieldSelector = selected.Labels, selected.Fields
				return objects.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector, o.FieldSelector = selected.Labels, selected.Fields
				return objects.Watch(ctx, o)
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
