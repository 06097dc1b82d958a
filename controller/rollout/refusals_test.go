package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// A release that could not begin is retried: soon, since what it refers to may be applied a moment later, then less and
// less often.
func TestRefusedReleaseIsRetriedWithBackoff(t *testing.T) {
	t.Parallel()
	var all refusals
	name, object, w := cache.ObjectName{Namespace: "a", Name: "b"}, &v1beta1.Rollout{}, &kruise.Workload{}
	now := time.Unix(0, 0)
	for _, pause := range []time.Duration{2, 4, 8, 16, 30, 30} {
		all.note(name, object, w, "Ingress web does not exist", now)
		text, at := all.current(name, object, w, now)
		require.Equal(t, "Ingress web does not exist", text)
		require.Equal(t, pause*time.Second, at.Sub(now), "the next attempt is due")
		now = at
		text, _ = all.current(name, object, w, now)
		require.Empty(t, text, "the attempt is made")
	}
	all.note(name, object, w, "still", now)
	w.Generation++
	text, _ := all.current(name, object, w, now)
	require.Empty(t, text, "a change is attempted at once")
	all.note(name, object, w, "another", now)
	_, at := all.current(name, object, w, now)
	require.Equal(t, refusalPauseMin, at.Sub(now), "and refused again")
}
