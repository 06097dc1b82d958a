package rollouts_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The examples of the API specification that are whole, as it prints them, and what it prints of parts of them.
const (
	exampleCanary = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  name: rollouts-demo
  namespace: default
spec:
  workloadRef:
    apiVersion: apps/v1
    kind: Deployment
    name: echoserver
  strategy:
    canary:
      enableExtraWorkloadForCanary: true
      steps:
      - traffic: 5%
        pause: {}
        replicas: 1
      - traffic: 50%
        replicas: 50%
        pause:
          duration: 7200
      - traffic: 100%
        replicas: 100%
      trafficRoutings:
      - service: echoserver
        ingress:
          name: echoserver
        gracePeriodSeconds: 10
`
	exampleRef = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata:
  name: rollout-b
spec:
  workloadRef:
    apiVersion: apps/v1
    kind: Deployment
    name: spring-cloud-b
  strategy:
    canary:
      steps:
        - pause: {}
          replicas: 1
      patchPodTemplateMetadata:
        labels:
          opensergo.io/canary-gray: gray
    trafficRoutingRef: mse-traffic
`
	exampleMatches = refBeta + `
    canary:
      enableExtraWorkloadForCanary: true
      steps:
      - traffic: 5%
        replicas: 10%
        pause:
          duration: {}
        matches:
        - headers:
          - type: Exact
            name: matched-header-name
            value: matched-header-value
      - traffic: 10%
        replicas: 10%
      patchPodTemplateMetadata:
        labels:
          opensergo.io/canary-gray: gray
`
	exampleBlueGreen = refBeta + `
    blueGreen:
      steps:
      - replicas: 100%
        traffic: 0%
        pause:
          duration: {}
      - replicas: 100%
        matches:
        - headers:
          - type: Exact
            name: matched-header-name
            value: matched-header-value
      - replicas: 100%
        traffic: 100%
`
	exampleRoutings = refBeta + `
    canary:
      steps: [{replicas: 10%}]
      trafficRoutings:
      - service: echo
        ingress:
          classType: higress
          name: echo
        gracePeriodSeconds: 10
      - service: echo
        gateway:
          httpRouteName: echo
        gracePeriodSeconds: 10
      - service: echo
        customNetworkRefs:
        - apiVersion: networking.istio.io/v1
          kind: VirtualService
          name: echo
        gracePeriodSeconds: 10
`
)

// What the specification prints is taken as it stands, and kept: nothing of it is dropped in silence.
func TestTheExamplesOfTheSpecification(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, test := range map[string]struct {
		reason, text string
	}{
		"Canary":    {"the first example", exampleCanary},
		"Ref":       {"trafficRoutingRef beside canary", exampleRef},
		"Matches":   {"matches, and a duration of {}", exampleMatches},
		"BlueGreen": {"matches in a step without traffic", exampleBlueGreen},
		"Routings":  {"several entries", exampleRoutings},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := c.parseOwn(t, test.text)
			stored, err := c.beta().Create(testContext(t), want, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			require.NoError(t, err, test.reason)
			requireWithin(t, want.Object["spec"], stored.Object["spec"])
			read, err := c.beta().Get(testContext(t), stored.GetName(), metav1.GetOptions{})
			require.NoError(t, err)
			requireWithin(t, want.Object["spec"], read.Object["spec"])
		})
	}
}

// requireWithin fails unless all that one value says stands in the other, which may have defaults besides.
func requireWithin(t *testing.T, want, have any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		fields, is := have.(map[string]any)
		require.True(t, is, "%v is there instead of %v", have, want)
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

// kubectl explain reads what it says from the API server's OpenAPI document, and kubectl get its columns from a table.
func TestTheDefinitionExplainsItself(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	raw, err := c.Kube.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/rollouts.kruise.io/v1beta1").DoRaw(testContext(t))
	require.NoError(t, err)
	var document struct {
		Components struct{ Schemas map[string]map[string]any }
	}
	require.NoError(t, json.Unmarshal(raw, &document))
	schema := document.Components.Schemas["io.kruise.rollouts.v1beta1.Rollout"]
	require.NotEmpty(t, schema["description"])
	steps, _, err := unstructured.NestedMap(schema, "properties", "spec", "properties", "strategy", "properties", "canary", "properties", "steps")
	require.NoError(t, err)
	require.NotEmpty(t, steps["description"], "kubectl explain rollout.spec.strategy.canary.steps")

	stored, err := c.beta().Create(testContext(t), c.parseOwn(t, exampleBlueGreen), metav1.CreateOptions{})
	require.NoError(t, err)
	c.setStatus(t, stored, `{"status":{"phase":"Progressing","currentStepIndex":2,"currentStepState":"StepPaused","message":"waiting"}}`)
	raw, err = c.Kube.CoreV1().RESTClient().Get().AbsPath("/apis/rollouts.kruise.io/v1beta1/namespaces", c.namespace, "rollouts").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(testContext(t))
	require.NoError(t, err)
	var table metav1.Table
	require.NoError(t, json.Unmarshal(raw, &table))
	var names []string
	for _, column := range table.ColumnDefinitions {
		names = append(names, column.Name)
	}
	require.Equal(t, []string{"Name", "STATUS", "CANARY_STEP", "CANARY_STATE", "MESSAGE", "AGE"}, names)
	require.Equal(t, []any{stored.GetName(), "Progressing", float64(2), "StepPaused", "waiting"}, table.Rows[0].Cells[:5])
}
