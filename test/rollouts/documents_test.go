package rollouts_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The examples of the specification are accepted unchanged, and no field of them is dropped.
func TestSpecificationExamples_AreStoredCompletely(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range map[string]struct {
		reason, file string
	}{
		"Canary":    {"the first example", "canary-v1beta1"},
		"Ref":       {"trafficRoutingRef next to canary", "reference-v1beta1"},
		"Matches":   {"matches, and a duration of {}", "steps-v1beta1"},
		"BlueGreen": {"matches in a step without traffic", "bluegreen-v1beta1"},
		"Routings":  {"several entries", "routings-v1beta1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := c.example(t, test.file)
			stored, err := c.beta().Create(testContext(t), want,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			require.NoError(t, err, test.reason)
			requireWithin(t, want.Object["spec"], stored.Object["spec"])
			read, err := c.beta().Get(testContext(t), stored.GetName(), metav1.GetOptions{})
			require.NoError(t, err)
			requireWithin(t, want.Object["spec"], read.Object["spec"])
		})
	}
}

// requireWithin requires every field of want in have, which may have additional defaults.
func requireWithin(t *testing.T, want, have any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		fields, is := have.(map[string]any)
		require.True(t, is, "%v instead of %v", have, want)
		for key := range want {
			requireWithin(t, want[key], fields[key])
		}
	case []any:
		require.Len(t, have, len(want))
		for i := range want {
			requireWithin(t, want[i], have.([]any)[i])
		}
	default:
		require.Equal(t, want, have)
	}
}

// The OpenAPI document of the API server has the descriptions for kubectl explain, and the table has the columns for
// kubectl get.
func TestDefinition_HasDescriptionsAndColumns(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	raw, err := c.Kube.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/rollouts.kruise.io/v1beta1").DoRaw(
		testContext(t))
	require.NoError(t, err)
	var document struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	require.NoError(t, json.Unmarshal(raw, &document))
	schema := document.Components.Schemas["io.kruise.rollouts.v1beta1.Rollout"]
	require.NotEmpty(t, schema["description"])
	steps, _, err := unstructured.NestedMap(schema, "properties", "spec", "properties", "strategy", "properties",
		"canary", "properties", "steps")
	require.NoError(t, err)
	require.NotEmpty(t, steps["description"], "kubectl explain rollout.spec.strategy.canary.steps")

	stored, err := c.beta().Create(testContext(t), c.example(t, "bluegreen-v1beta1"), metav1.CreateOptions{})
	require.NoError(t, err)
	c.setStatus(t, stored,
		`{"status":{"phase":"Progressing","currentStepIndex":2,"currentStepState":"StepPaused","message":"waiting"}}`)
	raw, err = c.Kube.CoreV1().RESTClient().Get().AbsPath("/apis/rollouts.kruise.io/v1beta1/namespaces", c.namespace,
		"rollouts").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(testContext(t))
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	require.Equal(t, []string{"Name", "STATUS", "CANARY_STEP", "CANARY_STATE", "MESSAGE", "AGE"}, names)
	require.Equal(t, []any{stored.GetName(), "Progressing", float64(2), "StepPaused", "waiting"},
		table.Rows[0].Cells[:5])
}
