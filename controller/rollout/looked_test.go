package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// Whether a release still runs is checked at intervals, but not right after the object was written or checked.
func TestReleaseIsCheckedAtIntervals(t *testing.T) {
	t.Parallel()
	var all releaseChecks
	r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "first"}}
	now := time.Unix(0, 0)
	require.False(t, all.due(r, now), "it has just been written")
	require.False(t, all.due(r, now.Add(time.Second)), "it was checked a moment ago")
	require.True(t, all.due(r, now.Add(checkInterval)), "its release may have been terminated since")
	require.False(t, all.due(r, now.Add(checkInterval+time.Second)), "it was checked a moment ago")
	r.UID = "second"
	require.False(t, all.due(r, now.Add(3*checkInterval)), "a recreated object has just been written")
}

// Nothing is stored about a deleted object: there may be any number of them in the life of a process.
func TestMemoryIsFreed_WhenObjectDeleted(t *testing.T) {
	t.Parallel()
	r, w := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid"}},
		&kruise.Workload{}
	name, now := cache.ObjectName{Namespace: "shop", Name: "web"}, time.Now()
	c := &Controller{rollouts: watch.New(watch.Source{}, readRollout, watch.Options{})}
	c.sentCommands.note(name, "rollback", now)
	c.refusals.note(name, r, w, "Ingress web does not exist", now)
	c.otherController.shouldShow(name, "Kruise Rollouts itself is on this cluster", now)
	c.releaseChecks.due(r, now)
	c.writes.note(r, now)
	_, err := c.reconcile(t.Context(), name)
	require.NoError(t, err)
	require.Empty(t, c.sentCommands.known)
	require.Empty(t, c.refusals.known)
	require.Empty(t, c.otherController.shown.known)
	require.Empty(t, c.releaseChecks.known)
	require.Empty(t, c.writes.known)
}
