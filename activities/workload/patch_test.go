package workload

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/workload"
)

// objectOf is a workload with a setting /spec/x, optionally with an explicit size and with annotations on its pod
// template.
func objectOf(meta metav1.ObjectMeta, sized, annotated bool) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetResourceVersion(meta.ResourceVersion)
	o.SetLabels(meta.Labels)
	o.SetAnnotations(meta.Annotations)
	if sized {
		_ = unstructured.SetNestedField(o.Object, int64(0), "spec", "replicas")
	}
	if annotated {
		_ = unstructured.SetNestedField(o.Object, "x", "spec", "template", "metadata", "annotations", "a")
	}
	_ = unstructured.SetNestedField(o.Object, int64(1), "spec", "x")
	return o
}

func TestJSONPatch(t *testing.T) {
	t.Parallel()
	two := int32(2)
	claimed := metav1.ObjectMeta{ResourceVersion: "41",
		Labels:      map[string]string{"app": "order", workload.LabelClaimed: "true"},
		Annotations: map[string]string{workload.AnnotationClaimedBy: "w@r", workload.AnnotationOriginal: "{}"}}
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured
		write  workload.Write
		want   string
	}{
		"begin on a bare object": {
			reason: "missing maps are created, and the exact version is required",
			object: objectOf(metav1.ObjectMeta{ResourceVersion: "41"}, true, false),
			write: workload.Write{OnlyIfUnchanged: true, Claim: "w@r",
				Annotations: map[string]string{workload.AnnotationOriginal: "{}"}, Replicas: &two,
				ExpectedReplicas: 0, Stamp: "m",
				Settings: []workload.Setting{{Path: "/spec/strategy/rollingUpdate/maxSurge",
					Value: json.RawMessage(`0`), Expected: json.RawMessage(`"25%"`)}}},
			want: `[
				{"op":"test","path":"/metadata/resourceVersion","value":"41"},
				{"op":"test","path":"/spec/replicas","value":0},
				{"op":"test","path":"/spec/strategy/rollingUpdate/maxSurge","value":"25%"},
				{"op":"add","path":"/spec/replicas","value":2},
				{"op":"add","path":"/spec/strategy/rollingUpdate/maxSurge","value":0},
				{"op":"add","path":"/spec/template/metadata/annotations","value":{}},
				{"op":"add","path":"/spec/template/metadata/annotations/slipway.io~1restarted-by","value":"m"},
				{"op":"add","path":"/metadata/labels","value":{}},
				{"op":"add","path":"/metadata/labels/slipway.io~1claimed","value":"true"},
				{"op":"add","path":"/metadata/annotations","value":{}},
				{"op":"add","path":"/metadata/annotations/slipway.io~1claimed-by","value":"w@r"},
				{"op":"add","path":"/metadata/annotations/slipway.io~1original","value":"{}"}]`,
		},
		"end": {
			reason: "the claim is required and removed; missing fields are not removed",
			object: objectOf(claimed, true, true),
			write: workload.Write{ExpectedClaim: "w@r", Release: true,
				Remove: []string{workload.AnnotationOriginal, workload.AnnotationReplicas,
					workload.AnnotationOriginal}},
			want: `[
				{"op":"test","path":"/metadata/annotations/slipway.io~1claimed-by","value":"w@r"},
				{"op":"remove","path":"/metadata/labels/slipway.io~1claimed"},
				{"op":"remove","path":"/metadata/annotations/slipway.io~1claimed-by"},
				{"op":"remove","path":"/metadata/annotations/slipway.io~1original"}]`,
		},
		"an object without a size": {
			reason: "a missing field cannot be tested",
			object: objectOf(claimed, false, true),
			write:  workload.Write{ExpectedClaim: "w@r", Replicas: &two, ExpectedReplicas: 1},
			want: `[
				{"op":"test","path":"/metadata/annotations/slipway.io~1claimed-by","value":"w@r"},
				{"op":"add","path":"/spec/replicas","value":2}]`,
		},
		"a setting that was not set": {
			reason: "it is removed, not set to null",
			object: objectOf(claimed, false, false),
			write: workload.Write{ExpectedClaim: "w@r",
				Settings: []workload.Setting{{Path: "/spec/x", Expected: json.RawMessage(`1`)}}},
			want: `[
				{"op":"test","path":"/metadata/annotations/slipway.io~1claimed-by","value":"w@r"},
				{"op":"test","path":"/spec/x","value":1},
				{"op":"remove","path":"/spec/x"}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(patchOf(tc.object, &tc.write, nil))
			require.NoError(t, err)
			require.JSONEq(t, tc.want, string(body), tc.reason)
		})
	}
}
