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

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/reference"
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
	c := &Controller{releases: &begun, options: Options{Log: slog.New(slog.DiscardHandler), Beside: func(context.Context) (reference.Beside, error) {
		asked++
		return reference.Beside{Says: said}, nil
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

// Beside another controller, an object at rest is not written to: that controller writes the same finalizer, hash and status its own way.
func TestAnObjectIsLeftToAnotherController(t *testing.T) {
	t.Parallel()
	const other = "Kruise Rollouts itself is on this cluster"
	r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	name := cache.ObjectName{Namespace: "shop", Name: "web"}
	atRest, held, released := &kruise.Workload{}, &kruise.Workload{Held: gate.Held{"/spec/paused": nil}}, &kruise.Workload{Held: gate.Held{"/spec/paused": nil}, Claim: "ours"}
	beside := leaving(t, reference.Beside{Says: other, Runs: true})
	for _, c := range []struct {
		reason  string
		do      kruise.Do
		w       *kruise.Workload
		refused string
		want    bool
	}{
		{"its finalizer is that of the other", kruise.DoUnguard, atRest, "", true},
		{"its workload isn't marked", kruise.DoMark, atRest, "", true},
		{"nor is its hash written", kruise.DoHash, held, "", true},
		{"nor its status at rest", kruise.DoShow, atRest, "", true},
		{"a change that is held is refused first", kruise.DoShow, held, "", true},
		{"then the object says why", kruise.DoShow, held, other, false},
		{"but not again and again", kruise.DoShow, held, other, true},
		{"what is held is given back where the object is let go", kruise.DoLetGo, held, "", false},
		{"and a release that runs is steered", kruise.DoCommand, released, "", false},
	} {
		leaves, err := beside.leaves(context.Background(), r, c.w, kruise.NextAction{Do: c.do}, c.refused)
		require.NoError(t, err)
		require.Equal(t, c.want, leaves, c.reason)
		alone, err := leaving(t, reference.Beside{}).leaves(context.Background(), r, c.w, kruise.NextAction{Do: c.do}, c.refused)
		require.NoError(t, err)
		require.False(t, alone, "with nothing beside it everything is done")
		running := r.DeepCopy()
		running.Status.Slipway = &v1beta1.EngineStatus{Open: true}
		steered, err := leaving(t, reference.Beside{Says: other, Runs: true}).leaves(context.Background(), running, c.w, kruise.NextAction{Do: c.do}, c.refused)
		require.NoError(t, err)
		require.False(t, steered, "a release that is under way is steered to its end: its marks, status and finalizer as well")
	}
	text, _ := beside.refusals.of(name, r, held, time.Now())
	require.Equal(t, other, text, "why it doesn't begin is known")

	leaves, err := leaving(t, reference.Beside{Says: other}).leaves(context.Background(), r, atRest, kruise.NextAction{Do: kruise.DoUnguard}, "")
	require.NoError(t, err)
	require.False(t, leaves, "what its controller has left behind takes no finalizer away: a deletion would hang")
}

func leaving(t *testing.T, other reference.Beside) *Controller {
	t.Helper()
	return &Controller{options: Options{Log: slog.New(slog.DiscardHandler), Beside: func(context.Context) (reference.Beside, error) { return other, nil }},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())}
}
