package watch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// definitions are the resources that a cluster serves, and how often each was looked up.
type definitions struct {
	mu     sync.Mutex
	served map[schema.GroupVersionResource]bool
	asked  map[schema.GroupVersionResource]int
}

func (d *definitions) serves(resource schema.GroupVersionResource) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked[resource]++
	return d.served[resource]
}

func (d *definitions) install(resource schema.GroupVersionResource) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served[resource] = true
}

func (d *definitions) askedFor(resource schema.GroupVersionResource) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked[resource]
}

func TestKinds_AreWatchedAsSoonAsInstalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &definitions{served: map[schema.GroupVersionResource]bool{}, asked: map[schema.GroupVersionResource]int{}}
		found := &heard{}
		kinds := NewKinds(d.serves)
		add := func(resource schema.GroupVersionResource) {
			kinds.Add(resource, func(ctx context.Context) {
				found.add(resource.Resource)
				<-ctx.Done()
			})
		}
		gears, cogs := widgets.GroupVersion().WithResource("gears"), widgets.GroupVersion().WithResource("cogs")
		add(widgets)
		add(gears)
		run(t, kinds.Run)
		synctest.Wait()
		require.Equal(t, 1, d.askedFor(widgets), "each resource is looked up at the start, once")
		d.install(widgets)
		time.Sleep(kindIntervalMin)
		synctest.Wait()
		require.Equal(t, []string{"widgets"}, found.taken(), "until the first is found, the cluster may be unreachable")
		asked := d.askedFor(gears)
		time.Sleep(kindInterval - time.Second)
		require.Equal(t, asked, d.askedFor(gears), "then a missing one is looked up rarely")

		d.install(gears)
		kinds.Recheck(gears)
		synctest.Wait()
		require.Equal(t, []string{"gears"}, found.taken(), "one that was found otherwise is watched immediately")

		add(cogs)
		synctest.Wait()
		require.Equal(t, 1, d.askedFor(cogs), "a resource that is added later is looked up immediately")
		kinds.Recheck(gears)
		synctest.Wait()
		require.Equal(t, 1, d.askedFor(cogs), "a watched one causes no lookup")
		d.install(cogs)
		time.Sleep(kindInterval)
		synctest.Wait()
		require.Equal(t, []string{"cogs"}, found.taken(), "a definition that was installed later is found")

		before := d.askedFor(widgets) + d.askedFor(gears) + d.askedFor(cogs)
		time.Sleep(time.Hour)
		require.Equal(t, before, d.askedFor(widgets)+d.askedFor(gears)+d.askedFor(cogs),
			"nothing is looked up when all are found")
	})
}
