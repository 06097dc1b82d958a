package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// Whether a release still runs is asked now and then: not of an object that has just been written, nor again at once.
func TestAReleaseIsLookedAtNowAndThen(t *testing.T) {
	t.Parallel()
	var all looked
	r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "first"}}
	now := time.Unix(0, 0)
	require.False(t, all.due(r, now), "it has just been written")
	require.False(t, all.due(r, now.Add(time.Second)), "it was looked at a moment ago")
	require.True(t, all.due(r, now.Add(lookAgain)), "somebody may have terminated its release since")
	require.False(t, all.due(r, now.Add(lookAgain+time.Second)), "that was asked a moment ago")
	r.UID = "second"
	require.False(t, all.due(r, now.Add(3*lookAgain)), "an object that was made again has just been written")
}

// Of an object that is gone nothing is kept: there may be any number of them in the life of a process.
func TestAnObjectThatIsGoneIsForgotten(t *testing.T) {
	t.Parallel()
	r, w := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid"}}, &kruise.Workload{}
	name, now := cache.ObjectName{Namespace: "shop", Name: "web"}, time.Now()
	c := &Controller{}
	c.answers.note(name, "rollback", now)
	c.refusals.note(name, r, w, "Ingress web does not exist", now)
	c.beside.tell(name, "Kruise Rollouts itself is on this cluster", now)
	c.looked.due(r, now)
	c.written.note(r, now)
	_, err := c.reconcile(t.Context(), name)
	require.NoError(t, err)
	require.Empty(t, c.answers.known)
	require.Empty(t, c.refusals.known)
	require.Empty(t, c.beside.told.known)
	require.Empty(t, c.looked.known)
	require.Empty(t, c.written.known)
}
