package workload

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Each change by another client to the fields by which pods move counts once, regardless of other writes in between.
func TestConflictCounter_CountsChangesByOthers(t *testing.T) {
	t.Parallel()
	tech, _ := pods.TechniqueOf(catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "StatefulSet"},
		strategy.StylePartition)
	live := func(generation int64) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGeneration(generation)
		at := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "helm", Operation: metav1.ManagedFieldsOperationUpdate,
			Time: &at, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:template":{},"f:updateStrategy":{}}}`)}})
		return o
	}
	fields := func(partition, template string) map[string]json.RawMessage {
		return moveFields(pods.Observed{Template: template,
			Snapshot: workload.Snapshot{Settings: map[string]json.RawMessage{
				"/spec/updateStrategy": json.RawMessage(`{"partition":` + partition + `}`),
				"/spec/paused":         json.RawMessage("true")}}}, tech)
	}
	var d conflictCounter
	require.Zero(t, d.compare(fields("0", "old"), live(1)), "nothing was written yet")
	d.noteWrite(fields("3", "new"), live(2))
	require.Zero(t, d.compare(fields("0", "old"), live(1)), "a read from before the write")
	require.Zero(t, d.compare(fields("3", "new"), live(3)), "another client has scaled it")
	first := pods.EditConflict{Times: 1, Fields: "spec.updateStrategy", By: "helm"}
	require.Equal(t, first, d.compare(fields("0", "new"), live(4)))
	require.Equal(t, first, d.compare(fields("0", "new"), live(4)), "read twice")
	d.noteWrite(fields("3", "new"), live(5))
	require.Equal(t, pods.EditConflict{Times: 2, Fields: "spec.template, spec.updateStrategy", By: "helm"},
		d.compare(fields("0", "old"), live(6)))
}
