package traffic

import (
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

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

// keepObject reduces an object in a watch to what is compared.
func keepObject(k drift.Kind) func(*unstructured.Unstructured) (*borrowedObject, error) {
	return func(o *unstructured.Unstructured) (*borrowedObject, error) {
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

func keepEndpoints(o *unstructured.Unstructured) (*endpointSummary, error) {
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
	defer d.mu.Unlock()
	if d.objects[k.Resource] != nil {
		return
	}
	w := watch.New(watch.Untyped(d.a.cluster.Objects, k.Resource), keepObject(k), d.watchOptions(k)).
		Index(byClaim, func(l *borrowedObject) []string { return []string{l.claim} }).Handle(d.objectHandler())
	d.objects[k.Resource] = w
	d.kinds.Add(k.Resource, w.Run)
}

// watchEndpoints prepares the watch on the EndpointSlices of Services that rollouts borrow or create.
func (d *DriftDetector) watchEndpoints() {
	d.endpoints = watch.New(watch.Untyped(d.a.cluster.Objects, endpointSlices), keepEndpoints,
		d.watchOptions(drift.Kind{Name: "EndpointSlice", Resource: endpointSlices})).
		Index(byService, func(e *endpointSummary) []string { return []string{e.Namespace + "/" + e.service} }).
		Handle(watch.OnChange(func(e *endpointSummary) {
			if l := d.find(services.at(e.Namespace, e.service)); l != nil {
				d.protectQueue.Add(l.claim)
			}
		}))
	d.kinds.Add(endpointSlices, d.endpoints.Run)
}

// watchOptions are those of a watch on one kind in all namespaces that the worker serves. If a kind cannot be watched,
// releases continue: changes by other clients are then noticed when a step needs the object.
func (d *DriftDetector) watchOptions(k drift.Kind) watch.Options {
	return watch.Options{Namespaces: d.a.options.Namespaces, Labels: workload.SelectClaimed,
		Failed: watch.Once(func(namespace string, err error) {
			d.a.options.Logger.Warn(fmt.Sprintf("%s objects of releases cannot be watched in %s: changes by other "+
				"clients are noticed at the next step only; retrying", k.Name, watch.Where(namespace)),
				"resource", k.Resource.Resource, "error", err)
		})}
}

// find returns what the watch keeps of an object; nil if it does not exist.
func (d *DriftDetector) find(at place) *borrowedObject {
	d.mu.Lock()
	w := d.objects[at.Resource]
	d.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Get(at.Namespace, at.Name)
}

// servicesOf lists the Services that are held under a claim.
func (d *DriftDetector) servicesOf(claim string) []*borrowedObject {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.objects[services.gvr].By(byClaim, claim)
}

// hasReadyEndpoint reports whether a Service is known to have a ready endpoint.
func (d *DriftDetector) hasReadyEndpoint(service place) bool {
	return d.endpoints.Live(service.Namespace) &&
		slices.ContainsFunc(d.endpoints.By(byService, service.Namespace+"/"+service.Name),
			func(e *endpointSummary) bool { return e.ready > 0 })
}
