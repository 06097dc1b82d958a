package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/kruise/v1beta1"
)

// A status that was written is waited for, so that nothing is decided by the one before: for a while, since somebody may have taken it away.
func TestAStatusThatWasWrittenIsWaitedFor(t *testing.T) {
	t.Parallel()
	at := func(uid string, seq int64) *v1beta1.Rollout {
		r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid)}}
		if seq > 0 {
			r.Status.Slipway = &v1beta1.EngineStatus{Seq: seq}
		}
		return r
	}
	var all writes
	name, now := cache.ObjectName{Namespace: "shop", Name: "web"}, time.Unix(0, 0)
	require.Zero(t, all.unseen(name, at("one", 3), now), "nothing was written")
	all.note(at("one", 4), now)
	require.Equal(t, writtenHolds-time.Second, all.unseen(name, at("one", 3), now.Add(time.Second)), "the watch shows the one before")
	require.Zero(t, all.unseen(name, at("one", 4), now), "it is there")
	require.Zero(t, all.unseen(name, at("one", 5), now), "a later one is there")
	require.Zero(t, all.unseen(name, at("one", 0), now.Add(writtenHolds)), "somebody has taken the status away: it is not waited for any more")
	require.Zero(t, all.unseen(name, at("two", 1), now), "an object that was made again is another")
	all.forget(name)
	require.Zero(t, all.unseen(name, at("one", 3), now), "the object is gone")
}
