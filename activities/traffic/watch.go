package traffic

import (
	"context"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workloadops"
)

// kindRetryInterval is how often the detector looks again for kinds that the cluster does not have; kindRetryAtStart
// applies until the first kind is found.
const kindRetryInterval, kindRetryAtStart = 5 * time.Minute, time.Second

// scope is what one watch covers: a resource in one namespace, or with "" in all namespaces.
type scope struct {
	resource  schema.GroupVersionResource
	namespace string
}

// The indices of the watches.
const (
	byClaim   = "claim"
	byService = "service"
)

// borrowedObject is what a watch keeps of an object that a rollout has borrowed or created.
type borrowedObject struct {
	metav1.PartialObjectMetadata
	kind  drift.Kind
	claim string
	// borrowed means that the rollout changed the object, and did not create it.
	borrowed bool
	// edited are the paths that another client changed, editor the last such client; digest distinguishes one change
	// from another.
	edited         []string
	editor, digest string
}

func (l *borrowedObject) place() place {
	return kind{name: l.kind.Name, gvr: l.kind.Resource}.at(l.Namespace, l.Name)
}

// transformObject reduces an object in a watch to what is compared.
func transformObject(k drift.Kind) cache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		l := &borrowedObject{kind: k, claim: traffic.HolderOf(o.Object), edited: k.EditedPaths(o)}
		_, l.borrowed = o.GetAnnotations()[rollout.AnnotationRestore]
		l.Namespace, l.Name, l.UID, l.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(),
			o.GetResourceVersion()
		if len(l.edited) > 0 {
			l.editor, _ = fieldmanager.LastOther(o, l.edited...)
			l.digest = traffic.Digest(o.Object, l.edited)
		}
		return l, nil
	}
}

// endpointSummary is what the watch keeps of an EndpointSlice: its Service, and how many of its endpoints are ready.
type endpointSummary struct {
	metav1.PartialObjectMetadata
	service string
	ready   int
}

func transformEndpoints(obj any) (any, error) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	var slice discoveryv1.EndpointSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &slice); err != nil {
		return nil, err
	}
	e := &endpointSummary{service: slice.Labels[discoveryv1.LabelServiceName]}
	e.Namespace, e.Name, e.UID, e.ResourceVersion = slice.Namespace, slice.Name, slice.UID, slice.ResourceVersion
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			e.ready++
		}
	}
	return e, nil
}

// watchKind adds a kind to watch as soon as the cluster has it.
func (d *DriftDetector) watchKind(k drift.Kind) {
	d.mu.Lock()
	_, begun := d.kinds[k.Resource]
	d.kinds[k.Resource] = k
	d.mu.Unlock()
	if !begun {
		kube.Wake(d.wakeWatches)
	}
}

// watchAll starts the requested watches, for each kind that the cluster has.
func (d *DriftDetector) watchAll(ctx context.Context) {
	begun := map[schema.GroupVersionResource]bool{}
	again := kindRetryAtStart
	for {
		d.mu.Lock()
		var missing []drift.Kind
		for resource, k := range d.kinds {
			if !begun[resource] {
				missing = append(missing, k)
			}
		}
		d.mu.Unlock()
		for _, k := range missing {
			if begun[k.Resource] = kube.Served(d.a.kinds.discovery, k.Resource); begun[k.Resource] {
				d.startWatch(k)
				again = kindRetryInterval
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-d.wakeWatches:
		case <-time.After(again):
		}
	}
}

// startWatch watches one kind in all namespaces that the worker serves.
func (d *DriftDetector) startWatch(k drift.Kind) {
	namespaces := d.a.options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	transform, index, heard := transformObject(k), cache.Indexers{byClaim: claimOf}, d.objectHandler()
	if k.Resource == endpointSlices {
		transform, index, heard = transformEndpoints, cache.Indexers{byService: serviceOf}, d.endpointHandler()
	}
	for _, namespace := range namespaces {
		w := kube.NewSharedWatch(d.a.cluster.Objects, kube.Watched{Resource: k.Resource, Namespace: namespace,
			Selector: workloadops.SelectClaimed, Transform: transform}, time.Now, func(err error) {
			d.warnUnwatched(k, namespace, err)
		})
		_, handled := w.Informer.AddEventHandler(heard)
		if indexed := w.Informer.AddIndexers(index); handled != nil || indexed != nil {
			panic("cannot prepare a watch that is not running yet")
		}
		d.mu.Lock()
		d.watches[scope{k.Resource, namespace}] = w
		d.mu.Unlock()
		d.goroutines.Go(func() { w.Informer.RunWithContext(d.ctx) })
	}
}

// warnUnwatched logs that a kind is not watched. Releases continue: changes by other clients are then noticed when a
// step needs the object.
func (d *DriftDetector) warnUnwatched(k drift.Kind, namespace string, err error) {
	where := "all namespaces"
	if namespace != "" {
		where = "namespace " + namespace
	}
	d.a.options.Logger.Warn(fmt.Sprintf("%s objects of releases cannot be watched in %s: changes by other clients "+
		"are noticed at the "+
		"next step only; retrying", k.Name, where), "resource", k.Resource.Resource, "error", err)
}

func claimOf(obj any) ([]string, error) {
	if l, ok := obj.(*borrowedObject); ok && l.claim != "" {
		return []string{l.claim}, nil
	}
	return nil, nil
}

func serviceOf(obj any) ([]string, error) {
	if e, ok := obj.(*endpointSummary); ok {
		return []string{e.Namespace + "/" + e.service}, nil
	}
	return nil, nil
}

// watchOf returns the watch that covers a resource in a namespace; nil if there is none yet.
func (d *DriftDetector) watchOf(resource schema.GroupVersionResource, namespace string) *kube.SharedWatch {
	if len(d.a.options.Namespaces) == 0 {
		namespace = metav1.NamespaceAll
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watches[scope{resource, namespace}]
}

// find returns what the watch keeps of an object; nil if it does not exist.
func (d *DriftDetector) find(at place) *borrowedObject {
	w := d.watchOf(at.Resource, at.Namespace)
	if w == nil {
		return nil
	}
	obj, _, _ := w.Informer.GetStore().GetByKey(at.Namespace + "/" + at.Name)
	l, _ := obj.(*borrowedObject)
	return l
}

// servicesOf lists the Services that are held under a claim.
func (d *DriftDetector) servicesOf(claim string) (out []*borrowedObject) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, w := range d.watches {
		if s.resource != services.gvr {
			continue
		}
		list, _ := w.Informer.GetIndexer().ByIndex(byClaim, claim)
		for _, obj := range list {
			if l, ok := obj.(*borrowedObject); ok {
				out = append(out, l)
			}
		}
	}
	return out
}

// hasReadyEndpoint reports whether a Service is known to have a ready endpoint.
func (d *DriftDetector) hasReadyEndpoint(service place) bool {
	w := d.watchOf(endpointSlices, service.Namespace)
	if w == nil || !w.Live(time.Now()) {
		return false
	}
	list, _ := w.Informer.GetIndexer().ByIndex(byService, service.Namespace+"/"+service.Name)
	for _, obj := range list {
		if e, ok := obj.(*endpointSummary); ok && e.ready > 0 {
			return true
		}
	}
	return false
}
