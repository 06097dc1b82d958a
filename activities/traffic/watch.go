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

// lookForKinds is how often kinds that the cluster does not have are looked for again, lookSoon how often while it does not answer.
const lookForKinds, lookSoon = 5 * time.Minute, time.Second

// scope is what one watch covers: a resource, in a namespace or, with "", in all of them.
type scope struct {
	resource  schema.GroupVersionResource
	namespace string
}

// The indices of the watches.
const (
	byClaim   = "claim"
	byService = "service"
)

// lent is what a watch keeps of an object that a rollout has borrowed or made.
type lent struct {
	metav1.PartialObjectMetadata
	kind  drift.Kind
	claim string
	// borrowed says that it was there before the rollout: the rollout has changed it, rather than made it.
	borrowed bool
	// edited are the places that somebody else has changed, by whom the last; now tells one change from another.
	edited  []string
	by, now string
}

func (l *lent) place() place {
	return kind{name: l.kind.Name, gvr: l.kind.Resource}.at(l.Namespace, l.Name)
}

// keep has a watch keep of each object of a kind what is compared.
func keep(k drift.Kind) cache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		l := &lent{kind: k, claim: traffic.HolderOf(o.Object), edited: k.Edited(o)}
		_, l.borrowed = o.GetAnnotations()[rollout.AnnotationRestore]
		l.Namespace, l.Name, l.UID, l.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
		if len(l.edited) > 0 {
			l.by, _ = fieldmanager.Of(o, l.edited...)
			l.now = traffic.Digest(o.Object, l.edited)
		}
		return l, nil
	}
}

// endpointsSeen is what the watch keeps of an EndpointSlice: whose it is, and how many of its endpoints are ready.
type endpointsSeen struct {
	metav1.PartialObjectMetadata
	service string
	ready   int
}

func keepEndpoints(obj any) (any, error) {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	var slice discoveryv1.EndpointSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &slice); err != nil {
		return nil, err
	}
	e := &endpointsSeen{service: slice.Labels[discoveryv1.LabelServiceName]}
	e.Namespace, e.Name, e.UID, e.ResourceVersion = slice.Namespace, slice.Name, slice.UID, slice.ResourceVersion
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
			e.ready++
		}
	}
	return e, nil
}

// want has a kind watched as soon as the cluster has it.
func (d *DriftDetector) want(k drift.Kind) {
	d.mu.Lock()
	_, begun := d.kinds[k.Resource]
	d.kinds[k.Resource] = k
	d.mu.Unlock()
	if !begun {
		kube.Wake(d.more)
	}
}

// watchAll begins the watches that are wanted, of each kind that the cluster has.
func (d *DriftDetector) watchAll(ctx context.Context) {
	begun := map[schema.GroupVersionResource]bool{}
	again := lookSoon
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
				d.begin(k)
				again = lookForKinds
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-d.more:
		case <-time.After(again):
		}
	}
}

// begin watches one kind wherever the worker serves.
func (d *DriftDetector) begin(k drift.Kind) {
	namespaces := d.a.options.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	transform, index, heard := keep(k), cache.Indexers{byClaim: claimOf}, d.hear()
	if k.Resource == endpointSlices {
		transform, index, heard = keepEndpoints, cache.Indexers{byService: serviceOf}, d.hearEndpoints()
	}
	for _, namespace := range namespaces {
		w := kube.NewSharedWatch(d.a.cluster.Objects, kube.Watched{Resource: k.Resource, Namespace: namespace,
			Selector: workloadops.SelectClaimed, Transform: transform}, time.Now, func(err error) { d.blind(k, namespace, err) })
		_, handled := w.Informer.AddEventHandler(heard)
		if indexed := w.Informer.AddIndexers(index); handled != nil || indexed != nil {
			panic("a watch that is not running yet does not let itself be prepared")
		}
		d.mu.Lock()
		d.watches[scope{k.Resource, namespace}] = w
		d.mu.Unlock()
		d.ending.Go(func() { w.Informer.RunWithContext(d.ctx) })
	}
}

// blind says once what is not watched. Releases go on: what somebody else changes is noticed when a step needs it.
func (d *DriftDetector) blind(k drift.Kind, namespace string, err error) {
	where := "all namespaces"
	if namespace != "" {
		where = "namespace " + namespace
	}
	d.a.options.Logger.Warn(fmt.Sprintf("%s objects of releases cannot be watched in %s: what somebody else changes of them is noticed at the "+
		"next step only; it is tried again", k.Name, where), "resource", k.Resource.Resource, "error", err)
}

func claimOf(obj any) ([]string, error) {
	if l, ok := obj.(*lent); ok && l.claim != "" {
		return []string{l.claim}, nil
	}
	return nil, nil
}

func serviceOf(obj any) ([]string, error) {
	if e, ok := obj.(*endpointsSeen); ok {
		return []string{e.Namespace + "/" + e.service}, nil
	}
	return nil, nil
}

// watchOf is the watch that covers a resource in a namespace, nil while there is none.
func (d *DriftDetector) watchOf(resource schema.GroupVersionResource, namespace string) *kube.SharedWatch {
	if len(d.a.options.Namespaces) == 0 {
		namespace = metav1.NamespaceAll
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.watches[scope{resource, namespace}]
}

// find is what the watch keeps of an object; nil when it is not there.
func (d *DriftDetector) find(at place) *lent {
	w := d.watchOf(at.Resource, at.Namespace)
	if w == nil {
		return nil
	}
	obj, _, _ := w.Informer.GetStore().GetByKey(at.Namespace + "/" + at.Name)
	l, _ := obj.(*lent)
	return l
}

// servicesOf are the Services that are lent under a claim.
func (d *DriftDetector) servicesOf(claim string) (out []*lent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for s, w := range d.watches {
		if s.resource != services.gvr {
			continue
		}
		list, _ := w.Informer.GetIndexer().ByIndex(byClaim, claim)
		for _, obj := range list {
			if l, ok := obj.(*lent); ok {
				out = append(out, l)
			}
		}
	}
	return out
}

// served says whether a Service is known to have a ready endpoint.
func (d *DriftDetector) served(service place) bool {
	w := d.watchOf(endpointSlices, service.Namespace)
	if w == nil || !w.Live(time.Now()) {
		return false
	}
	list, _ := w.Informer.GetIndexer().ByIndex(byService, service.Namespace+"/"+service.Name)
	for _, obj := range list {
		if e, ok := obj.(*endpointsSeen); ok && e.ready > 0 {
			return true
		}
	}
	return false
}
