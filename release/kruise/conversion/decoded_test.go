package conversion_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/kruise/conversion"
	"slipway.io/slipway/release/rollout/strategy"
)

// The stored form of a v1alpha1 object requests the same style as the object, for all of its annotations.
func TestConvertedObject_IsDecodedWithItsStyle(t *testing.T) {
	t.Parallel()
	for _, workload := range []string{"apiVersion: apps/v1, kind: Deployment", "apiVersion: apps/v1, kind: StatefulSet",
		"apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet"} {
		for _, annotations := range []string{"", "rollouts.kruise.io/rolling-style: canary",
			"rollouts.kruise.io/rolling-style: Partition",
			"rollouts.kruise.io/rolling-type: partition", "rollouts.kruise.io/trafficrouting: mse"} {
			name := workload + "; " + annotations
			object := parse(t,
				fmt.Sprintf(
					`{apiVersion: rollouts.kruise.io/v1alpha1, kind: Rollout, metadata: {name: a, namespace: b, annotations: {%s}},
				spec: {rolloutID: "7", objectRef: {workloadRef: {%s, name: e}}, strategy: {canary: {steps: [{replicas: 5%%}, {replicas: 50%%}]}}}}`, annotations, workload))
			require.NoError(t, conversion.Convert(object, beta), name)
			raw, err := object.MarshalJSON()
			require.NoError(t, err)
			got, _, wrong := strategy.DecodeObject(raw)
			require.NoError(t, wrong.Err(), name)
			want := strategy.StylePartition
			if workload == "apiVersion: apps/v1, kind: Deployment" &&
				annotations != "rollouts.kruise.io/rolling-style: Partition" &&
				annotations != "rollouts.kruise.io/rolling-type: partition" {
				want = strategy.StyleCanary
			}
			require.Equal(t, want, got.Strategy.Style, name)
			require.Equal(t, "7", got.RolloutID, name)
		}
	}
}
