package watch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// kindInterval is how often missing kinds are looked up again, kindIntervalMin how often until the first is found: then
// the cluster is unreachable.
const kindInterval, kindIntervalMin = 5 * time.Minute, time.Second

// Kinds runs what needs a resource of a cluster as soon as the cluster has it: definitions may be installed later.
type Kinds struct {
	served func(schema.GroupVersionResource) bool
	// changed wakes Run.
	changed chan struct{}

	mu sync.Mutex
	// missing are the resources that were not found yet.
	missing map[schema.GroupVersionResource]func(context.Context)
}

// NewKinds returns kinds without a resource; served reports whether the cluster has one.
func NewKinds(served func(schema.GroupVersionResource) bool) *Kinds {
	return &Kinds{served: served, changed: make(chan struct{}, 1),
		missing: map[schema.GroupVersionResource]func(context.Context){}}
}

// Add adds a resource, once; run is called when it is found.
func (k *Kinds) Add(resource schema.GroupVersionResource, run func(context.Context)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.missing[resource] = run
	Wake(k.changed)
}

// Recheck looks the missing resources up immediately, if this is one of them: it was found otherwise.
func (k *Kinds) Recheck(resource schema.GroupVersionResource) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.missing[resource] != nil {
		Wake(k.changed)
	}
}

// Run looks the resources up until the context ends, and waits until everything that it runs has returned.
func (k *Kinds) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for again := kindIntervalMin; ; {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
		case <-time.After(again):
		}
		k.mu.Lock()
		missing := maps.Clone(k.missing)
		k.mu.Unlock()
		for resource, run := range missing {
			if k.served(resource) {
				k.mu.Lock()
				delete(k.missing, resource)
				k.mu.Unlock()
				running.Go(func() { run(ctx) })
				again = kindInterval
			}
		}
	}
}

// Served reports whether a cluster has a resource. If the cluster does not answer, it counts as absent for now.
func Served(d discovery.DiscoveryInterface, resource schema.GroupVersionResource) bool {
	list, err := d.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == resource.Resource
	})
}
