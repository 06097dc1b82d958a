package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

// DriftDetector detects changes by other clients to the objects that rollouts borrow or create in addition to their
// workloads: Services, routes, objects that scripts change, and the additional kinds that it is given. It watches the
// objects with the label of claimed objects and reports changes to the rollout. First of all it makes sure that a
// pinned Service never selects zero ready pods (protect.go). While nothing changes it sends no request.
type DriftDetector struct {
	watch.Background
	a        *Activities
	holdings drift.Holdings
	temporal drift.Temporal
	teller   *drift.Reporter[place]
	// protectQueue has the claims whose Services are to be checked.
	protectQueue watch.Queue[string]
	kinds        *watch.Kinds
	endpoints    *watch.Watch[*endpointSummary]

	// leftWatch has, by place, the *missingObject of each object that has left the watch, until it is known why.
	leftWatch sync.Map
	// lostServices has, by place, the *missingObject of each canary Service that left the watch, until its rollout has
	// created it again or its routes are restored.
	lostServices sync.Map
	// uncheckedServices has the places of borrowed Services that existed when the watch began: whether their canary
	// Service was deleted before is not checked yet.
	uncheckedServices sync.Map

	// pendingReports has, by claim, the changes ([]rollout.Observed) that this worker made for a rollout and has not yet
	// reported to it. Only the worker that processes the claim uses them.
	pendingReports sync.Map

	// objects has the watch of each resource (*watch.Watch[*borrowedObject]).
	objects sync.Map
}

// protectWorkers is how many claims are checked concurrently.
const protectWorkers = 4

// NewDriftDetector returns a detector for the cluster of the activities. Its workloads are watched by another detector
// (holdings).
func NewDriftDetector(a *Activities, holdings drift.Holdings, temporal drift.Temporal,
	others ...drift.Kind) *DriftDetector {
	d := &DriftDetector{
		a: a, holdings: holdings, temporal: temporal, protectQueue: drift.NewQueue[string](),
		kinds: watch.NewKinds(func(r schema.GroupVersionResource) bool {
			return watch.Served(a.kinds.discovery, r)
		}),
	}
	d.teller = drift.NewReporter(temporal, a.options.Parties, a.options.Logger, d.compare)
	d.watchEndpoints()
	for _, k := range []kind{services, ingresses, httpRoutes} {
		d.watchKind(routingKind(k))
	}
	for _, k := range others {
		d.watchKind(k)
	}
	holdings.OnHolding(func(h drift.Holding) { d.protectQueue.Add(h.Claim) })
	return d
}

// routingKind returns the drift.Kind of objects that the activities of this package change.
func routingKind(k kind) drift.Kind {
	return drift.Kind{Name: k.name, Resource: k.gvr, What: rollout.ObservedRoutes,
		EditedPaths: func(o *unstructured.Unstructured) []string { return traffic.EditedPlaces(o.Object) }}
}

// Start starts the watches and returns at once.
func (d *DriftDetector) Start(context.Context) error {
	d.Begin(d.kinds.Run, d.teller.Run, func(ctx context.Context) {
		d.protectQueue.Run(ctx, watch.Work[string]{Workers: protectWorkers,
			Do: func(ctx context.Context, claim string) (time.Duration, error) {
				return d.protectTraffic(ctx, claim)
			}})
	})
	return nil
}

// objectHandler handles the watch events of one kind of object.
func (d *DriftDetector) objectHandler() watch.Handler[*borrowedObject] {
	look := func(l *borrowedObject) {
		d.teller.Enqueue(l.place())
		if l.kind.Resource == services.gvr {
			d.protectQueue.Add(l.claim)
		}
	}
	return watch.Handler[*borrowedObject]{Added: func(l *borrowedObject, initial bool) {
		if initial && l.borrowed && l.kind.Resource == services.gvr {
			d.uncheckedServices.Store(l.place(), true)
		}
		look(l)
	}, Updated: func(_, l *borrowedObject) {
		look(l)
	}, Deleted: func(l *borrowedObject) {
		missing := &missingObject{borrowedObject: l, since: time.Now()}
		d.leftWatch.Store(l.place(), missing)
		if l.kind.Resource == services.gvr && !l.borrowed {
			d.lostServices.Store(l.place(), missing)
			d.protectQueue.Add(l.claim)
		}
		d.teller.Forget(l.place())
		d.teller.Enqueue(l.place())
	}}
}

// compare returns what another client has changed in an object; nil if nothing.
func (d *DriftDetector) compare(ctx context.Context, at place) (*drift.Change, error) {
	if l := d.find(at); l != nil {
		d.leftWatch.Delete(at)
		if taken, err := d.takeOffCopy(ctx, at, l); taken || err != nil {
			return nil, err
		}
		if len(l.edited) == 0 {
			return nil, nil
		}
		return l.change("changed", l.editor), nil
	}
	left, is := d.leftWatch.Load(at)
	if !is {
		return nil, nil
	}
	c, err := d.changeOfMissing(ctx, at, left.(*missingObject))
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		d.leftWatch.Delete(at)
	default:
		c.Delivered = func() { d.leftWatch.Delete(at) }
	}
	return c, nil
}

// changeOfMissing returns what another client has done to an object that left the watch; nil if a rollout restored or
// removed it.
func (d *DriftDetector) changeOfMissing(ctx context.Context, at place, left *missingObject) (*drift.Change, error) {
	live, err := d.a.get(ctx, at)
	if err != nil {
		return nil, err
	}
	_, removed := d.a.removed.Get(left.UID)
	switch {
	case removed:
		return nil, nil
	case live == nil, meta(live).GetUID() != left.UID:
		if ours, err := d.deletedByEngine(left, live); ours || err != nil {
			return nil, err
		}
		return left.change("deleted", ""), nil
	case fieldmanager.LastIsSlipway(meta(live)):
		return nil, nil
	}
	by, _ := fieldmanager.LastOther(meta(live), "/metadata", "/spec")
	return left.change("removed this release's marks from", by), nil
}

// errUnsettled makes the teller check a deletion again.
var errUnsettled = errors.New("another worker may have deleted it: its rollout has not settled yet")

// settleTime is how long after a deletion its rollout may take to show that it is moving pods.
const settleTime = 3 * time.Second

// deletedByEngine reports whether another worker of this engine deleted an object, of which this process gets no other
// notice: then the rollout has ended, or has created the object again. While the rollout moves pods, that is unknown:
// errUnsettled.
func (d *DriftDetector) deletedByEngine(left *missingObject, live traffic.Object) (bool, error) {
	holding, held := d.holdings.Held(left.claim)
	switch {
	case !held:
		return true, nil
	case holding.ActiveHere:
		return false, nil
	case holding.Moving, time.Since(left.since) < settleTime:
		return false, errUnsettled
	}
	return live != nil, nil
}

// missingObject is an object that has left the watch.
type missingObject struct {
	*borrowedObject
	since time.Time
}

// change returns the change to report to the rollout.
func (l *borrowedObject) change(done, by string) *drift.Change {
	message := fmt.Sprintf("another client has %s %s", done, l.place())
	return &drift.Change{Claim: l.claim, Namespace: l.Namespace,
		Fingerprint: fmt.Sprintf("%s %s %s %s", l.claim, l.UID, message, l.digest),
		Observed:    rollout.Observed{What: l.kind.What, Message: message, By: by, Object: l.place().String()}}
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
	// borrowed means that the rollout changed the object, and did not create it; brought, that another client wrote the
	// claim.
	borrowed, brought bool
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
		l.brought = l.claim != "" && o.GetAnnotations()[rollout.AnnotationRepair] == "" &&
			drift.Brought(o, rollout.AnnotationHeldBy)
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
	slice, err := readyEndpoints(o)
	e := &endpointSummary{service: slice.Labels[discoveryv1.LabelServiceName], ready: len(slice.Endpoints)}
	e.Namespace, e.Name, e.UID, e.ResourceVersion = slice.Namespace, slice.Name, slice.UID, slice.ResourceVersion
	return e, err
}

// watchKind adds a kind to watch as soon as the cluster has it.
func (d *DriftDetector) watchKind(k drift.Kind) {
	if _, known := d.objects.Load(k.Resource); known {
		return
	}
	w := watch.New(watch.Untyped(d.a.cluster.Objects, k.Resource), keepObject(k), d.watchOptions(k)).
		Index(byClaim, func(l *borrowedObject) []string { return []string{l.claim} }).Handle(d.objectHandler())
	if _, known := d.objects.LoadOrStore(k.Resource, w); !known {
		d.kinds.Add(k.Resource, w.Run)
	}
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
	if w, is := d.objects.Load(at.Resource); is {
		return w.(*watch.Watch[*borrowedObject]).Get(at.Namespace, at.Name)
	}
	return nil
}

// servicesOf lists the Services that are held under a claim.
func (d *DriftDetector) servicesOf(claim string) []*borrowedObject {
	w, _ := d.objects.Load(services.gvr)
	return w.(*watch.Watch[*borrowedObject]).By(byClaim, claim)
}

// hasReadyEndpoint reports whether a Service is known to have a ready endpoint.
func (d *DriftDetector) hasReadyEndpoint(service place) bool {
	return d.endpoints.Live(service.Namespace) &&
		slices.ContainsFunc(d.endpoints.By(byService, service.Namespace+"/"+service.Name),
			func(e *endpointSummary) bool { return e.ready > 0 })
}
