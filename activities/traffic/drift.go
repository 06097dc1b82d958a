package traffic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
)

// DriftDetector detects changes by other clients to the objects that rollouts borrow or create in addition to their
// workloads: Services, routes, objects that scripts change, and the additional kinds that it is given. It watches the
// objects with the label of claimed objects and reports changes to the rollout. First of all it makes sure that a
// pinned Service never selects zero ready pods (shelter.go). While nothing changes it sends no request.
type DriftDetector struct {
	watch.Background
	a        *Activities
	holdings drift.Holdings
	temporal drift.Signaller
	teller   *drift.Reporter[place]
	// protectQueue has the claims whose Services are to be checked.
	protectQueue watch.Queue[string]
	kinds        *watch.Kinds
	endpoints    *watch.Watch[*endpointSummary]

	mu      sync.Mutex
	objects map[schema.GroupVersionResource]*watch.Watch[*borrowedObject]
	// leftWatch are objects that have left the watch, until it is known why.
	leftWatch map[place]*missingObject
	// uncheckedServices are borrowed Services that existed when the watch began: whether their canary Service was
	// deleted before is not checked yet.
	uncheckedServices map[place]bool
	// pendingReports are changes that this worker made for rollouts and has not yet reported to them, by claim.
	pendingReports map[string][]rollout.Observed
}

// protectWorkers is how many claims are checked concurrently.
const protectWorkers = 4

// NewDriftDetector returns a detector for the cluster of the activities. Its workloads are watched by another detector
// (holdings).
func NewDriftDetector(a *Activities, holdings drift.Holdings, temporal drift.Signaller,
	others ...drift.Kind) *DriftDetector {
	d := &DriftDetector{
		a: a, holdings: holdings, temporal: temporal, protectQueue: drift.NewQueue[string](),
		kinds: watch.NewKinds(func(r schema.GroupVersionResource) bool {
			return watch.Served(a.kinds.discovery, r)
		}),
		objects:           map[schema.GroupVersionResource]*watch.Watch[*borrowedObject]{},
		leftWatch:         map[place]*missingObject{},
		uncheckedServices: map[place]bool{}, pendingReports: map[string][]rollout.Observed{},
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
				return 0, d.protectTraffic(ctx, claim)
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
			d.mu.Lock()
			d.uncheckedServices[l.place()] = true
			d.mu.Unlock()
		}
		look(l)
	}, Updated: func(_, l *borrowedObject) {
		look(l)
	}, Deleted: func(l *borrowedObject) {
		d.mu.Lock()
		d.leftWatch[l.place()] = &missingObject{borrowedObject: l, since: time.Now()}
		d.mu.Unlock()
		d.teller.Forget(l.place())
		d.teller.Enqueue(l.place())
	}}
}

// compare returns what another client has changed in an object; nil if nothing.
func (d *DriftDetector) compare(ctx context.Context, at place) (*drift.Change, error) {
	if l := d.find(at); l != nil {
		d.forget(at)
		if len(l.edited) == 0 {
			return nil, nil
		}
		return l.change("changed", l.editor), nil
	}
	d.mu.Lock()
	left := d.leftWatch[at]
	d.mu.Unlock()
	if left == nil {
		return nil, nil
	}
	c, err := d.changeOfMissing(ctx, at, left)
	if err != nil {
		return nil, err
	}
	if c == nil {
		d.forget(at)
		return nil, nil
	}
	c.Delivered = func() { d.forget(at) }
	return c, nil
}

func (d *DriftDetector) forget(at place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leftWatch, at)
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
