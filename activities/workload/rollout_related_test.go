package workload

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// The undo patch on a pinned autoscaler restores all of it, except what another client has set since.
func TestUnpinned_RestoresWhatIsOurs(t *testing.T) {
	t.Parallel()
	least := int32(2)
	original := as(t, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "order"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &least, MaxReplicas: 9}})
	const claim = "rollout/default/shop/order@run"
	pinnedAt := func(o *unstructured.Unstructured, size int64) *unstructured.Unstructured {
		wanted, _ := unpinned(o)
		pin(wanted, size, claim)
		return &unstructured.Unstructured{Object: wanted}
	}
	limitsOf := func(o map[string]any) []any {
		first, _ := jsonpatch.At(o, limitPaths[0])
		last, _ := jsonpatch.At(o, limitPaths[1])
		return []any{first, last}
	}
	pinned := pinnedAt(original, 4)
	require.Equal(t, []any{int64(4), int64(4)}, limitsOf(pinned.Object))
	require.Empty(t, editedLimits(pinned))
	require.Equal(t, claim, pinned.GetAnnotations()[rollout.AnnotationHeldBy])
	require.Equal(t, map[string]string{workload.LabelClaimed: workload.LabelClaimedValue}, pinned.GetLabels())
	again := pinnedAt(pinned, 6)
	require.Equal(t, []any{int64(6), int64(6)}, limitsOf(again.Object))
	for _, o := range []*unstructured.Unstructured{pinned, again} {
		restored, err := unpinned(o)
		require.NoError(t, err)
		require.Equal(t, original.Object, restored, "a second pin keeps the first original")
	}

	edited := again.DeepCopy()
	jsonpatch.Put(edited.Object, limitPaths[1], int64(20))
	require.Equal(t, limitPaths, editedLimits(edited))
	restored, err := unpinned(edited)
	require.NoError(t, err)
	require.Equal(t, []any{int64(2), int64(20)}, limitsOf(restored), "the limit of another client stays")
	restored, err = unpinned(pinnedAt(edited, 5))
	require.NoError(t, err)
	require.Equal(t, []any{int64(2), int64(20)}, limitsOf(restored), "and becomes the value to restore")

	forged := again.DeepCopy()
	annotations := maps.Clone(forged.GetAnnotations())
	annotations[rollout.AnnotationRestore] = `[{"op":"add","path":"/spec/scaleTargetRef","value":{}}]`
	forged.SetAnnotations(annotations)
	_, err = unpinned(forged)
	require.ErrorContains(t, err, "which no release borrows")
	require.Equal(t, []any{int64(5), int64(5)}, limitsOf(pinnedAt(forged, 5).Object), "it is pinned all the same")
}
