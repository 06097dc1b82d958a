package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
)

// DriftDetector notices what others do to the objects that rollouts borrow or make beside their workloads: Services, routes, whatever
// scripts change, and the kinds that it is given besides. It hears of every change from watches of the objects that carry the label of
// claimed ones, tells the rollout, and first of all sees to it that no Service that a rollout pins selects nobody (shelter.go). While
// nothing changes it sends no request.
type DriftDetector struct {
	a        *Activities
	holdings drift.Holdings
	temporal drift.Signaller
	teller   *drift.Teller[place]
	// shelters are the claims whose Services are to be looked at.
	shelters workqueue.TypedRateLimitingInterface[string]

	ctx    context.Context
	cancel context.CancelFunc
	ending sync.WaitGroup
	// more wakes watchAll.
	more chan struct{}

	mu      sync.Mutex
	kinds   map[schema.GroupVersionResource]drift.Kind
	watches map[scope]*kube.SharedWatch
	// gone are objects that have left the watch and have not been looked for yet.
	gone map[place]*departed
	// found are borrowed Services that stood there when the watch began: what was deleted beside them until then has not been looked for yet.
	found map[place]bool
	// owed is what rollouts have not been told yet of what was done for them, by claim.
	owed map[string][]rollout.Observed
}

// sheltering is how many claims are looked at at the same time.
const sheltering = 4

// NewDriftDetector makes a detector for the cluster of activities, whose workloads are watched by another (holdings).
func NewDriftDetector(a *Activities, holdings drift.Holdings, temporal drift.Signaller, others ...drift.Kind) *DriftDetector {
	ctx, cancel := context.WithCancel(context.Background())
	d := &DriftDetector{
		a: a, holdings: holdings, temporal: temporal, shelters: drift.NewQueue[string](), ctx: ctx, cancel: cancel, more: make(chan struct{}, 1),
		kinds: map[schema.GroupVersionResource]drift.Kind{}, watches: map[scope]*kube.SharedWatch{}, gone: map[place]*departed{},
		found: map[place]bool{}, owed: map[string][]rollout.Observed{},
	}
	d.teller = drift.NewTeller(temporal, a.options.Parties, a.options.Logger, d.compare)
	for _, k := range []kind{services, ingresses, httpRoutes, {name: "EndpointSlice", gvr: endpointSlices}} {
		d.want(routing(k))
	}
	for _, k := range others {
		d.want(k)
	}
	holdings.OnHolding(func(h drift.Holding) { d.shelters.Add(h.Claim) })
	return d
}

// routing is a kind of object that the activities of this package change.
func routing(k kind) drift.Kind {
	return drift.Kind{Name: k.name, Resource: k.gvr, What: rollout.ObservedRoutes,
		Edited: func(o *unstructured.Unstructured) []string { return traffic.Edited(o.Object) }}
}

// Start begins to watch; it returns at once.
func (d *DriftDetector) Start(context.Context) error {
	d.ending.Go(func() { d.watchAll(d.ctx) })
	for range sheltering {
		d.ending.Go(func() { kube.Work(d.ctx, d.shelters, d.shelter) })
	}
	d.teller.Start()
	return nil
}

// Stop ends the detector.
func (d *DriftDetector) Stop(context.Context) error {
	d.cancel()
	d.shelters.ShutDown()
	d.teller.Stop()
	d.ending.Wait()
	return nil
}

// hear takes in the changes of one kind of object.
func (d *DriftDetector) hear() cache.ResourceEventHandler {
	look := func(obj any) {
		if l, ok := obj.(*lent); ok {
			d.teller.Look(l.place())
			if l.kind.Resource == services.gvr {
				d.shelters.Add(l.claim)
			}
		}
	}
	add := func(obj any, atBegin bool) {
		if l, ok := obj.(*lent); ok && atBegin && l.borrowed && l.kind.Resource == services.gvr {
			d.mu.Lock()
			d.found[l.place()] = true
			d.mu.Unlock()
		}
		look(obj)
	}
	return cache.ResourceEventHandlerDetailedFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: func(obj any) {
		if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = last.Obj
		}
		l, ok := obj.(*lent)
		if !ok {
			return
		}
		d.mu.Lock()
		d.gone[l.place()] = &departed{lent: l, since: time.Now()}
		d.mu.Unlock()
		d.teller.Forget(l.place())
		d.teller.Look(l.place())
	}}
}

// hearEndpoints takes in the changes of EndpointSlices.
func (d *DriftDetector) hearEndpoints() cache.ResourceEventHandler {
	look := func(obj any) {
		if e, ok := obj.(*endpointsSeen); ok {
			if l := d.find(services.at(e.Namespace, e.service)); l != nil {
				d.shelters.Add(l.claim)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look}
}

// compare is what somebody else has done to an object, nil when nothing.
func (d *DriftDetector) compare(ctx context.Context, at place) (*drift.Change, error) {
	if l := d.find(at); l != nil {
		d.forget(at)
		if len(l.edited) == 0 {
			return nil, nil
		}
		return l.change("changed", l.by), nil
	}
	d.mu.Lock()
	left := d.gone[at]
	d.mu.Unlock()
	if left == nil {
		return nil, nil
	}
	c, err := d.missing(ctx, at, left)
	if err != nil {
		return nil, err
	}
	if c == nil {
		d.forget(at)
		return nil, nil
	}
	c.Arrived = func() { d.forget(at) }
	return c, nil
}

func (d *DriftDetector) forget(at place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.gone, at)
}

// missing is what somebody else has done to an object that has left the watch; nil when it was given back, or removed, by a rollout.
func (d *DriftDetector) missing(ctx context.Context, at place, left *departed) (*drift.Change, error) {
	live, err := d.a.get(ctx, at)
	if err != nil {
		return nil, err
	}
	_, removed := d.a.removed.Get(left.UID)
	switch {
	case removed:
		return nil, nil
	case live == nil, meta(live).GetUID() != left.UID:
		if ours, err := d.ours(left, live); ours || err != nil {
			return nil, err
		}
		return left.change("deleted", ""), nil
	case fieldmanager.LastIsSlipway(meta(live)):
		return nil, nil
	}
	by, _ := fieldmanager.Of(meta(live), "/metadata", "/spec")
	return left.change("taken the marks of this release off", by), nil
}

// errUnsettled has a deletion looked at again.
var errUnsettled = errors.New("another worker may have deleted it: its rollout will rest, or be over")

// settlesIn is how long after a deletion its rollout may take to show that it has begun to move.
const settlesIn = 3 * time.Second

// ours says whether an object is gone by the hand of another worker, which this process hears nothing else of: its rollout is over by then, or it has made
// the object anew. While the rollout moves that can't be told.
func (d *DriftDetector) ours(left *departed, live traffic.Object) (bool, error) {
	holding, held := d.holdings.Held(left.claim)
	switch {
	case !held:
		return true, nil
	case holding.Here:
		return false, nil
	case holding.Moves, time.Since(left.since) < settlesIn:
		return false, errUnsettled
	}
	return live != nil, nil
}

// departed is an object that has left the watch.
type departed struct {
	*lent
	since time.Time
}

// change is what the rollout is to know.
func (l *lent) change(done, by string) *drift.Change {
	message := fmt.Sprintf("somebody else has %s %s", done, l.place())
	return &drift.Change{Claim: l.claim, Namespace: l.Namespace, Difference: fmt.Sprintf("%s %s %s %s", l.claim, l.UID, message, l.now),
		Observed: rollout.Observed{What: l.kind.What, Message: message, By: by, Object: l.place().String()}}
}
