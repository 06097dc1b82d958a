package serving

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

type name struct{ namespace, deployment string }

// Watch holds what the servings of one cluster run, by watches on their Deployments, Services and ConfigMaps alone: of everybody's objects
// it sees none. Whoever waits for a Deployment is woken when it changes, and the Observer hears of every change.
type Watch struct {
	// scopes are what is watched by namespace; "" when one covers all. One that lacks a permission leaves the others alone.
	scopes     map[string]*scope
	namespaced bool
	log        *slog.Logger

	waiting kube.Subscriptions[name]
	digests *digests

	mu    sync.Mutex
	heard func(name)

	stop   chan struct{}
	ending sync.WaitGroup
}

// byDeployment finds what belongs to a Deployment.
const byDeployment = "deployment"

func deploymentOf(object any) ([]string, error) {
	if b, is := object.(*part); is {
		return []string{b.Namespace + "/" + b.Labels[kuscia.LabelWorkload]}, nil
	}
	return nil, nil
}

type scope struct {
	deployments cache.SharedIndexInformer
	// others are the Services and ConfigMaps.
	others  []cache.SharedIndexInformer
	trouble kube.WatchTrouble
}

func (s *scope) informers() []cache.SharedIndexInformer {
	return append([]cache.SharedIndexInformer{s.deployments}, s.others...)
}

// live says whether the watches can be relied on.
func (s *scope) live() bool {
	for _, informer := range s.informers() {
		if !informer.HasSynced() {
			return false
		}
	}
	return !s.trouble.Recent(time.Now())
}

// NewWatch prepares the watches on these namespaces; none: all. Nobody is asked before Start.
func NewWatch(client kube.Typed, namespaces []string, log *slog.Logger) (*Watch, error) {
	w := &Watch{scopes: map[string]*scope{}, namespaced: len(namespaces) > 0, log: log, digests: newDigests(), stop: make(chan struct{})}
	if !w.namespaced {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		services := informerOf(client, client.CoreV1().Services(namespace), &corev1.Service{})
		configMaps := informerOf(client, client.CoreV1().ConfigMaps(namespace), &corev1.ConfigMap{})
		one := &scope{deployments: informerOf(client, client.AppsV1().Deployments(namespace), &appsv1.Deployment{}),
			others: []cache.SharedIndexInformer{services, configMaps}}
		w.scopes[namespace] = one
		for _, informer := range one.informers() {
			if err := w.prepare(one, informer); err != nil {
				return nil, err
			}
		}
		for _, informer := range one.others {
			indexed := informer.AddIndexers(cache.Indexers{byDeployment: deploymentOf})
			if err := errors.Join(informer.SetTransform(w.toPart), indexed); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// listed is the client of one kind in a namespace.
type listed[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// informerOf watches those objects of one kind that servings made.
func informerOf[L runtime.Object](client kube.Typed, objects listed[L], one runtime.Object) cache.SharedIndexInformer {
	ours := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = kuscia.LabelController + "=" + kuscia.ControllerName
		return o
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, ours(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, ours(o))
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, client), one, 0, cache.Indexers{})
}

func (w *Watch) prepare(one *scope, informer cache.SharedIndexInformer) error {
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if one.trouble.Note(time.Now()) {
			w.log.Warn("the watch on what servings run does not work; it is begun again and again", "error", err)
		}
	})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: w.tell, UpdateFunc: func(_, object any) { w.tell(object) }, DeleteFunc: w.tell,
	})
	return err
}

// tell wakes everybody who waits for the Deployment of an event.
func (w *Watch) tell(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return
	}
	of := name{m.GetNamespace(), m.GetLabels()[kuscia.LabelWorkload]}
	w.waiting.Notify(of)
	w.mu.Lock()
	heard := w.heard
	w.mu.Unlock()
	if heard != nil {
		heard(of)
	}
}

// onChange has f called with every Deployment that something has changed of.
func (w *Watch) onChange(f func(name)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = f
}

// Start begins to watch; it returns at once.
func (w *Watch) Start(context.Context) error {
	for _, one := range w.scopes {
		for _, informer := range one.informers() {
			w.ending.Go(func() { informer.Run(w.stop) })
		}
	}
	return nil
}

// Stop ends the watches.
func (w *Watch) Stop(context.Context) error {
	close(w.stop)
	w.ending.Wait()
	return nil
}

// scope is what covers a namespace; nil when nothing does.
func (w *Watch) scope(namespace string) *scope {
	if !w.namespaced {
		namespace = metav1.NamespaceAll
	}
	return w.scopes[namespace]
}

// deployment is a Deployment as the watch has it, nil when there is none; live says whether that can be relied on.
func (w *Watch) deployment(of name) (d *appsv1.Deployment, live bool) {
	watched := w.scope(of.namespace)
	if watched == nil || !watched.live() {
		return nil, false
	}
	object, exists, err := watched.deployments.GetStore().GetByKey(of.namespace + "/" + of.deployment)
	if err != nil || !exists {
		return nil, err == nil
	}
	d, is := object.(*appsv1.Deployment)
	return d, is
}

// belongings are what belongs to a Deployment: which of these objects are not there, and what others have changed of those that are.
func (w *Watch) belongings(d *appsv1.Deployment, objects []string) (missing []string, drift []kuscia.Drift) {
	watched := w.scope(d.Namespace)
	if watched == nil {
		return nil, nil
	}
	there := watched.partsOf(name{d.Namespace, d.Name})
	for _, one := range objects {
		if b, is := there[one]; is {
			drift = append(drift, b.drift...)
		} else {
			missing = append(missing, one)
		}
	}
	return missing, drift
}

// whole is what there is to see of a Deployment; nil where the watch cannot be relied on, or something is missing or was changed by others, which the Observer tells of.
func (w *Watch) whole(d *appsv1.Deployment) *serving.Seen {
	watched := w.scope(d.Namespace)
	if watched == nil || !watched.live() {
		return nil
	}
	missing, drift := w.belongings(d, serving.ObjectsOf(d))
	if intact, err := w.digests.intact(d); err != nil || !intact || len(missing)+len(drift) > 0 {
		return nil
	}
	seen := serving.See(d, nil, nil)
	return &seen
}

// partsOf are the Services and ConfigMaps of a Deployment, by "Service/name".
func (s *scope) partsOf(of name) map[string]*part {
	there := map[string]*part{}
	for _, informer := range s.others {
		found, err := informer.GetIndexer().ByIndex(byDeployment, of.namespace+"/"+of.deployment)
		if err != nil {
			continue
		}
		for _, object := range found {
			if b, is := object.(*part); is {
				there[b.Kind+"/"+b.Name] = b
			}
		}
	}
	return there
}

// only says that nothing belongs to a Deployment but these objects. The watch of a kind tells so once it has seen what this very step has written of that kind: what was
// there before it has seen by then, too. Otherwise the API server has to be asked.
func (w *Watch) only(of name, objects []string, token serving.FencingToken) bool {
	watched := w.scope(of.namespace)
	if watched == nil || !watched.live() {
		return false
	}
	there := watched.partsOf(of)
	seen := map[string]bool{}
	for _, one := range objects {
		b, is := there[one]
		if !is || b.token != token {
			return false
		}
		seen[b.Kind] = true
	}
	return len(there) == len(objects) && len(seen) == len(watched.others)
}
