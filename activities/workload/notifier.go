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

// notifier holds the one watch of claimed workloads: one for each kind (for each kind and namespace, when the worker serves only some),
// begun when somebody first needs it and kept until the end. It wakes those that wait for a workload, and passes every change on to the
// drift detector. Of the objects it keeps what that one compares, and whole those that an attempt follows.
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
	// heard takes every change besides; nil: nobody does.
	heard func(kind string) cache.ResourceEventHandler
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

// passOn has every change told to a handler too. It is to be called before the first watch begins: one that begins later takes what is
// there for news.
func (n *notifier) passOn(heard func(kind string) cache.ResourceEventHandler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = heard
}

// subscription is one waiting attempt's place at the notifier.
type subscription struct {
	// wake gets a value when one of the workloads has changed since the last one was taken.
	wake    chan struct{}
	watches []*kube.SharedWatch
	leave   func()
}

// subscribe begins to listen for changes of workloads. leave must be called.
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

// live says whether changes can be relied on to arrive.
func (s subscription) live(now time.Time) bool {
	return !slices.ContainsFunc(s.watches, func(w *kube.SharedWatch) bool { return !w.Live(now) })
}

// within is how long to listen without having looked again: until the next look that is due, and less while a watch cannot be relied on, or
// does not tell what is waited for. 0: there is no need to look.
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

// covering is the scope of the watch that covers a kind in a namespace.
func (n *notifier) covering(kind, namespace string) scope {
	if len(n.options.Namespaces) == 0 {
		namespace = metav1.NamespaceAll
	}
	return scope{kind, namespace}
}

// watch is the running watch that covers a kind in a namespace; it is begun when there is none.
func (n *notifier) watch(kind, namespace string) *kube.SharedWatch {
	s := n.covering(kind, namespace)
	if w := n.watches[s]; w != nil {
		return w
	}
	w := kube.NewSharedWatch(n.client, kube.Watched{Resource: kinds[s.kind].resource, Namespace: s.namespace,
		Selector: workloadops.SelectClaimed, Transform: n.keep(s.kind), Indexers: cache.Indexers{byClaim: claimOf}}, n.options.Now, func(err error) {
		n.options.Logger.Warn("the watch of claimed workloads does not work: it is retried, and workloads that are waited for are read "+
			"every second", "kind", s.kind, "namespace", cmp.Or(s.namespace, "all"), "error", err)
	})
	n.watches[s] = w
	if err := n.prepare(s, w); err != nil {
		panic(err) // the informer is not running yet: nothing of this can fail
	}
	n.ending.Go(func() { w.Informer.RunWithContext(n.ctx) })
	return w
}

// observe begins to watch a kind wherever the worker serves, though nobody waits.
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

// find is what the watch keeps of a workload; nil when it is not there.
func (n *notifier) find(t target) *resting {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watches[n.covering(t.kind, t.namespace)]
	if w == nil {
		return nil
	}
	obj, _, _ := w.Informer.GetStore().GetByKey(t.namespace + "/" + t.name)
	r, _ := obj.(*resting)
	return r
}

// rests says whether the workload beside which an extra one stands rests under the same claim.
func (n *notifier) rests(extra target, claim string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watches[n.covering(extra.kind, extra.namespace)]
	if w == nil {
		return false
	}
	claimed, err := w.Informer.GetIndexer().ByIndex(byClaim, claim)
	return err == nil && slices.ContainsFunc(claimed, func(obj any) bool {
		r, is := obj.(*resting)
		return is && !r.extra && r.Namespace == extra.namespace && r.rest != nil && r.rest.Template != ""
	})
}

// byClaim finds the workloads that are under one claim.
const byClaim = "claim"

func claimOf(obj any) ([]string, error) {
	if r, is := obj.(*resting); is {
		return []string{r.claim}, nil
	}
	return nil, nil
}

func (n *notifier) prepare(s scope, w *kube.SharedWatch) error {
	tell := func(obj any) { n.tell(s.kind, obj) }
	left := func(obj any) {
		if r := restingOf(obj); r != nil {
			n.followed.drop(target{s.kind, r.Namespace, r.Name})
		}
		tell(obj)
	}
	_, err := w.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, obj any) { tell(obj) }, DeleteFunc: left,
	})
	if err != nil || n.heard == nil {
		return err
	}
	_, err = w.Informer.AddEventHandler(n.heard(s.kind))
	return err
}

// tell wakes everybody who waits for the workload of an event.
func (n *notifier) tell(kind string, obj any) {
	if r := restingOf(obj); r != nil {
		n.waiting.Notify(target{kind, r.Namespace, r.Name})
	}
}

func (n *notifier) stop() {
	n.cancel()
	n.ending.Wait()
}

// keep keeps of an object what the watch needs.
func (n *notifier) keep(kind string) cache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		n.followed.keep(kind, o)
		return newResting(o), nil
	}
}

// restingOf is what an event is about; nil when that is nothing of ours.
func restingOf(obj any) *resting {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	r, _ := obj.(*resting)
	return r
}
