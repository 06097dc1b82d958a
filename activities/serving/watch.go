package serving

import (
	"context"
	"log/slog"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

type name struct{ namespace, deployment string }

// Watch caches the servings' objects of one cluster by watches on their Deployments, Services and ConfigMaps only: a
// label selector excludes all other objects. It wakes subscribers of a Deployment when that changes, and passes every
// change to the Observer. If a namespace lacks a permission, the others keep working.
type Watch struct {
	watch.Background
	deployments *watch.Watch[*appsv1.Deployment]
	// dependents are the watches on Services and ConfigMaps.
	dependents []*watch.Watch[*dependent]

	waiting watch.Subscriptions[name]
	digests *digests

	// changed is called with every Deployment whose objects have changed; nil: no call. It is set before Start.
	changed func(name)
}

// byDeployment is the index of Services and ConfigMaps by the Deployment to which they belong.
const byDeployment = "deployment"

// NewWatch prepares the watches on these namespaces; none means all. It sends no request before Start.
func NewWatch(client kube.Typed, namespaces []string, log *slog.Logger) *Watch {
	w := &Watch{digests: newDigests()}
	options := watch.Options{Namespaces: namespaces, Labels: kuscia.LabelController + "=" + kuscia.ControllerName,
		Failed: watch.Once(func(_ string, err error) {
			log.Warn("the watch on the objects of servings failed; retrying", "error", err)
		})}
	w.deployments = watch.New(watch.From(client, client.AppsV1().Deployments), watch.Whole[*appsv1.Deployment], options).
		Handle(watch.OnChange(func(d *appsv1.Deployment) { w.dispatch(d) }))
	w.dependents = []*watch.Watch[*dependent]{
		watch.New(watch.From(client, client.CoreV1().Services), toDependent[*corev1.Service](w.digests), options),
		watch.New(watch.From(client, client.CoreV1().ConfigMaps), toDependent[*corev1.ConfigMap](w.digests), options)}
	for _, one := range w.dependents {
		one.Index(byDeployment, func(b *dependent) []string {
			return []string{b.Namespace + "/" + b.Labels[kuscia.LabelWorkload]}
		}).Handle(watch.OnChange(func(b *dependent) { w.dispatch(b) }))
	}
	return w
}

// dispatch wakes the subscribers of the Deployment of an object that has changed.
func (w *Watch) dispatch(object metav1.Object) {
	of := name{object.GetNamespace(), object.GetLabels()[kuscia.LabelWorkload]}
	w.waiting.Notify(of)
	if w.changed != nil {
		w.changed(of)
	}
}

// Start starts the watches and returns at once.
func (w *Watch) Start(context.Context) error {
	w.Begin(w.deployments.Run, w.dependents[0].Run, w.dependents[1].Run)
	return nil
}

// live reports whether the watches on a namespace are reliable.
func (w *Watch) live(namespace string) bool {
	return w.deployments.Live(namespace) && !slices.ContainsFunc(w.dependents, func(one *watch.Watch[*dependent]) bool {
		return !one.Live(namespace)
	})
}

// deployment returns a Deployment from the cache, nil if there is none; live reports whether the cache is reliable.
func (w *Watch) deployment(of name) (d *appsv1.Deployment, live bool) {
	if !w.live(of.namespace) {
		return nil, false
	}
	return w.deployments.Get(of.namespace, of.deployment), true
}

// checkDependents returns which of these objects of a Deployment do not exist, and the changes by other clients to
// those that do.
func (w *Watch) checkDependents(d *appsv1.Deployment, objects []string) (missing []string, drift []kuscia.Drift) {
	there := w.dependentsOf(name{d.Namespace, d.Name})
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
	if !w.live(d.Namespace) {
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
func (w *Watch) dependentsOf(of name) map[string]*dependent {
	there := map[string]*dependent{}
	for _, one := range w.dependents {
		for _, b := range one.By(byDeployment, of.namespace+"/"+of.deployment) {
			there[b.Kind+"/"+b.Name] = b
		}
	}
	return there
}

// hasOnly reports whether nothing but these objects belongs to a Deployment. It is true only when the watch of each
// kind has delivered an object that this very step has written: then it has also delivered everything older. Otherwise
// the API server has to be queried.
func (w *Watch) hasOnly(of name, objects []string, token serving.FencingToken) bool {
	if !w.live(of.namespace) {
		return false
	}
	there := w.dependentsOf(of)
	seen := map[string]bool{}
	for _, one := range objects {
		b, is := there[one]
		if !is || b.token != token {
			return false
		}
		seen[b.Kind] = true
	}
	return len(there) == len(objects) && len(seen) == len(w.dependents)
}
