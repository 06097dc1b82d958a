package workload_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// before calls happen between the decision for the n-th change and its arrival at the API server.
func (b *bench) before(n int32, happen func()) {
	var seen atomic.Int32
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPatch && seen.Add(1) == n {
			happen()
		}
		return nil, nil
	})
}

// Two releases read a free workload at the same moment: the second one to write finds it claimed, and has changed
// nothing.
func TestConcurrentReleases_SecondIsRefused(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	before := b.state(order)
	b.before(1, func() {
		b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"`+dead+
			`"},"labels":{"slipway.io/claimed":"true"}}}`)
	})
	app := b.fails(b.request(order, plan.Restart, plan.Parallel), failure.Claimed)
	require.Contains(t, app.Message(), "task/t0/1-order", "the holder is named")
	after := b.state(order)
	require.Equal(t, before.spec, after.spec, "the second release changes nothing")
	require.Equal(t, before.marker, after.marker)
	require.Zero(t, b.traffic.written())
}

// Another release replaces a claim between a decision and its write: the write fails, and the new holder's values
// remain.
func TestWrite_FailsWhenClaimReplacedMeanwhile(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	b.before(2, func() { b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"`+dead+`"}}}`) })
	app := b.fails(b.request(order, plan.Restart, plan.Parallel), failure.ClaimLost)
	require.NotEmpty(t, app.Message())
	require.Equal(t, 1, b.traffic.written(), "only the writes under the claim")
	require.Equal(t, dead, b.state(order).annotations["slipway.io/claimed-by"], "the new holder keeps its claim")
}
