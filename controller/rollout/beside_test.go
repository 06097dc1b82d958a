package rollout

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// begins counts the releases that are begun.
type begins int

func (b *begins) Begin(context.Context, kruise.Release) (string, error) { *b++; return "", nil }

func (*begins) Send(context.Context, rollout.ObjectRef, rollout.Command, *strategy.Strategy) (kruise.Answer, error) {
	return kruise.Answer{}, nil
}

func (*begins) Open(context.Context, rollout.ObjectRef) (bool, error) { return false, nil }

// While something else releases what Rollouts name, no release begins, and the object says why; it is looked for once for all that are about to.
func TestNoReleaseBeginsBesideAnotherController(t *testing.T) {
	t.Parallel()
	asked, begun := 0, begins(0)
	said := "Kruise Rollouts itself is on this cluster"
	c := &Controller{releases: &begun, options: Options{Log: slog.New(slog.DiscardHandler), Beside: func(context.Context) (string, error) {
		asked++
		return said, nil
	}}, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())}
	r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	r.Spec.WorkloadRef = v1beta1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	r.Spec.Strategy.Canary = &v1beta1.CanaryStrategy{Steps: []v1beta1.CanaryStep{{}}}
	w := &kruise.Workload{}
	for range 2 {
		require.NoError(t, c.begin(context.Background(), r, kruise.NextAction{Do: kruise.DoBegin, Workload: w}))
	}
	text, _ := c.refusals.of(cache.ObjectName{Namespace: "shop", Name: "web"}, r, w, time.Now())
	require.Equal(t, said, text, "the object shows it")
	require.Zero(t, begun, "nothing begins")
	require.Equal(t, 1, asked, "many that are about to begin ask once")

	said = ""
	c.beside.at = c.beside.at.Add(-besideKept)
	_ = c.begin(context.Background(), r, kruise.NextAction{Do: kruise.DoBegin, Workload: w})
	require.Equal(t, 2, asked, "an answer is not taken as true for long")
	text, _ = c.refusals.of(cache.ObjectName{Namespace: "shop", Name: "web"}, r, w, time.Now())
	require.NotContains(t, text, "Kruise Rollouts", "it is gone")
}
