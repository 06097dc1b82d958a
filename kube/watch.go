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

// Subscriptions wake those who wait until something changes; keys name what. The zero value is usable.
type Subscriptions[K comparable] struct {
	mu      sync.Mutex
	waiting map[K]map[chan struct{}]struct{}
}

// Subscribe begins to listen. wake gets a value when one of the keys has changed since the last value was taken. leave must be called.
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

// Notify wakes everybody who waits for a key.
func (s *Subscriptions[K]) Notify(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for wake := range s.waiting[key] {
		Wake(wake)
	}
}

// Wake wakes one who waits. Who has not taken the last value yet sees this change as well.
func Wake(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// mistrust is how long a watch that reported an error is not relied on.
const mistrust = 30 * time.Second

// WatchTrouble remembers when a watch last reported an error, in Unix nanoseconds; 0 never.
type WatchTrouble struct{ at atomic.Int64 }

// Note notes an error, and says whether it is the first one.
func (t *WatchTrouble) Note(now time.Time) (first bool) { return t.at.Swap(now.UnixNano()) == 0 }

// Recent says that the watch cannot be relied on.
func (t *WatchTrouble) Recent(now time.Time) bool {
	at := t.at.Load()
	return at != 0 && now.Sub(time.Unix(0, at)) <= mistrust
}

// Watched is what a watch covers: the objects of a resource, in a namespace or, with "", in all of them, that a label selector matches.
// Transform keeps of each what is needed, and Indexers find them.
type Watched struct {
	Resource  schema.GroupVersionResource
	Namespace string
	Selector  string
	Transform cache.TransformFunc
	Indexers  cache.Indexers
}

// SharedWatch is one watch that many share. Its Informer is to be run.
type SharedWatch struct {
	Informer cache.SharedIndexInformer
	trouble  WatchTrouble
}

// NewSharedWatch prepares a watch. warn takes its first error that is worth a word: every watch ends now and then, which is no trouble, nor
// is a resource that the cluster does not have.
func NewSharedWatch(client dynamic.Interface, of Watched, now func() time.Time, warn func(error)) *SharedWatch {
	filtered := func(o *metav1.ListOptions) { o.LabelSelector = of.Selector }
	indexers := of.Indexers
	if indexers == nil {
		indexers = cache.Indexers{}
	}
	w := &SharedWatch{Informer: dynamicinformer.NewFilteredDynamicInformer(client, of.Resource, of.Namespace, 0, indexers,
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
		panic("a watch that is not running yet does not let itself be prepared")
	}
	return w
}

// Live says whether changes can be relied on to arrive.
func (w *SharedWatch) Live(now time.Time) bool {
	return w.Informer.HasSynced() && !w.trouble.Recent(now)
}

// Served says whether a cluster has a resource. One whose cluster does not answer counts as absent for now.
func Served(d discovery.DiscoveryInterface, resource schema.GroupVersionResource) bool {
	list, err := d.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource })
}

// Work does what a queue asks until it is shut down. What fails is done again later.
func Work[K comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], do func(context.Context, K) error) {
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
