package workload

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/workloadops"
)

// mistrust is how long a watch that reported an error is not relied on.
const mistrust = 30 * time.Second

// hub wakes those that wait for a workload. It holds one watch per kind (per kind and namespace, when the worker serves only some), on claimed workloads only,
// begun when the first one waits and kept until the end. Of the objects it keeps the names alone.
type hub struct {
	client  any
	kinds   map[string]source
	options Options

	ctx    context.Context
	cancel context.CancelFunc
	ending sync.WaitGroup

	mu      sync.Mutex
	watches map[scope]*sharedWatch
	waiting map[target]map[chan struct{}]struct{}
}

// scope is what one watch covers; namespace "" is all of them.
type scope struct{ kind, namespace string }

// target is one workload.
type target struct{ kind, namespace, name string }

// sharedWatch is one running watch.
type sharedWatch struct {
	informer cache.SharedIndexInformer
	// troubled is when the watch last reported an error, in Unix nanoseconds; 0 never.
	troubled atomic.Int64
}

func newHub(client any, kinds map[string]source, options Options) *hub {
	ctx, cancel := context.WithCancel(context.Background())
	return &hub{client: client, kinds: kinds, options: options, ctx: ctx, cancel: cancel,
		watches: map[scope]*sharedWatch{}, waiting: map[target]map[chan struct{}]struct{}{}}
}

// subscription is one waiting attempt's place at the hub.
type subscription struct {
	// wake gets a value when one of the workloads has changed since the last one was taken.
	wake    chan struct{}
	watches []*sharedWatch
	leave   func()
}

// subscribe begins to listen for changes of workloads. leave must be called.
func (h *hub) subscribe(targets ...target) subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := subscription{wake: make(chan struct{}, 1)}
	for _, t := range targets {
		if h.waiting[t] == nil {
			h.waiting[t] = map[chan struct{}]struct{}{}
		}
		h.waiting[t][s.wake] = struct{}{}
		s.watches = append(s.watches, h.watch(t))
	}
	s.leave = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, t := range targets {
			delete(h.waiting[t], s.wake)
			if len(h.waiting[t]) == 0 {
				delete(h.waiting, t)
			}
		}
	}
	return s
}

// live says whether changes can be relied on to arrive.
func (s subscription) live(now time.Time) bool {
	for _, w := range s.watches {
		troubled := w.troubled.Load()
		if !w.informer.HasSynced() || troubled != 0 && now.Sub(time.Unix(0, troubled)) <= mistrust {
			return false
		}
	}
	return true
}

// within is how long to listen without having looked again: until the next look that is due, and less while a watch cannot be relied on, or does not tell
// what is waited for. 0: there is no need to look.
func (s subscription) within(now, nextLook time.Time, untold bool) time.Duration {
	var d time.Duration
	if now.Before(nextLook) {
		d = nextLook.Sub(now)
	}
	if (untold || !s.live(now)) && (d == 0 || d > rereadEvery) {
		d = rereadEvery
	}
	return d
}

// ring wakes the one who waits.
func (s subscription) ring() { ring(s.wake) }

func ring(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it has not taken the last one yet: it will see this change as well
	}
}

// watch is the running watch that covers a workload; it is begun when there is none.
func (h *hub) watch(t target) *sharedWatch {
	s := scope{kind: t.kind}
	if len(h.options.Namespaces) > 0 {
		s.namespace = t.namespace
	}
	if w := h.watches[s]; w != nil {
		return w
	}
	w := &sharedWatch{}
	w.informer = cache.NewSharedIndexInformerWithOptions(h.listWatch(s), h.kinds[s.kind].example(), cache.SharedIndexInformerOptions{})
	h.watches[s] = w
	log := h.options.Logger.With("kind", s.kind, "namespace", cmp.Or(s.namespace, "all"))
	if err := h.prepare(s, w, log); err != nil {
		panic(err) // the informer is not running yet: nothing of this can fail
	}
	h.ending.Add(1)
	go func() {
		defer h.ending.Done()
		w.informer.RunWithContext(h.ctx)
	}()
	return w
}

func (h *hub) prepare(s scope, w *sharedWatch, log *slog.Logger) error {
	if err := w.informer.SetTransform(nameOnly); err != nil {
		return err
	}
	err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		first := w.troubled.Swap(h.options.Now().UnixNano()) == 0
		if first {
			log.Warn("the watch on claimed workloads does not work; they are read every second instead", "error", err)
		}
	})
	if err != nil {
		return err
	}
	tell := func(obj any) { h.tell(s.kind, obj) }
	_, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		UpdateFunc: func(_, obj any) { tell(obj) },
		DeleteFunc: tell,
	})
	return err
}

func (h *hub) listWatch(s scope) cache.ListerWatcher {
	k := h.kinds[s.kind]
	selector := workloadops.LabelClaimed + "=" + workloadops.LabelClaimedValue
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return k.listAll(ctx, s.namespace, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return k.watchAll(ctx, s.namespace, options)
		},
	}, h.client)
}

// tell wakes everybody who waits for the workload of an event.
func (h *hub) tell(kind string, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for wake := range h.waiting[target{kind, m.GetNamespace(), m.GetName()}] {
		ring(wake)
	}
}

func (h *hub) stop() {
	h.cancel()
	h.ending.Wait()
}

// nameOnly keeps of an object what the watch needs: its name and version.
func nameOnly(obj any) (any, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
	}}, nil
}
