package workload

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/workloadops"
)

// notifier holds the watches of claimed workloads: one for each kind (for each kind and namespace, when the worker
// serves only some), started on first use and kept until the end. It wakes the attempts that wait for a workload, and
// passes every change to the drift detector. It keeps only what the drift detector compares, and the complete object of
// workloads that an attempt follows.
type notifier struct {
	client  dynamic.Interface
	options Options

	ctx    context.Context
	cancel context.CancelFunc
	ending sync.WaitGroup

	waiting   kube.Subscriptions[target]
	followed  followed
	revisions revisionWatches

	mu      sync.Mutex
	watches map[scope]*kube.SharedWatch
	// handler also receives every change; nil: none.
	handler func(kind string) cache.ResourceEventHandler
}

// scope is what one watch covers: a kind by pods.Key, in a namespace or, with "", in all of them.
type scope struct{ kind, namespace string }

// target is one workload, its kind by pods.Key.
type target struct{ kind, namespace, name string }

func newNotifier(client dynamic.Interface, options Options) *notifier {
	ctx, cancel := context.WithCancel(context.Background())
	n := &notifier{client: client, options: options, ctx: ctx, cancel: cancel, watches: map[scope]*kube.SharedWatch{},
		followed: followed{objects: map[target]*followedObject{}}}
	n.revisions = revisionWatches{notifier: n, watches: map[revisionScope]*revisionWatch{}}
	return n
}

// onChange registers a handler for every change. It must be called before the first watch starts, because a later
// handler would receive existing objects as new ones.
func (n *notifier) onChange(heard func(kind string) cache.ResourceEventHandler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handler = heard
}

// subscription is one waiting attempt's subscription to changes.
type subscription struct {
	// wake gets a value when one of the workloads has changed since the last value was received.
	wake    chan struct{}
	watches []*kube.SharedWatch
	leave   func()
}

// subscribe subscribes to changes of workloads. leave must be called.
func (n *notifier) subscribe(targets ...target) subscription {
	wake, leave := n.waiting.Subscribe(targets...)
	unfollow := n.followed.begin(targets)
	s := subscription{wake: wake, leave: func() { leave(); unfollow() }}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range targets {
		s.watches = append(s.watches, n.watch(t.kind, t.namespace))
	}
	return s
}

// live reports whether changes are reliably delivered.
func (s subscription) live(now time.Time) bool {
	return !slices.ContainsFunc(s.watches, func(w *kube.SharedWatch) bool { return !w.Live(now) })
}

// maxWait is how long to wait without another read: until the next pod check, and less while a watch is unreliable, or
// when it does not report the awaited condition. 0: no read is needed.
func (s subscription) maxWait(now, nextLook time.Time, unreported bool) time.Duration {
	var d time.Duration
	if now.Before(nextLook) {
		d = nextLook.Sub(now)
	}
	if (unreported || !s.live(now)) && (d == 0 || d > rereadEvery) {
		d = rereadEvery
	}
	return d
}

// covering is the scope of the watch that covers a kind in a namespace.
func (n *notifier) covering(kind, namespace string) scope {
	if len(n.options.Namespaces) == 0 {
		namespace = metav1.NamespaceAll
	}
	return scope{kind, namespace}
}

// watch is the running watch that covers a kind in a namespace; it is started if there is none.
func (n *notifier) watch(kind, namespace string) *kube.SharedWatch {
	s := n.covering(kind, namespace)
	if w := n.watches[s]; w != nil {
		return w
	}
	w := kube.NewSharedWatch(n.client, kube.Watched{Resource: kinds[s.kind].resource, Namespace: s.namespace,
		Selector: workloadops.SelectClaimed, Transform: n.transform(s.kind),
		Indexers: cache.Indexers{byClaim: claimOf}}, n.options.Now, func(err error) {
		n.options.Logger.Warn("the watch of claimed workloads failed; it is retried, and meanwhile awaited workloads "+
			"are read "+
			"every second", "kind", s.kind, "namespace", cmp.Or(s.namespace, "all"), "error", err)
	})
	n.watches[s] = w
	if err := n.prepare(s, w); err != nil {
		panic(err) // cannot fail: the informer is not running yet
	}
	n.ending.Go(func() { w.Informer.RunWithContext(n.ctx) })
	return w
}

// observe starts to watch a kind in all served namespaces, even if no attempt waits.
func (n *notifier) observe(kind string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.options.Namespaces) == 0 {
		n.watch(kind, metav1.NamespaceAll)
	}
	for _, namespace := range n.options.Namespaces {
		n.watch(kind, namespace)
	}
}

// find is what the watch keeps of a workload; nil when the watch does not show it.
func (n *notifier) find(t target) *claimedWorkload {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watches[n.covering(t.kind, t.namespace)]
	if w == nil {
		return nil
	}
	obj, _, _ := w.Informer.GetStore().GetByKey(t.namespace + "/" + t.name)
	r, _ := obj.(*claimedWorkload)
	return r
}

// mainPaused reports whether the workload that belongs to an extra one is paused at a step under the same claim.
func (n *notifier) mainPaused(extra target, claim string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watches[n.covering(extra.kind, extra.namespace)]
	if w == nil {
		return false
	}
	claimed, err := w.Informer.GetIndexer().ByIndex(byClaim, claim)
	return err == nil && slices.ContainsFunc(claimed, func(obj any) bool {
		r, is := obj.(*claimedWorkload)
		return is && !r.extra && r.Namespace == extra.namespace && r.rest != nil && r.rest.Template != ""
	})
}

// byClaim indexes the workloads by their claim.
const byClaim = "claim"

func claimOf(obj any) ([]string, error) {
	if r, is := obj.(*claimedWorkload); is {
		return []string{r.claim}, nil
	}
	return nil, nil
}

func (n *notifier) prepare(s scope, w *kube.SharedWatch) error {
	report := func(obj any) { n.notify(s.kind, obj) }
	left := func(obj any) {
		if r := claimedWorkloadOf(obj); r != nil {
			n.followed.drop(target{s.kind, r.Namespace, r.Name})
		}
		report(obj)
	}
	_, err := w.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: report, UpdateFunc: func(_, obj any) { report(obj) }, DeleteFunc: left,
	})
	if err != nil || n.handler == nil {
		return err
	}
	_, err = w.Informer.AddEventHandler(n.handler(s.kind))
	return err
}

// notify wakes the attempts that wait for the workload of an event.
func (n *notifier) notify(kind string, obj any) {
	if r := claimedWorkloadOf(obj); r != nil {
		n.waiting.Notify(target{kind, r.Namespace, r.Name})
	}
}

func (n *notifier) stop() {
	n.cancel()
	n.ending.Wait()
}

// transform reduces an object to what the watch keeps.
func (n *notifier) transform(kind string) cache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		n.followed.keep(kind, o)
		return newClaimedWorkload(o), nil
	}
}

// claimedWorkloadOf is the object of an event; nil for other objects.
func claimedWorkloadOf(obj any) *claimedWorkload {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	r, _ := obj.(*claimedWorkload)
	return r
}
