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
	var all writes
	name, now := cache.ObjectName{Namespace: "shop", Name: "web"}, time.Unix(0, 0)
	require.Zero(t, all.unseen(name, at("one", 3), now), "nothing was written")
	all.note(at("one", 4), now)
	require.Equal(t, writeVisibleTimeout-time.Second, all.unseen(name, at("one", 3), now.Add(time.Second)),
		"the watch has the previous one")
	require.Zero(t, all.unseen(name, at("one", 4), now), "the watch has it")
	require.Zero(t, all.unseen(name, at("one", 5), now), "the watch has a later one")
	require.Zero(t, all.unseen(name, at("one", 0), now.Add(writeVisibleTimeout)),
		"another client has removed the status: it is no longer awaited")
	require.Zero(t, all.unseen(name, at("two", 1), now), "a recreated object is a different one")
	all.forget(name)
	require.Zero(t, all.unseen(name, at("one", 3), now), "the object is deleted")
}
