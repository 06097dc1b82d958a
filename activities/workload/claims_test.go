package workload_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/observer"
)

const dead = "task/t0/1-order@run-0"

// abandon starts an operation of a release that dies halfway: its claim and what it borrowed remain.
func (b *bench) abandon(req operation.Request, name observer.Name, begun func(workloadState) bool) {
	b.t.Helper()
	req.Claim, req.Marker = dead, "t0/1"
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		// The process dies after the first write: no further request reaches the server.
		if b.traffic.written() > 0 {
			return nil, errDown
		}
		return nil, nil
	})
	d := b.driver(req)
	d.req.UnreachableBudgetSeconds = 1
	_, err := d.run()
	_ = requireFailure(b.t, err, failure.Unreachable)
	b.traffic.set(nil)
	w := b.state(name)
	require.Equal(b.t, dead, w.annotations[workload.AnnotationClaimedBy])
	require.Equal(b.t, workload.LabelClaimedValue, w.labels[workload.LabelClaimed])
	require.True(b.t, begun(w), "the abandoned operation had not started")
}

func TestRun_FailsWhenClaimedByAnotherRelease(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"`+dead+`"}}}`)
	before := b.state(order)
	app := b.fails(b.request(order, plan.Restart, plan.Sequential), failure.Claimed)
	require.Contains(t, app.Message(), "is being released by task/t0/1-order: wait until that has ended or stop it")
	var details failure.Details
	require.NoError(t, app.Details(&details))
	require.Equal(t, dead, details.Holder, "the workflow must learn the holder")
	require.Zero(t, b.traffic.written())
	require.Equal(t, before, b.state(order))
}

func TestTakeOver_ReplacesDeadClaim(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: amount("50%"),
			MaxSurge: amount("2")}
	})
	b.settled(order, 3)
	before := b.state(order)
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w workloadState) bool {
		return w.marker == "t0/1" && w.spec != before.spec
	})
	req := b.request(order, plan.Restart, plan.Sequential)
	req.TakeOver = dead
	result := b.must(req)
	require.Equal(t, "restarted: 3 of 3 pods are ready", result.Message)
	after := b.requireTidy(order, before)
	require.Equal(t, "t1/1", after.marker)
}

func TestTakeOver_KeepsTargetSizeOfUnfinishedStart(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, nil)
	before := b.state(order)
	three := int32(3)
	start := b.request(order, plan.Start, plan.Sequential)
	start.Workload.Replicas = &three
	b.abandon(start, order, func(w workloadState) bool { return w.replicas == 1 })
	req := b.request(order, plan.Start, plan.Parallel)
	req.TakeOver = dead
	result := b.must(req)
	require.Equal(t, "started: 3 of 3 pods are ready", result.Message,
		"the target size of the dead release is not lost")
	b.requireTidy(order, before)
}

func TestTakeOver_IgnoresOtherClaim(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 1, nil)
	b.settled(order, 1)
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"task/t9/1-order@run-9"}}}`)
	req := b.request(order, plan.Stop, plan.Parallel)
	req.TakeOver = dead
	_ = b.fails(req, failure.Claimed)
	require.Zero(t, b.traffic.written(), "the claim is not the one that is known to be dead")
}

func TestRun_FailsWhenClaimReplaced(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, neverReady)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas = &one
	ended := b.inBackground(req)
	b.until(order, "claimed", func(w workloadState) bool {
		return w.annotations[workload.AnnotationClaimedBy] == req.Claim
	})
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"`+dead+`"}}}`)
	app := requireFailure(t, <-ended, failure.ClaimLost)
	require.Contains(t, app.Message(), "another client removed this release's claim")
	require.Contains(t, app.Message(), "task/t0/1-order holds it now")
	require.Equal(t, dead, b.state(order).annotations[workload.AnnotationClaimedBy], "the other claim is unchanged")
}

func TestRun_SucceedsAfterDeadClaimRemovedByHand(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	before := b.state(order)
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w workloadState) bool {
		return w.marker == "t0/1"
	})
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":null},"labels":{"slipway.io/claimed":null}}}`)
	b.must(b.request(order, plan.Restart, plan.Sequential))
	b.requireTidy(order, before)
}

func TestRestore(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, nil)
	b.settled(order, 3)
	before := b.state(order)
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w workloadState) bool {
		return w.spec != before.spec
	})
	req := b.request(order, plan.Restart, plan.Parallel)
	result, err := b.acts.Restore(t.Context(), operation.RestoreRequest{Request: req})
	require.NoError(t, err)
	require.False(t, result.Changed, "another release's claim is not released")
	req.Claim = dead
	result, err = b.acts.Restore(t.Context(), operation.RestoreRequest{Request: req})
	require.NoError(t, err)
	require.Equal(t, "its own update settings are restored and the claim is released", result.Message)
	b.requireTidy(order, before)
	written := b.traffic.written()
	result, err = b.acts.Restore(t.Context(), operation.RestoreRequest{Request: req})
	require.NoError(t, err)
	require.False(t, result.Changed)
	require.Equal(t, written, b.traffic.written(), "the second restore writes nothing")
}

func TestRestore_OfUnfinishedStopKeepsSize(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, nil)
	b.settled(order, 3)
	b.abandon(b.request(order, plan.Stop, plan.Sequential), order, func(w workloadState) bool {
		return w.replicas == 2
	})
	req := b.request(order, plan.Stop, plan.Sequential)
	req.Claim = dead
	_, err := b.acts.Restore(t.Context(), operation.RestoreRequest{Request: req})
	require.NoError(t, err)
	result := b.must(b.request(order, plan.Start, plan.Parallel))
	require.Equal(t, "started: 3 of 3 pods are ready", result.Message,
		"START after an unfinished STOP restores the full size")
	require.NotContains(t, b.state(order).annotations, workload.AnnotationLeftAt)
}

func TestRestore_SucceedsWhenWorkloadDeleted(t *testing.T) {
	b := newBench(t)
	result, err := b.acts.Restore(t.Context(), operation.RestoreRequest{Request: b.request(order, plan.Stop,
		plan.Sequential)})
	require.NoError(t, err, "a deleted workload has nothing to restore")
	require.False(t, result.Changed)
}

// A user with only kubectl can see what was borrowed and restore it.
func TestOriginalAnnotation_IsReadable(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	var saved string
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w workloadState) bool {
		saved = w.annotations[workload.AnnotationOriginal]
		return true
	})
	var o map[string]any
	require.NoError(t, json.Unmarshal([]byte(saved), &o))
	require.Equal(t, []any{
		map[string]any{"path": "/spec/strategy/rollingUpdate/maxUnavailable", "own": "25%", "lent": "100%"},
		map[string]any{"path": "/spec/strategy/rollingUpdate/maxSurge", "own": "25%", "lent": float64(0)},
	}, o["borrowed"])
	require.Equal(t, "1", o["fromRevision"])
}
