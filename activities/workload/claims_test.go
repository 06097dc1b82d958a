package workload_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/observer"
)

const dead = "task/t0/1-order@run-0"

// abandon begins an operation for a release that dies in the middle: its claim and what it borrowed stay.
func (b *bench) abandon(req workloadops.Request, name observer.Name, begun func(whole) bool) {
	b.t.Helper()
	req.Claim, req.Marker = dead, "t0/1"
	b.traffic.set(func(r *http.Request) (*http.Response, error) {
		// The process dies after the first write: nothing more of it reaches the server.
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
	w := b.whole(name)
	require.Equal(b.t, dead, w.annotations[workloadops.AnnotationClaimedBy])
	require.Equal(b.t, workloadops.LabelClaimedValue, w.labels[workloadops.LabelClaimed])
	require.True(b.t, begun(w), "the abandoned operation had not begun")
}

func TestClaimedByAnother(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"`+dead+`"}}}`)
	before := b.whole(order)
	app := b.fails(b.request(order, plan.Restart, plan.Sequential), failure.Claimed)
	require.Contains(t, app.Message(), "is being released by task/t0/1-order: wait until that has ended or stop it")
	var details failure.Details
	require.NoError(t, app.Details(&details))
	require.Equal(t, dead, details.Holder, "the workflow must learn whose claim it is")
	require.Zero(t, b.traffic.written())
	require.Equal(t, before, b.whole(order))
}

func TestTakeOver(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: amount("50%"), MaxSurge: amount("2")}
	})
	b.settled(order, 3)
	before := b.whole(order)
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w whole) bool { return w.marker == "t0/1" && w.spec != before.spec })
	req := b.request(order, plan.Restart, plan.Sequential)
	req.TakeOver = dead
	result := b.must(req)
	require.Equal(t, "restarted: 3 of 3 pods are ready", result.Message)
	after := b.requireTidy(order, before)
	require.Equal(t, "t1/1", after.marker)
}

func TestTakeOverOfAStartHalfWay(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, nil)
	before := b.whole(order)
	three := int32(3)
	start := b.request(order, plan.Start, plan.Sequential)
	start.Workload.Replicas = &three
	b.abandon(start, order, func(w whole) bool { return w.replicas == 1 })
	req := b.request(order, plan.Start, plan.Parallel)
	req.TakeOver = dead
	result := b.must(req)
	require.Equal(t, "started: 3 of 3 pods are ready", result.Message, "the size that the dead release was on the way to is not lost")
	b.requireTidy(order, before)
}

func TestTheWrongClaimIsNotTakenOver(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 1, nil)
	b.settled(order, 1)
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"task/t9/1-order@run-9"}}}`)
	req := b.request(order, plan.Stop, plan.Parallel)
	req.TakeOver = dead
	_ = b.fails(req, failure.Claimed)
	require.Zero(t, b.traffic.written(), "the claim that is there is not the one that is known to be dead")
}

func TestLostClaim(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 0, neverReady)
	one := int32(1)
	req := b.request(order, plan.Start, plan.Parallel)
	req.Workload.Replicas = &one
	ended := b.inBackground(req)
	b.until(order, "claimed", func(w whole) bool { return w.annotations[workloadops.AnnotationClaimedBy] == req.Claim })
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":"`+dead+`"}}}`)
	app := requireFailure(t, <-ended, failure.ClaimLost)
	require.Contains(t, app.Message(), "somebody took this release's claim away")
	require.Contains(t, app.Message(), "task/t0/1-order holds it now")
	require.Equal(t, dead, b.whole(order).annotations[workloadops.AnnotationClaimedBy], "the other's claim is left alone")
}

func TestClaimTakenAwayByHand(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	before := b.whole(order)
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w whole) bool { return w.marker == "t0/1" })
	b.merge(order, `{"metadata":{"annotations":{"slipway.io/claimed-by":null},"labels":{"slipway.io/claimed":null}}}`)
	b.must(b.request(order, plan.Restart, plan.Sequential))
	b.requireTidy(order, before)
}

func TestRestore(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, nil)
	b.settled(order, 3)
	before := b.whole(order)
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w whole) bool { return w.spec != before.spec })
	req := b.request(order, plan.Restart, plan.Parallel)
	result, err := b.acts.Restore(t.Context(), workloadops.RestoreRequest{Request: req})
	require.NoError(t, err)
	require.False(t, result.Changed, "another's claim is not ours to give back")
	req.Claim = dead
	result, err = b.acts.Restore(t.Context(), workloadops.RestoreRequest{Request: req})
	require.NoError(t, err)
	require.Equal(t, "its own update settings are given back and the claim is released", result.Message)
	b.requireTidy(order, before)
	written := b.traffic.written()
	result, err = b.acts.Restore(t.Context(), workloadops.RestoreRequest{Request: req})
	require.NoError(t, err)
	require.False(t, result.Changed)
	require.Equal(t, written, b.traffic.written(), "a second time there is nothing to do")
}

func TestRestoreOfAHalfStopRemembersTheSize(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 3, nil)
	b.settled(order, 3)
	b.abandon(b.request(order, plan.Stop, plan.Sequential), order, func(w whole) bool { return w.replicas == 2 })
	req := b.request(order, plan.Stop, plan.Sequential)
	req.Claim = dead
	_, err := b.acts.Restore(t.Context(), workloadops.RestoreRequest{Request: req})
	require.NoError(t, err)
	result := b.must(b.request(order, plan.Start, plan.Parallel))
	require.Equal(t, "started: 3 of 3 pods are ready", result.Message, "START after a STOP that broke off comes back to the full size")
	require.NotContains(t, b.whole(order).annotations, workloadops.AnnotationLeftAt)
}

func TestRestoreOfAWorkloadThatIsGone(t *testing.T) {
	b := newBench(t)
	result, err := b.acts.Restore(t.Context(), workloadops.RestoreRequest{Request: b.request(order, plan.Stop, plan.Sequential)})
	require.NoError(t, err, "nothing is owed to a workload that is gone")
	require.False(t, result.Changed)
}

// TestOriginalIsReadable checks that somebody with kubectl alone can see what was borrowed and put it back.
func TestOriginalIsReadable(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	var saved string
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w whole) bool {
		saved = w.annotations[workloadops.AnnotationOriginal]
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
