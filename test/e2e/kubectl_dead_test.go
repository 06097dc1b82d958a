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

// releases is how many releases of the workload there are on record.
func (d *declared) releases() int {
	d.t.Helper()
	var list struct{ Items []json.RawMessage }
	require.NoError(d.t, json.Unmarshal([]byte(d.past()), &list))
	return len(list.Items)
}

// past is what all of them have on record.
func (d *declared) past() string {
	d.t.Helper()
	answer := d.Call(http.MethodGet, "/api/v1/rollouts/"+d.Apps+"/"+d.rollout.Name+"/history", "")
	require.Equal(d.t, http.StatusOK, answer.Status, answer.Body)
	return string(answer.Body)
}

// waitObserved returns when the workload's own controller has looked at its newest spec.
func (d *declared) waitObserved() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		o := d.object()
		seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		return seen >= o.GetGeneration()
	}, harness.Patience, harness.Tick, "its controller never looks")
}

// With every process of the engine dead, a change of the template takes no pod, whatever else is edited; when the engine is back the release begins
// by itself, once.
func TestKubectlWithoutTheEngine(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	kinds := []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet}
	held := make([]*declared, len(kinds))
	for i, kind := range kinds {
		held[i] = declare(t, e, g, cell{kind, strategy.StylePartition, harness.NoProvider}, nil)
	}
	e.Processes[0].Kill()
	for _, d := range held {
		d.watch.Leaving(t)
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
		require.Equal(t, 1, d.releases(), "the release begins once")
		d.watch.RequirePromises(t)
	}
}

// edit merges a change into the workload.
func (d *declared) edit(patch string) {
	d.t.Helper()
	_, err := d.Dynamic(d.t).Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	require.NoError(d.t, err)
}

// Three servers see the same change, and the same approval: one release begins, and the approval is on record once.
func TestLongKubectlThreeServers(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for range 2 {
		e.Server(harness.Options{Args: []string{"--listen", "127.0.0.1:" + harness.FreePort(t), "--kuscia-listen", "127.0.0.1:" + harness.FreePort(t),
			"--kuscia-grpc-listen", "127.0.0.1:" + harness.FreePort(t)}})
	}
	for range 3 {
		d := declare(t, e, g, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
		d.setImage("alice", d.rollout.NewestImage())
		d.approve(1)
		d.waitStep(2)
		require.Equal(t, 1, d.releases(), "one release")
		approvals := 0
		for _, entry := range d.history() {
			if entry == "approve by approver (kubectl): accepted" {
				approvals++
			} else {
				require.NotContains(t, entry, "refused", "what three servers pass on is one command")
			}
		}
		require.Equal(t, 1, approvals, "one approval")
	}
}
