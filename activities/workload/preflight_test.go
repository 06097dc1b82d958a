package workload_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/observer"
)

// A large plan is checked quickly, with far fewer than a thousand requests to the API server.
func TestPreflight_OfThousandRequestsIsCheap(t *testing.T) {
	b := newBench(t)
	for i := range 20 {
		b.deployment(fmt.Sprintf("d-%d", i), 0, nil)
	}
	b.statefulSet("s-0", 0, nil)
	var in operation.PreflightRequest
	one := int32(1)
	for i := range 1000 {
		req := b.request(observer.Name{Kind: "Deployment", Name: fmt.Sprintf("d-%d", i%20)}, plan.Start, plan.Parallel)
		req.Workload.Replicas = &one
		in.Requests = append(in.Requests, req)
	}
	in.Requests[7].Workload.WorkloadRef.Name = "missing"
	in.Requests[8].Workload.Replicas = nil
	in.Requests[9].Workload.WorkloadRef.Kind, in.Requests[9].Workload.WorkloadRef.Name = "StatefulSet", "s-0"
	began := time.Now()
	out, err := b.acts.Preflight(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, []operation.Refusal{
		{Index: 7, Reason: "Deployment " + b.namespace +
			"/missing does not exist: create it, or remove it from the catalogue"},
		{Index: 8, Reason: "Deployment " + b.namespace +
			"/d-8 has no pods and no size is known to start it with: give it `replicas` in the catalogue, or scale " +
			"it by hand once"},
	}, out.Refusals)
	require.Less(t, time.Since(began), 3*time.Second)
	require.LessOrEqual(t, len(b.traffic.calls), 17, "%v", b.traffic.calls)
	require.Zero(t, b.traffic.count(http.MethodPatch, ""))
}

// Another engine's claim is refused by the preflight: this engine cannot find out whether its holder is alive.
func TestPreflight_RefusesClaimOfAnotherEngine(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 1, nil)
	b.settled(order, 1)
	req := b.request(order, plan.Restart, plan.Parallel)
	req.Claim = workload.Holder{Engine: workload.Engine{UID: "uid-a", Name: "a"}}.String()
	for claim, says := range map[string]string{
		"task/t9/1-order@run@b/uid-b": "is being released by task/t9/1-order of engine b: only engine b can take " +
			"over its own claims",
		"task/t9/1-order@run@a/uid-a": "",
		"task/t9/1-order@run":         "",
	} {
		b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"`+claim+`"}}}`)
		checked, err := b.acts.Preflight(t.Context(),
			operation.PreflightRequest{Requests: []operation.Request{req}})
		require.NoError(t, err)
		if says == "" {
			require.Empty(t, checked.Refusals, claim)
			continue
		}
		require.Len(t, checked.Refusals, 1, claim)
		require.Contains(t, checked.Refusals[0].Reason, says)
	}
}

func TestPreflight_AllowsClaimOfSameEngine(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 1, nil)
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"task/other@run"}}}`)
	out, err := b.acts.Preflight(t.Context(), operation.PreflightRequest{Requests: []operation.Request{b.request(
		order, plan.Stop, plan.Parallel)}})
	require.NoError(t, err)
	require.Empty(t, out.Refusals, "the holder may have finished when the operation runs")
}

func TestPreflight_FailsWhenUnreachable(t *testing.T) {
	b := newBench(t)
	b.traffic.set(down)
	_, err := b.acts.Preflight(t.Context(), operation.PreflightRequest{Requests: []operation.Request{b.request(
		order, plan.Stop, plan.Parallel)}})
	app := requireFailure(t, err, failure.Unreachable)
	require.Contains(t, app.Message(), "this party's cluster is out of reach: ")
}

func TestPreflight_OfNoRequests(t *testing.T) {
	b := newBench(t)
	out, err := b.acts.Preflight(t.Context(), operation.PreflightRequest{})
	require.NoError(t, err)
	require.Empty(t, out.Refusals)
	require.Empty(t, b.traffic.calls)
}
