package conversion_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/kruise/conversion"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	require.NoError(t, u.UnmarshalJSON(raw))
	return u
}

func withoutAttached(u *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := u.GetAnnotations()
	delete(annotations, conversion.AnnotationAlpha)
	delete(annotations, conversion.AnnotationBeta)
	u.SetAnnotations(annotations)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	return u
}

func TestConvert_BetweenVersions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, from, to string
	}{
		"Weight": {"a weight is the traffic, and the pods if no replicas are given; a Deployment has an extra " +
			"workload by default",
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a}, spec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e}},
			strategy: {paused: true, canary: {steps: [{weight: 5}, {weight: 50, replicas: 2, pause: {duration: 10}}, {replicas: 100%}], trafficRoutings: [{service: e, ingress: {name: e}}]}}}}`,
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a}, spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e},
			strategy: {paused: true, canary: {enableExtraWorkloadForCanary: true, steps: [{traffic: 5%, replicas: 5%}, {traffic: 50%, replicas: 2, pause: {duration: 10}}, {replicas: 100%}],
			trafficRoutings: [{service: e, ingress: {name: e}}]}}}}`},
		"Partition": {"the style is an annotation, in any case, and stays one",
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/rolling-style: Partition}},
			spec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e}}, strategy: {canary: {steps: [{replicas: 1}]}}}}`,
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/rolling-style: Partition}},
			spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e}, strategy: {canary: {steps: [{replicas: 1}]}}}}`},
		"RollingType": {"the text of the specification uses this name for the annotation",
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/rolling-type: partition}},
			spec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e}}, strategy: {canary: {steps: [{replicas: 1}]}}}}`,
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/rolling-type: partition}},
			spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e}, strategy: {canary: {steps: [{replicas: 1}]}}}}`},
		"StatefulSet": {"other kinds have no extra workload",
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a}, spec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: StatefulSet, name: e}},
			strategy: {canary: {steps: [{replicas: 1}]}}}}`,
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a}, spec: {workloadRef: {apiVersion: apps/v1, kind: StatefulSet, name: e},
			strategy: {canary: {steps: [{replicas: 1}]}}}}`},
		"RoutingAndID": {"the TrafficRouting annotation becomes a field; the rollout-id becomes an annotation",
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/trafficrouting: mse}},
			spec: {rolloutID: "7", objectRef: {workloadRef: {apiVersion: apps/v1, kind: StatefulSet, name: e}}, strategy: {canary: {steps: [{replicas: 1}]}}}}`,
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/trafficrouting: mse, rollouts.kruise.io/rollout-id: "7"}},
			spec: {workloadRef: {apiVersion: apps/v1, kind: StatefulSet, name: e}, strategy: {canary: {steps: [{replicas: 1}], trafficRoutingRef: mse}}}}`},
		"FromPartition": {"the default style of a Deployment differs, so the style is named",
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a}, spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e},
			strategy: {canary: {steps: [{traffic: 5%, replicas: 5%}]}}}}`,
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/rolling-style: partition}},
			spec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e}}, strategy: {canary: {steps: [{weight: 5, replicas: 5%}]}}}}`},
		"FromBlueGreen": {"a blue-green is shown as a canary with its steps; path matches cannot be expressed",
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a}, spec: {disabled: false, workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e},
			strategy: {trafficRoutingRef: mse, blueGreen: {steps: [{traffic: 0%, replicas: 100%}, {replicas: 100%, matches: [{path: {value: /a}}]}]}}}}`,
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a, annotations: {rollouts.kruise.io/trafficrouting: mse}}, spec: {disabled: false,
			objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e}}, strategy: {canary: {steps: [{weight: 0, replicas: 100%}, {replicas: 100%}]}}}}`},
		"Status": {"both versions have the same status",
			`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a}, status: {phase: Progressing, currentStepIndex: 1, currentStepState: StepPaused,
			blueGreenStatus: {nextStepIndex: 2}, slipway: {seq: 3}}}`,
			`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a}, status: {phase: Progressing, currentStepIndex: 1, currentStepState: StepPaused,
			blueGreenStatus: {nextStepIndex: 2}, slipway: {seq: 3}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := parse(t, test.from), parse(t, test.to)
			require.NoError(t, conversion.Convert(got, want.GetAPIVersion()), test.reason)
			require.Equal(t, want.Object, withoutAttached(got).Object, test.reason)
		})
	}
}

const blueGreen = `{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {name: a}, spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: e},
	strategy: {blueGreen: {steps: [{traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}}}`

// A blue-green that is edited in v1alpha1 stays a blue-green, unless the edit changes the style.
func TestBlueGreen_KeepsStyle_WhenEditedAsAlpha(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason string
		edit   func(u *unstructured.Unstructured) error
		want   string
	}{
		"None": {"unchanged", func(*unstructured.Unstructured) error {
			return nil
		}, `{blueGreen: {steps: [{traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}`},
		"Paused": {"a field of both versions", func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, true, "spec", "strategy", "paused")
		}, `{paused: true, blueGreen: {steps: [{traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}`},
		"Steps": {"one step fewer", func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedSlice(u.Object,
				[]any{map[string]any{"replicas": "100%", "weight": int64(100)}}, "spec", "strategy", "canary", "steps")
		}, `{blueGreen: {steps: [{traffic: 100%, replicas: 100%}]}}`},
		"Style": {"an edit that names a style sets it", func(u *unstructured.Unstructured) error {
			return unstructured.SetNestedField(u.Object, "canary", "metadata", "annotations", rollingStyle)
		}, `{canary: {enableExtraWorkloadForCanary: true, steps: [{traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}`},
		"Removed": {"without the attached annotation it is the canary that it looks like",
			func(u *unstructured.Unstructured) error {
				withoutAttached(u)
				return nil
			}, `{canary: {enableExtraWorkloadForCanary: true, steps: [{traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := parse(t, blueGreen)
			require.NoError(t, conversion.Convert(object, alpha))
			require.NoError(t, test.edit(object))
			require.NoError(t, conversion.Convert(object, beta))
			spec := parse(t, "{apiVersion: a, kind: b, strategy: "+test.want+"}").Object["strategy"]
			require.Equal(t, spec, object.Object["spec"].(map[string]any)["strategy"], test.reason)
		})
	}
}

func TestConvert_Fails_ForUnsupportedObjects(t *testing.T) {
	t.Parallel()
	head := "apiVersion: rollouts.kruise.io/v1alpha1\nkind: Rollout\nmetadata: {name: a, namespace: shop}\n"
	for name, test := range map[string]struct {
		reason, text, to, want string
	}{
		"NoStrategy": {"it would be a Rollout without a strategy", head + "spec: {objectRef: {}}", beta,
			"Rollout shop/a: the object has no strategy.canary"},
		"NoSpec": {"the same", head, beta, "would be left without a strategy"},
		"Style": {"an unknown style", strings.Replace(head, "name: a",
			"name: a, annotations: {rollouts.kruise.io/rolling-style: blue}", 1) + "spec: {strategy: {canary: {}}}",
			beta,
			`the annotation rollouts.kruise.io/rolling-style is "blue": it must be canary or partition`},
		"Kind": {"another kind",
			"apiVersion: rollouts.kruise.io/v1alpha1\nkind: TrafficRouting\nmetadata: {name: a}", beta,
			"only a Rollout can"},
		"Version": {"another version", head, "rollouts.kruise.io/v1", "aren't two versions of Rollouts"},
		"Group": {"another group", "apiVersion: example.org/v1beta1\nkind: Rollout\nmetadata: {name: a}", alpha,
			"aren't two versions of Rollouts"},
		"Same": {"another version of itself", "apiVersion: example.org/v1\nkind: Rollout\nmetadata: {name: a}",
			"example.org/v1", "aren't two versions of Rollouts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, conversion.Convert(parse(t, test.text), test.to), test.want, test.reason)
		})
	}
}
