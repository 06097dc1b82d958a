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

// Watch caches the servings' objects of one cluster by watches on their Deployments, Services and ConfigMaps only: a
// label selector excludes all other objects. It wakes subscribers of a Deployment when that changes, and passes every
// change to the Observer.
type Watch struct {
	// scopes are the watches by namespace; "" if one covers all. If one lacks a permission, the others keep working.
	scopes     map[string]*scope
	namespaced bool
	log        *slog.Logger

	waiting kube.Subscriptions[name]
	digests *digests

	mu      sync.Mutex
	changed func(name)

	stop   chan struct{}
	ending sync.WaitGroup
}

// byDeployment is the index of Services and ConfigMaps by the Deployment to which they belong.
const byDeployment = "deployment"

func deploymentOf(object any) ([]string, error) {
	if b, is := object.(*dependent); is {
		return []string{b.Namespace + "/" + b.Labels[kuscia.LabelWorkload]}, nil
	}
	return nil, nil
}

type scope struct {
	deployments cache.SharedIndexInformer
	// others are the watches on Services and ConfigMaps.
	dependents []cache.SharedIndexInformer
	trouble    kube.WatchTrouble
}

func (s *scope) informers() []cache.SharedIndexInformer {
	return append([]cache.SharedIndexInformer{s.deployments}, s.dependents...)
}

// live reports whether the watches are reliable.
func (s *scope) live() bool {
	for _, informer := range s.informers() {
		if !informer.HasSynced() {
			return false
		}
	}
	return !s.trouble.Recent(time.Now())
}

// NewWatch prepares the watches on these namespaces; none means all. It sends no request before Start.
func NewWatch(client kube.Typed, namespaces []string, log *slog.Logger) (*Watch, error) {
	w := &Watch{scopes: map[string]*scope{}, namespaced: len(namespaces) > 0, log: log, digests: newDigests(),
		stop: make(chan struct{})}
	if !w.namespaced {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		services := informerOf(client, client.CoreV1().Services(namespace), &corev1.Service{})
		configMaps := informerOf(client, client.CoreV1().ConfigMaps(namespace), &corev1.ConfigMap{})
		one := &scope{deployments: informerOf(client, client.AppsV1().Deployments(namespace), &appsv1.Deployment{}),
			dependents: []cache.SharedIndexInformer{services, configMaps}}
		w.scopes[namespace] = one
		for _, informer := range one.informers() {
			if err := w.prepare(one, informer); err != nil {
				return nil, err
			}
		}
		for _, informer := range one.dependents {
			indexed := informer.AddIndexers(cache.Indexers{byDeployment: deploymentOf})
			if err := errors.Join(informer.SetTransform(w.toDependent), indexed); err != nil {
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

// informerOf returns an informer for the objects of one kind that belong to servings.
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
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, client), one, 0,
		cache.Indexers{})
}

func (w *Watch) prepare(one *scope, informer cache.SharedIndexInformer) error {
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if one.trouble.Note(time.Now()) {
			w.log.Warn("the watch on the objects of servings failed; retrying", "error", err)
		}
	})
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: w.dispatch, UpdateFunc: func(_, object any) { w.dispatch(object) }, DeleteFunc: w.dispatch,
	})
	return err
}

// dispatch wakes the subscribers of the Deployment of an event.
func (w *Watch) dispatch(object any) {
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
	heard := w.changed
	w.mu.Unlock()
	if heard != nil {
		heard(of)
	}
}

// onChange sets the function that is called with every Deployment whose objects have changed.
func (w *Watch) onChange(f func(name)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed = f
}

// Start starts the watches and returns at once.
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

// scope returns the scope that covers a namespace; nil if there is none.
func (w *Watch) scope(namespace string) *scope {
	if !w.namespaced {
		namespace = metav1.NamespaceAll
	}
	return w.scopes[namespace]
}

// deployment returns a Deployment from the cache, nil if there is none; live reports whether the cache is reliable.
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

// checkDependents returns which of these objects of a Deployment do not exist, and the changes by other clients to
// those that do.
func (w *Watch) checkDependents(d *appsv1.Deployment, objects []string) (missing []string, drift []kuscia.Drift) {
	watched := w.scope(d.Namespace)
	if watched == nil {
		return nil, nil
	}
	there := watched.dependentsOf(name{d.Namespace, d.Name})
	for _, one := range objects {
		if b, is := there[one]; is {
			drift = append(drift, b.drift...)
		} else {
			missing = append(missing, one)
		}
	}
	return missing, drift
}

// completeSnapshot returns the snapshot of a Deployment; nil if the watch is unreliable, or if an object is missing or
// was changed by another client, which the Observer reports.
func (w *Watch) completeSnapshot(d *appsv1.Deployment) *serving.DeploymentSnapshot {
	watched := w.scope(d.Namespace)
	if watched == nil || !watched.live() {
		return nil
	}
	missing, drift := w.checkDependents(d, serving.ObjectsOf(d))
	if intact, err := w.digests.intact(d); err != nil || !intact || len(missing)+len(drift) > 0 {
		return nil
	}
	seen := serving.NewDeploymentSnapshot(d, nil, nil)
	return &seen
}

// dependentsOf returns the Services and ConfigMaps of a Deployment, by "Service/name".
func (s *scope) dependentsOf(of name) map[string]*dependent {
	there := map[string]*dependent{}
	for _, informer := range s.dependents {
		found, err := informer.GetIndexer().ByIndex(byDeployment, of.namespace+"/"+of.deployment)
		if err != nil {
			continue
		}
		for _, object := range found {
			if b, is := object.(*dependent); is {
				there[b.Kind+"/"+b.Name] = b
			}
		}
	}
	return there
}

// hasOnly reports whether nothing but these objects belongs to a Deployment. It is true only when the watch of each
// kind has delivered an object that this very step has written: then it has also delivered everything older. Otherwise
// the API server has to be queried.
func (w *Watch) hasOnly(of name, objects []string, token serving.FencingToken) bool {
	watched := w.scope(of.namespace)
	if watched == nil || !watched.live() {
		return false
	}
	there := watched.dependentsOf(of)
	seen := map[string]bool{}
	for _, one := range objects {
		b, is := there[one]
		if !is || b.token != token {
			return false
		}
		seen[b.Kind] = true
	}
	return len(there) == len(objects) && len(seen) == len(watched.dependents)
}
