package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/test/harness"
)

// A release that has a record but no workflow, as after a restore of Temporal's database, is shown as failed, not as
// starting forever; the release that Temporal knows is shown as running.
func TestRolloutHistory_ShowsFailed_WhenTemporalLostWorkflow(t *testing.T) {
	t.Parallel()
	e := harness.Start(t, harness.Options{})
	r := prepareUnobserved(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	r.StartRollout(r.rollout)
	status := r.WaitForApproval(r.rollout.Name, 1)

	records := e.Dynamic(t).Resource(schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group,
		Version: v1alpha1.GroupVersion.Version, Resource: "releaserecords"}).
		Namespace(e.Home)
	known, err := records.Get(context.Background(), status.Record, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, records.Delete(context.Background(), status.Record, metav1.DeleteOptions{}))
	put := func(name string, age time.Duration) {
		record := &unstructured.Unstructured{Object: map[string]any{"spec": known.DeepCopy().Object["spec"]}}
		record.SetGroupVersionKind(known.GroupVersionKind())
		record.SetName(name)
		record.SetLabels(known.GetLabels())
		require.NoError(t, unstructured.SetNestedField(record.Object,
			time.Now().Add(-age).UTC().Format(metav1.RFC3339Micro), "spec", "createdAt"))
		_, err := records.Create(context.Background(), record, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	put(status.Record, 2*time.Hour)
	put("forgotten", time.Hour)

	var history struct {
		Items []struct{ Rollout rollout.Status }
	}
	require.Eventually(t, func() bool {
		a := r.Call(http.MethodGet, "/api/v1/rollouts/"+r.Apps+"/"+r.rollout.Name+"/history", "")
		return a.Status == http.StatusOK && json.Unmarshal(a.Body, &history) == nil && len(history.Items) == 2
	}, harness.Patience, harness.Tick, "the server has seen both: %+v", &history)
	require.Equal(t, rollout.PhaseFailed, history.Items[0].Rollout.Phase)
	require.Contains(t, history.Items[0].Rollout.Reason, "it was accepted, but has no workflow")
	require.Equal(t, rollout.PhaseProgressing, history.Items[1].Rollout.Phase, "the one that Temporal knows runs")
}
