package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// A release that is rolling back writes to its workload many times before its object shows it: the command that caused
// it is sent once, and again only if it had no effect.
func TestCommandIsNotResent_WithinResendAfter(t *testing.T) {
	t.Parallel()
	var m memory
	now := time.Unix(0, 0)
	require.Zero(t, m.recentlySent("rollback", now), "it was not sent")
	m.sent = shownText{"rollback", now}
	require.Equal(t, 3*time.Second, m.recentlySent("rollback", now.Add(2*time.Second)))
	require.Zero(t, m.recentlySent("rollback", now.Add(resendAfter)), "it had no effect")
	require.Zero(t, m.recentlySent("approve", now), "another command")
	require.Zero(t, m.recentlySent("", now), "no key, no command")
}

// A release that could not begin is retried: soon, since what it refers to may be applied a moment later, then less and
// less often.
func TestRefusedReleaseIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	var m memory
	object, w := &v1beta1.Rollout{}, &kruise.Workload{}
	now := time.Unix(0, 0)
	for _, pause := range []time.Duration{2, 4, 8, 16, 30, 30} {
		m.refuse(object, w, "Ingress web does not exist", now)
		text, at := m.refused(object, w, now)
		require.Equal(t, "Ingress web does not exist", text)
		require.Equal(t, pause*time.Second, at.Sub(now), "the next attempt is due")
		now = at
		text, _ = m.refused(object, w, now)
		require.Empty(t, text, "the attempt is made")
	}
	m.refuse(object, w, "still", now)
	w.Generation++
	text, _ := m.refused(object, w, now)
	require.Empty(t, text, "a change is attempted at once")
	m.refuse(object, w, "another", now)
	_, at := m.refused(object, w, now)
	require.Equal(t, refusalPauseMin, at.Sub(now), "and refused again")
}

// A written status is awaited, so that no decision uses the previous one; only for a while, since another client may
// have removed it.
func TestWrittenStatusIsAwaited(t *testing.T) {
	t.Parallel()
	at := func(uid string, seq int64) *v1beta1.Rollout {
		r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid)}}
		if seq > 0 {
			r.Status.Slipway = &v1beta1.EngineStatus{Seq: seq}
		}
		return r
	}
	var m memory
	now := time.Unix(0, 0)
	require.Zero(t, m.unseen(at("one", 3), now), "nothing was written")
	m.wrote(at("one", 4), now)
	require.Equal(t, writeVisibleTimeout-time.Second, m.unseen(at("one", 3), now.Add(time.Second)),
		"the watch has the previous one")
	require.Zero(t, m.unseen(at("one", 4), now), "the watch has it")
	require.Zero(t, m.unseen(at("one", 5), now), "the watch has a later one")
	require.Zero(t, m.unseen(at("one", 0), now.Add(writeVisibleTimeout)),
		"another client has removed the status: it is no longer awaited")
	require.Zero(t, m.unseen(at("two", 1), now), "a recreated object is a different one")
}

// Whether a release still runs is checked at intervals, but not right after the object was written or checked.
func TestReleaseIsCheckedAtIntervals(t *testing.T) {
	t.Parallel()
	var m memory
	r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "first"}}
	now := time.Unix(0, 0)
	require.False(t, m.checkDue(r, now), "it has just been written")
	require.False(t, m.checkDue(r, now.Add(time.Second)), "it was checked a moment ago")
	require.True(t, m.checkDue(r, now.Add(checkInterval)), "its release may have been terminated since")
	require.False(t, m.checkDue(r, now.Add(checkInterval+time.Second)), "it was checked a moment ago")
	r.UID = "second"
	require.False(t, m.checkDue(r, now.Add(3*checkInterval)), "a recreated object has just been written")
}

// Nothing is stored about a deleted object: there may be any number of them in the life of a process.
func TestMemoryIsFreed_WhenObjectDeleted(t *testing.T) {
	t.Parallel()
	r, w := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid"}},
		&kruise.Workload{}
	name, now := cache.ObjectName{Namespace: "shop", Name: "web"}, time.Now()
	c := &Controller{rollouts: watch.New(watch.Source{}, readRollout, watch.Options{})}
	c.memories.of(name).refuse(r, w, "Ingress web does not exist", now)
	c.memoryOf(r).wrote(r, now)
	require.Len(t, c.memories.known, 1)
	_, err := c.reconcile(t.Context(), name)
	require.NoError(t, err)
	require.Empty(t, c.memories.known)
}
