package workload_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// beginsMoving takes the claim on a workload, told what the Move is that comes right after it.
func (r *releasing) beginsMoving(first rollout.MoveRequest) rollout.BeginResult {
	r.b.t.Helper()
	begin := rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change}
	begun, err := r.b.acts.BeginMoving(r.b.t.Context(), begin, func(rollout.BeginResult) *rollout.MoveRequest { return &first })
	require.NoError(r.b.t, err)
	return begun
}

// A Deployment is written once where its pods move at once: the claim, what is saved, and the first of the Move.
func TestTheClaimAndTheFirstMoveAreOneWrite(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		reason, name string
		replicas     string
		native       bool
		updated      int32
	}{
		{"behind the gate", "gated", "40%", false, 2},
		{"its own controller goes to the end", "native", "100%", true, 5},
	} {
		b.deployment(c.name, 5, own("1", "0"))
		b.reaches(c.name, map[string]int{"x:good": 5})
		r := b.release(c.name, strategy.StylePartition, "x:second")
		before := b.whole(r.name)
		first := r.moveRequest(1, c.replicas)
		first.Native, first.Rest, first.Foreseen = c.native, !c.native, r.preflight().Foreseen
		held := b.watchFloor(c.name, 4, 5)

		written := b.realWrites()
		r.begun = r.beginsMoving(first)
		require.Equal(t, written+1, b.realWrites(), c.reason)
		require.True(t, r.begun.Placed, c.reason)
		require.Greater(t, r.begun.Generation, before.generation, "%s: as its write has left it", c.reason)
		require.True(t, r.beginsMoving(first).Placed, "%s: an attempt whose answer was not heard finds it so", c.reason)
		require.Equal(t, written+1, b.realWrites(), c.reason)

		moved := r.moved(first)
		require.Equal(t, c.updated, moved.Updated, c.reason)
		if !c.native {
			b.holds(c.name, map[string]int{"x:second": 2, "x:good": 3})
		}
		r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
		held()
		b.requireHome(before, c.name, "x:second", 5)
	}
}

// What the cluster does not take of the Move is the Move's own failure: the claim is taken without it, so that the rollout can be retried or brought home.
func TestAClaimIsTakenWithoutAMoveThatIsRefused(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	r := b.release("order", strategy.StylePartition, "x:second")
	first := r.moveRequest(1, "100%")
	first.Native, first.Rest, first.Foreseen = true, false, r.preflight().Foreseen
	before := b.whole(r.name)
	b.forbid("object.spec.replicas > 0 && !object.spec.template.spec.containers.exists(c, c.image == 'x:second')", "nobody may run that")

	r.begun = r.beginsMoving(first)
	require.False(t, r.begun.Placed)
	require.Equal(t, before.spec, b.whole(r.name).spec)
	require.Contains(t, r.moveFails(first, failure.Refused).Message(), "nobody may run that")
	r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
	b.requireHome(before, "order", "x:good", 2)
}

// What somebody else sets between the look and the write is saved as the workload's own, and there again at the end.
func TestAClaimThatMovesIsOfTheVersionThatWasSeen(t *testing.T) {
	b := newBench(t)
	b.deployment("app", 2, own("1", "0"))
	b.reaches("app", map[string]int{"x:good": 2})
	r := b.release("app", strategy.StylePartition, "x:second")
	first := r.moveRequest(1, "100%")
	first.Foreseen = r.preflight().Foreseen
	looks := 0
	var err error
	r.begun, err = b.acts.BeginMoving(t.Context(), rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change},
		func(rollout.BeginResult) *rollout.MoveRequest {
			if looks++; looks == 1 {
				_, err := b.kube.AppsV1().Deployments(b.namespace).Patch(t.Context(), "app", types.MergePatchType, []byte(`{"spec":{"minReadySeconds":1}}`), metav1.PatchOptions{})
				require.NoError(t, err)
			}
			return &first
		})
	require.NoError(t, err)
	require.True(t, r.begun.Placed)
	require.Greater(t, looks, 1, "it is looked at again")
	r.moved(first)
	r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
	d, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "app", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(1), d.Spec.MinReadySeconds)
	require.Equal(t, "x:second", d.Spec.Template.Spec.Containers[0].Image)
}
