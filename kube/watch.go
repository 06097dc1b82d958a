package kube

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Subscriptions wakes goroutines that wait for a change of a key. The zero value is usable.
type Subscriptions[K comparable] struct {
	mu      sync.Mutex
	waiting map[K]map[chan struct{}]struct{}
}

// Subscribe starts a subscription. wake receives a value when one of the keys has changed since the last value was
// received. leave must be called.
func (s *Subscriptions[K]) Subscribe(keys ...K) (wake chan struct{}, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = map[K]map[chan struct{}]struct{}{}
	}
	wake = make(chan struct{}, 1)
	for _, key := range keys {
		if s.waiting[key] == nil {
			s.waiting[key] = map[chan struct{}]struct{}{}
		}
		s.waiting[key][wake] = struct{}{}
	}
	return wake, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range keys {
			if delete(s.waiting[key], wake); len(s.waiting[key]) == 0 {
				delete(s.waiting, key)
			}
		}
	}
}

// Notify wakes all subscribers of a key.
func (s *Subscriptions[K]) Notify(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.waiting[key] {
		Wake(wake)
	}
}

// Wake sends a value unless one is pending already; the pending one covers this change too.
func Wake(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// mistrust is how long a watch is considered unreliable after an error.
const distrustPeriod = 30 * time.Second

// WatchTrouble is the time of a watch's last error, in Unix nanoseconds; 0: never.
type WatchTrouble struct{ at atomic.Int64 }

// Note records an error and reports whether it is the first one.
func (t *WatchTrouble) Note(now time.Time) (first bool) { return t.at.Swap(now.UnixNano()) == 0 }

// Recent reports whether the watch had an error recently, so that it is unreliable.
func (t *WatchTrouble) Recent(now time.Time) bool {
	at := t.at.Load()
	return at != 0 && now.Sub(time.Unix(0, at)) <= distrustPeriod
}

// Watched is what a watch covers: the objects of a resource that a label selector matches, in a namespace or, with "",
// in all. Transform reduces each object to what is needed; Indexers index them.
type Watched struct {
	Resource  schema.GroupVersionResource
	Namespace string
	Selector  string
	Transform cache.TransformFunc
	Indexers  cache.Indexers
}

// SharedWatch is one watch with many users. The caller has to run its Informer.
type SharedWatch struct {
	Informer cache.SharedIndexInformer
	trouble  WatchTrouble
}

// NewSharedWatch prepares a watch. warn is called with the first relevant error: an expired watch and a resource that
// the cluster does not have are not reported.
func NewSharedWatch(client dynamic.Interface, of Watched, now func() time.Time, warn func(error)) *SharedWatch {
	filtered := func(o *metav1.ListOptions) { o.LabelSelector = of.Selector }
	indexers := of.Indexers
	if indexers == nil {
		indexers = cache.Indexers{}
	}
	w := &SharedWatch{Informer: dynamicinformer.NewFilteredDynamicInformer(client, of.Resource, of.Namespace, 0,
		indexers,
		filtered).Informer()}
	transforms := w.Informer.SetTransform(of.Transform)
	handles := w.Informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return
		}
		if first := w.trouble.Note(now()); first && !apierrors.IsNotFound(err) {
			warn(err)
		}
	})
	if transforms != nil || handles != nil {
		panic("a watch that is not running could not be configured")
	}
	return w
}

// Live reports whether the watch has synced and had no recent error.
func (w *SharedWatch) Live(now time.Time) bool {
	return w.Informer.HasSynced() && !w.trouble.Recent(now)
}

// Served reports whether a cluster has a resource. If the cluster does not answer, it counts as absent for now.
func Served(d discovery.DiscoveryInterface, resource schema.GroupVersionResource) bool {
	list, err := d.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == resource.Resource
	})
}

// Work processes a queue until it is shut down. A failed key is retried later.
func Work[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K],
	do func(context.Context, K) error) {
	for {
		key, stopping := queue.Get()
		if stopping {
			return
		}
		if err := do(ctx, key); err != nil && ctx.Err() == nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}
