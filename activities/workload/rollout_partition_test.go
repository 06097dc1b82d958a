package workload_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/observer"
)

// TestPartitionWrites counts the writes of five steps of 20 % on five pods.
func TestPartitionWrites(t *testing.T) {
	b := newBench(t)
	name := observer.Name{Kind: "Deployment", Name: "web"}
	b.deployment("web", 5, own("1", "0"))
	b.settled(name, 5)
	before := b.state(name)
	r := b.release("web", strategy.StylePartition, "x:new")
	require.Empty(t, r.preflight().Refusals)
	r.begin()
	require.Equal(t, 1, b.realWrites(), "Begin is one write")
	stop := b.watchFloor("web", 4, 5)
	for i, percent := range []string{"20%", "40%", "60%", "80%", "100%"} {
		writes := b.realWrites()
		got := r.move(i+1, percent)
		require.Equal(t, int32(i+1), got.UpdatedReady, got.Message)
		require.LessOrEqual(t, b.realWrites()-writes, 5,
			"a step of one sub-batch is one write, one to halt and one to pause, and two to leave the previous pause")
		want := map[string]int{"x:new": i + 1, "x:good": 4 - i}
		if i == 4 {
			want = map[string]int{"x:new": 5}
		}
		b.holds("web", want)
	}
	writes := b.realWrites()
	r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
	require.Equal(t, 2, b.realWrites()-writes, "finalising is two writes")
	stop()
	b.requireFinalised(before, "web", "x:new", 5)
}
