package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// releaseCount returns the number of recorded releases of the workload.
func (d *declared) releaseCount() int {
	d.t.Helper()
	var list struct{ Items []json.RawMessage }
	require.NoError(d.t, json.Unmarshal([]byte(d.allHistory()), &list))
	return len(list.Items)
}

// allHistory returns the recorded history of all releases.
func (d *declared) allHistory() string {
	d.t.Helper()
	answer := d.Call(http.MethodGet, "/api/v1/rollouts/"+d.Apps+"/"+d.rollout.Name+"/history", "")
	require.Equal(d.t, http.StatusOK, answer.Status, answer.Body)
	return string(answer.Body)
}

// waitObserved waits until the workload's own controller has observed its newest spec.
func (d *declared) waitObserved() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		o := d.object()
		seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		return seen >= o.GetGeneration()
	}, harness.Patience, harness.Tick, "its controller never observes the newest spec")
}

// With every process of the engine dead, a change of the template replaces no pod, whatever else is edited. After a
// restart the release begins by itself, once.
func TestKubectlChange_IsHeldAndReleasedOnce_WhenEngineDead(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	kinds := []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet}
	held := make([]*declared, len(kinds))
	for i, kind := range kinds {
		held[i] = declare(t, e, g, cell{kind, strategy.StylePartition, harness.NoProvider}, nil)
	}
	e.Processes[0].Kill()
	for _, d := range held {
		d.watch.MarkMoving(t)
		d.setImage("alice", "registry.test/order:v1b")
		d.setImage("alice", d.rollout.NewestImage())
		d.edit(`{"metadata":{"labels":{"team":"shop"}}}`)
		d.waitObserved()
		d.watch.WaitCount(t, observer.Count{Stable: harness.SubjectSize, StableReady: harness.SubjectSize})
		d.watch.RequirePromises(t)
	}
	e.Processes[0] = e.Dev(harness.Options{})
	e.WaitReady()
	for _, d := range held {
		d.waitStep(1)
		require.Equal(t, 1, d.releaseCount(), "the release begins once")
		d.watch.RequirePromises(t)
	}
}

// edit merges a change into the workload.
func (d *declared) edit(patch string) {
	d.t.Helper()
	_, err := d.Dynamic(d.t).Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name,
		types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	require.NoError(d.t, err)
}

// Three workers see the same change and the same approval: one release begins, and the approval is recorded once.
func TestLongKubectlRelease_BeginsOnce_WithThreeWorkers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for range 2 {
		e.Worker(harness.Options{})
	}
	for range 3 {
		d := declare(t, e, g, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
		d.setImage("alice", d.rollout.NewestImage())
		d.approve(1)
		d.waitStep(2)
		require.Equal(t, 1, d.releaseCount(), "one release")
		approvals := 0
		for _, entry := range d.history() {
			if entry == "approve by approver (kubectl): accepted" {
				approvals++
			} else {
				require.NotContains(t, entry, "refused", "three servers deliver one command")
			}
		}
		require.Equal(t, 1, approvals, "one approval")
	}
}
