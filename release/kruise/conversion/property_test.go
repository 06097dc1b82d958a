package conversion_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/kruise/conversion"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// An object that is converted to the other version and back is unchanged, for all contents.
func TestRoundTrip_RestoresObject(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string][2]string{"FromBeta": {beta, alpha}, "FromAlpha": {alpha, beta}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				object := drawRollout(t, versions[0])
				before := object.DeepCopy()
				if conversion.Convert(object, versions[1]) != nil {
					require.Equal(t, alpha, versions[0], "a stored object can be read in every version")
					return // an illegal style or no strategy is rejected, not lost
				}
				there := object.DeepCopy()
				require.Equal(t, versions[1], there.GetAPIVersion())
				require.NoError(t, conversion.Convert(object, versions[0]))
				if versions[0] == alpha { // an attached annotation that was not made for it is not part of the object
					annotations := before.GetAnnotations()
					delete(annotations, conversion.AnnotationBeta)
					before.SetAnnotations(annotations)
				}
				require.Equal(t, before.Object, object.Object)
				require.NoError(t, conversion.Convert(object, versions[1]))
				require.Equal(t, there.Object, object.Object, "converting the same object again gives the same result")
			})
		})
	}
}

// A conversion changes only labels and annotations in metadata, never the status, and not the object that it reads.
func TestConvert_KeepsStatusAndOtherMetadata(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := drawRollout(t, beta)
		spec := object.DeepCopy().Object["spec"]
		shallow := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
		converted := object.DeepCopy()
		require.NoError(t, conversion.Convert(converted, alpha))
		require.NoError(t, conversion.Convert(shallow, alpha))
		require.Equal(t, spec, object.Object["spec"], "the spec that was read is unchanged")
		require.Equal(t, object.Object["status"], converted.Object["status"])
		for _, o := range []*unstructured.Unstructured{object, converted} {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		}
		require.Equal(t, object.Object["metadata"], converted.Object["metadata"])
	})
}

// An edit of labels, annotations or status in v1alpha1 leaves the stored spec unchanged.
func TestEditsOutsideSpec_LoseNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := drawRollout(t, beta)
		want := object.DeepCopy()
		require.NoError(t, conversion.Convert(object, alpha))
		for _, o := range []*unstructured.Unstructured{object, want} {
			o.SetLabels(map[string]string{"edited": "yes"})
			o.SetFinalizers([]string{"rollouts.kruise.io/rollout"})
			require.NoError(t, unstructured.SetNestedField(o.Object, "StepReady", "status", "currentStepState"))
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["other"] = "edited"
			o.SetAnnotations(annotations)
		}
		require.NoError(t, conversion.Convert(object, beta))
		require.Equal(t, want.Object, object.Object)
	})
}

// drawLegal returns a v1beta1 Rollout that admission accepts, as far as it matters to conversion.
func drawLegal(t *rapid.T) (object *unstructured.Unstructured, strategy string) {
	strategy = rapid.SampledFrom([]string{"canary", "blueGreen"}).Draw(t, "strategy")
	steps := []any{}
	for i := range rapid.IntRange(1, 4).Draw(t, "steps") {
		step := drawStep(t, beta, string(rune('0'+i)))
		step["replicas"] = "5%"
		delete(step, "traffic")
		maybe(t, step, "traffic", func() any { return one(t, "traffic", "5%", "50%") })
		steps = append(steps, step)
	}
	body := drawBody(t, beta)
	body["steps"] = steps
	if strategy == "blueGreen" {
		delete(body, "enableExtraWorkloadForCanary")
		delete(body, "patchPodTemplateMetadata")
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": beta, "kind": "Rollout",
		"metadata": map[string]any{"name": "echo"},
		"spec": map[string]any{"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"name": "echo"},
			"strategy": map[string]any{strategy: body}}}}, strategy
}

func stepsOf(t require.TestingT, object *unstructured.Unstructured, strategy string) []any {
	steps, _, err := unstructured.NestedSlice(object.Object, "spec", "strategy", strategy, "steps")
	require.NoError(t, err)
	return steps
}

// The API server drops fields that a version does not have; then a round trip would lose them.
func TestConvertedObject_HasOnlyFieldsOfItsVersion(t *testing.T) {
	t.Parallel()
	decode := func(t require.TestingT, object *unstructured.Unstructured, into any) {
		raw, err := json.Marshal(object.Object["spec"])
		require.NoError(t, err)
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(into), string(raw))
	}
	rapid.Check(t, func(t *rapid.T) {
		object, _ := drawLegal(t)
		decode(t, object, &v1beta1.RolloutSpec{})
		require.NoError(t, conversion.Convert(object, alpha))
		decode(t, object, &v1alpha1.RolloutSpec{})
		annotations := object.GetAnnotations()
		delete(annotations, conversion.AnnotationBeta)
		object.SetAnnotations(annotations)
		require.NoError(t, conversion.Convert(object, beta))
		decode(t, object, &v1beta1.RolloutSpec{})
	})
}

// An edit in v1alpha1 is stored, and everything else of the object stays, including what v1alpha1 cannot express.
func TestEditOfOneStepAsAlpha_ChangesOnlyThatStep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object, strategy := drawLegal(t)
		want := object.DeepCopy()
		require.NoError(t, conversion.Convert(object, alpha))
		steps := stepsOf(t, object, "canary")
		at := rapid.IntRange(0, len(steps)-1).Draw(t, "step")
		steps[at].(map[string]any)["weight"] = int64(33)
		require.NoError(t, unstructured.SetNestedSlice(object.Object, steps, "spec", "strategy", "canary", "steps"))
		require.NoError(t, conversion.Convert(object, beta))

		steps = stepsOf(t, want, strategy)
		steps[at].(map[string]any)["traffic"] = "33%"
		require.NoError(t, unstructured.SetNestedSlice(want.Object, steps, "spec", "strategy", strategy, "steps"))
		require.Equal(t, want.Object["spec"], object.Object["spec"])
		edited := object.DeepCopy()
		require.NoError(t, conversion.Convert(object, alpha))
		require.NoError(t, conversion.Convert(object, beta))
		require.Equal(t, edited.Object, object.Object, "the edited object survives a round trip too")
	})
}

// A step that is inserted in v1alpha1 leaves the other steps unchanged.
func TestInsertedStepAsAlpha_KeepsOtherSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object, strategy := drawLegal(t)
		before := stepsOf(t, object, strategy)
		require.NoError(t, conversion.Convert(object, alpha))
		steps := append([]any{map[string]any{"replicas": int64(1), "pause": map[string]any{"duration": int64(99)}}},
			stepsOf(t, object, "canary")...)
		require.NoError(t, unstructured.SetNestedSlice(object.Object, steps, "spec", "strategy", "canary", "steps"))
		require.NoError(t, conversion.Convert(object, beta))
		require.Equal(t, before, stepsOf(t, object, strategy)[1:])
	})
}

// Clients of both versions may edit an object alternately without limit: each edit is kept, and the attached annotation
// does not grow.
func TestAlternatingEdits_AreKept_AndAnnotationStaysBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object, strategy := drawLegal(t)
		spec, err := json.Marshal(object.Object["spec"])
		require.NoError(t, err)
		for turn := range rapid.IntRange(1, 8).Draw(t, "turns") {
			require.NoError(t, conversion.Convert(object, alpha))
			steps := stepsOf(t, object, "canary")
			at := rapid.IntRange(0, len(steps)-1).Draw(t, "step")
			steps[at].(map[string]any)["weight"] = int64(turn + 10)
			require.NoError(t, unstructured.SetNestedSlice(object.Object, steps, "spec", "strategy", "canary", "steps"))

			require.NoError(t, conversion.Convert(object, beta))
			steps = stepsOf(t, object, strategy)
			require.Equal(t, fmt.Sprintf("%d%%", turn+10), steps[at].(map[string]any)["traffic"])
			at = rapid.IntRange(0, len(steps)-1).Draw(t, "other step")
			steps[at].(map[string]any)["traffic"] = "0" + fmt.Sprint(turn) + "%" // v1alpha1 cannot express this
			require.NoError(t, unstructured.SetNestedSlice(object.Object, steps, "spec", "strategy", strategy, "steps"))
			for key, value := range object.GetAnnotations() {
				require.Less(t, len(value), 4*len(spec)+2000, key)
			}
			there := object.DeepCopy()
			require.NoError(t, conversion.Convert(there, alpha))
			for key, value := range there.GetAnnotations() {
				require.Less(t, len(value), 8*len(spec)+4000, key)
			}
			require.NoError(t, conversion.Convert(there, beta))
			require.Equal(t, object.Object, there.Object)
		}
	})
}
