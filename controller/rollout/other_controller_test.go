package rollout

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// begins counts the started releases.
type begins int

func (b *begins) Begin(context.Context, kruise.Release) (string, error) { *b++; return "", nil }

func (*begins) Send(context.Context, rollout.ObjectRef, rollout.Command, *strategy.Strategy) (kruise.Answer, error) {
	return kruise.Answer{}, nil
}

func (*begins) RecordNotHeld(context.Context, kruise.Unheld) error { return nil }

func (*begins) Open(context.Context, rollout.ObjectRef) (bool, error) { return false, nil }

func (*begins) HasGivenBack(context.Context, string) (bool, error) { return false, nil }

// While another controller releases the workloads of Rollouts, no release begins, and the object shows why. The check
// is shared by all releases about to begin.
func TestNoReleaseBegins_NextToAnotherController(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, begun := 0, begins(0)
		said := "Kruise Rollouts itself is on this cluster"
		c := &Controller{releases: &begun, options: Options{Log: slog.New(slog.DiscardHandler),
			OtherController: func(context.Context) (reference.OtherController, error) {
				asked++
				return reference.OtherController{Message: said}, nil
			}}, queue: watch.NewQueue[cache.ObjectName](retryShortest, retryLongest)}
		defer c.queue.ShutDown()
		r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		r.Spec.WorkloadRef = v1beta1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
		r.Spec.Strategy.Canary = &v1beta1.CanaryStrategy{Steps: []v1beta1.CanaryStep{{}}}
		w := &kruise.Workload{}
		for range 2 {
			require.NoError(t, c.begin(context.Background(), r, kruise.NextAction{Kind: kruise.DoStart, Workload: w}))
		}
		text, _ := c.memoryOf(r).refused(r, w, time.Now())
		require.Equal(t, said, text, "the reason is recorded")
		require.Zero(t, begun, "nothing begins")
		require.Equal(t, 1, asked, "releases about to begin share one check")

		said = ""
		time.Sleep(otherControllerTTL)
		_ = c.begin(context.Background(), r, kruise.NextAction{Kind: kruise.DoStart, Workload: w})
		require.Equal(t, 2, asked, "the answer is cached only briefly")
		text, _ = c.memoryOf(r).refused(r, w, time.Now())
		require.NotContains(t, text, "Kruise Rollouts", "the other controller was removed")
	})
}

// Next to another controller, an object without a release is not written: that controller writes the same finalizer,
// hash and status in its own way.
func TestObjectIsNotWritten_NextToAnotherController(t *testing.T) {
	t.Parallel()
	const other = "Kruise Rollouts itself is on this cluster"
	r := &v1beta1.Rollout{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	atRest, held, released := &kruise.Workload{}, &kruise.Workload{Held: gate.Held{"/spec/paused": nil}},
		&kruise.Workload{Held: gate.Held{"/spec/paused": nil}, Claim: "ours"}
	beside := leaving(t, reference.OtherController{Message: other, Runs: true})
	for _, c := range []struct {
		reason  string
		do      kruise.ActionKind
		w       *kruise.Workload
		refused string
		want    bool
	}{
		{"the finalizer is the other controller's", kruise.DoRemoveFinalizer, atRest, "", true},
		{"the workload is not marked", kruise.DoMark, atRest, "", true},
		{"the hash is not written", kruise.DoWriteHash, held, "", true},
		{"the status is not written", kruise.DoWriteStatus, atRest, "", true},
		{"a held change is refused first", kruise.DoWriteStatus, held, "", true},
		{"then the object says why", kruise.DoWriteStatus, held, other, false},
		{"but not repeatedly", kruise.DoWriteStatus, held, other, true},
		{"a hold is released with its object", kruise.DoUnmark, held, "", false},
		{"a running release is controlled", kruise.DoCommand, released, "", false},
	} {
		leaves, err := beside.leavesAlone(context.Background(), r, c.w, kruise.NextAction{Kind: c.do}, c.refused)
		require.NoError(t, err)
		require.Equal(t, c.want, leaves, c.reason)
		alone, err := leaving(t, reference.OtherController{}).leavesAlone(context.Background(), r, c.w,
			kruise.NextAction{Kind: c.do}, c.refused)
		require.NoError(t, err)
		require.False(t, alone, "without another controller all actions are executed")
		running := r.DeepCopy()
		running.Status.Slipway = &v1beta1.EngineStatus{Open: true}
		steered, err := leaving(t, reference.OtherController{Message: other, Runs: true}).leavesAlone(
			context.Background(), running, c.w, kruise.NextAction{Kind: c.do}, c.refused)
		require.NoError(t, err)
		require.False(t, steered, "a release in progress is controlled to its end, including marks, status and "+
			"finalizer")
	}
	text, _ := beside.memoryOf(r).refused(r, held, time.Now())
	require.Equal(t, other, text, "the reason is recorded")

	leaves, err := leaving(t, reference.OtherController{Message: other}).leavesAlone(context.Background(), r, atRest,
		kruise.NextAction{Kind: kruise.DoRemoveFinalizer}, "")
	require.NoError(t, err)
	require.False(t, leaves, "remains of a removed controller remove no finalizer: a deletion would hang")
}

func leaving(t *testing.T, other reference.OtherController) *Controller {
	t.Helper()
	return &Controller{options: Options{Log: slog.New(slog.DiscardHandler),
		OtherController: func(context.Context) (reference.OtherController, error) { return other, nil }},
		queue: watch.NewQueue[cache.ObjectName](retryShortest, retryLongest)}
}
