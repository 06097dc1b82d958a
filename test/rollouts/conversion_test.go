package rollouts_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// An object applied as v1alpha1 reads the same again, also after other clients have written it in the stored version.
func TestAlpha_RoundTrips(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	alpha := c.startConverting(t)
	for name, file := range map[string]string{"First": "canary-v1alpha1", "Ref": "reference-v1alpha1",
		"Weights": "steps-v1alpha1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := c.example(t, file)
			require.NoError(t, unstructured.SetNestedField(want.Object, "7", "spec", "rolloutID"))
			created, err := alpha.Create(testContext(t), want,
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			require.NoError(t, err)
			unstructured.RemoveNestedField(want.Object, "spec", "rolloutID")
			canary := want.Object["spec"].(map[string]any)["strategy"].(map[string]any)["canary"].(map[string]any)
			delete(canary["steps"].([]any)[0].(map[string]any), "replicas")
			_, err = c.beta().Patch(testContext(t), created.GetName(), types.MergePatchType,
				[]byte(`{"metadata":{"finalizers":["rollouts.kruise.io/rollout"]}}`),
				metav1.PatchOptions{})
			require.NoError(t, err)
			c.setStatus(t, c.betaOf(t, created.GetName()),
				`{"status":{"phase":"Healthy","currentStepIndex":1,"canaryStatus":{"nextStepIndex":-1}}}`)
			read, err := alpha.Get(testContext(t), created.GetName(), metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, created.Object["spec"], read.Object["spec"])
			require.Equal(t, created.GetAnnotations(), read.GetAnnotations())
			requireWithin(t, want.Object["spec"], read.Object["spec"])
			index, _, _ := unstructured.NestedInt64(read.Object, "status", "currentStepIndex")
			require.EqualValues(t, 1, index)
			require.NoError(t, alphaPatch(t, c, created.GetName(), `{"metadata":{"finalizers":null}}`))
		})
	}
}

func (c cluster) betaOf(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	read, err := c.beta().Get(testContext(t), name, metav1.GetOptions{})
	require.NoError(t, err)
	return read
}

func alphaPatch(t *testing.T, c cluster, name, patch string, subresources ...string) error {
	t.Helper()
	_, err := c.alpha().Patch(testContext(t), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{},
		subresources...)
	return err
}

// Clients of v1alpha1 read, label, approve and edit a blue-green; it stays a blue-green.
func TestBlueGreen_SurvivesEditsInAlpha(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	alpha := c.startConverting(t)
	stored, err := c.beta().Create(testContext(t), c.example(t, "bluegreen-v1beta1"), metav1.CreateOptions{})
	require.NoError(t, err)
	name := stored.GetName()
	c.setStatus(t, stored,
		`{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepPaused","blueGreenStatus":{"currentStepState":"StepPaused","nextStepIndex":2}}}`)

	var read *unstructured.Unstructured
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if read, err = alpha.Get(testContext(t), name, metav1.GetOptions{}); err != nil {
			return err
		}
		read.SetLabels(map[string]string{"team": "shop"})
		read, err = alpha.Update(testContext(t), read, metav1.UpdateOptions{})
		return err
	}), "read, modified and written")
	now := c.betaOf(t, name)
	require.Equal(t, stored.Object["spec"], now.Object["spec"])
	require.Equal(t, map[string]string{"team": "shop"}, now.GetLabels())
	require.Equal(t, stored.GetAnnotations(), now.GetAnnotations())

	require.NoError(t, alphaPatch(t, c, name, `{"status":{"blueGreenStatus":{"currentStepState":"StepReady"}}}`,
		"status"))
	state, _, _ := unstructured.NestedString(c.betaOf(t, name).Object, "status", "blueGreenStatus", "currentStepState")
	require.Equal(t, "StepReady", state, "an approval in v1alpha1")

	require.NoError(t, unstructured.SetNestedField(read.Object, true, "spec", "strategy", "paused"))
	unstructured.RemoveNestedField(read.Object, "metadata", "resourceVersion")
	_, err = alpha.Update(testContext(t), read, metav1.UpdateOptions{})
	require.Error(t, err, "an update needs a resourceVersion")
	require.NoError(t, alphaPatch(t, c, name, `{"spec":{"strategy":{"paused":true}}}`))
	require.NoError(t, unstructured.SetNestedField(stored.Object, true, "spec", "strategy", "paused"))
	require.Equal(t, stored.Object["spec"], c.betaOf(t, name).Object["spec"],
		"the edit in v1alpha1 pauses the Rollout and changes nothing else")

	err = alphaPatch(t, c, name, `{"spec":{"strategy":{"canary":null}}}`)
	require.ErrorContains(t, err, "there is no strategy", "an edit that leaves no strategy is refused")
	require.Equal(t, stored.Object["spec"], c.betaOf(t, name).Object["spec"])
}

// An object that is valid in the stored version but not in v1alpha1 can still be edited in v1alpha1: the API server
// validates only the changed fields.
func TestAlphaEdit_IsAccepted_WhenUnchangedFieldsAreInvalidInAlpha(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.startConverting(t)
	stored, err := c.beta().Create(testContext(t),
		c.parseOwn(t, beta("[{replicas: 1, traffic: 50%}, {replicas: 1, traffic: 5%}]", routed)),
		metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, alphaPatch(t, c, stored.GetName(),
		`{"metadata":{"labels":{"a":"b"}},"spec":{"strategy":{"paused":true}}}`))
	require.NoError(t, unstructured.SetNestedField(stored.Object, true, "spec", "strategy", "paused"))
	require.Equal(t, stored.Object["spec"], c.betaOf(t, stored.GetName()).Object["spec"])
	err = alphaPatch(t, c, stored.GetName(), `{"spec":{"strategy":{"canary":{"disableGenerateCanaryService":true}}}}`)
	require.ErrorContains(t, err, "weight must not shrink", "an edit of the strategy itself is validated")
}

// Server-side apply works with both versions on one object.
func TestServerSideApply_WorksInBothVersions(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	alpha := c.startConverting(t)
	object := c.example(t, "canary-v1alpha1")
	applied, err := alpha.Apply(testContext(t), object.GetName(), object,
		metav1.ApplyOptions{FieldManager: "old-pipeline"})
	require.NoError(t, err)
	label := c.parse(t, "apiVersion: rollouts.kruise.io/v1beta1\nkind: Rollout\nmetadata: {name: "+object.GetName()+
		", labels: {a: b}}\nspec: {disabled: true}")
	_, err = c.beta().Apply(testContext(t), object.GetName(), label,
		metav1.ApplyOptions{FieldManager: "new-pipeline", Force: true})
	require.NoError(t, err)
	again, err := alpha.Apply(testContext(t), object.GetName(), object,
		metav1.ApplyOptions{FieldManager: "old-pipeline"})
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(applied.Object, true, "spec", "disabled"))
	require.Equal(t, applied.Object["spec"], again.Object["spec"])
}

// alphaOf returns a canary of v1alpha1 with these steps and trafficRoutings, in YAML flow style.
func alphaOf(steps, routings string) string {
	return headAlpha + fmt.Sprintf("spec:\n  objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: "+
		"echo}}\n"+
		"  strategy: {canary: {steps: %s, trafficRoutings: %s}}", steps, routings)
}

const routed = "[{service: a, ingress: {name: a}}]"

// Invalid v1alpha1 objects are refused as in Kruise Rollouts.
func TestInvalidAlpha_IsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	alpha := c.startConverting(t)
	for name, test := range map[string]struct {
		reason, text, says string
	}{
		"NoWorkload": {"nothing to release", headAlpha +
			"spec: {objectRef: {}, strategy: {canary: {steps: [{replicas: 1}]}}}", "objectRef.workloadRef is missing"},
		"NoReference": {"nothing to release", headAlpha + "spec: {strategy: {canary: {steps: [{replicas: 1}]}}}",
			"objectRef.workloadRef is missing"},
		"Kind": {"the same kinds", headAlpha +
			"spec: {objectRef: {workloadRef: {apiVersion: batch/v1, kind: Job, name: a}}, strategy: {canary: {steps: " +
			"[{replicas: 1}]}}}", "this kind of workload"},
		"NoCanary": {"the only strategy", headAlpha +
			"spec: {objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: a}}, strategy: {}}",
			"there is no strategy: give strategy.canary"},
		"NoSteps": {"at least one step is required", alphaOf("[]", "[]"), "there are no steps"},
		"Neither": {"a step needs one of them", alphaOf("[{pause: {}}]", "[]"), "neither weight nor replicas"},
		"WeightZero": {"a step needs at least one pod", alphaOf("[{weight: 0}]", "[]"),
			"weight must be a number from 1 to 100"},
		"WeightOverall": {"100 is the maximum", alphaOf("[{weight: 101}]", "[]"),
			"weight must be a number from 1 to 100"},
		"WeightReplicas": {"weight is not validated if replicas is set", alphaOf("[{weight: 150, replicas: 1}]", "[]"),
			""},
		"Replicas": {"the same rule", alphaOf("[{replicas: 0%}]", "[]"), "replicas must be a number above 0"},
		"WeightShrinks": {"weight is the number of pods", alphaOf("[{weight: 20}, {weight: 10}]", "[]"),
			"must not shrink"},
		"WeightRouted": {"with a route", alphaOf("[{weight: 20, replicas: 10%}, {weight: 10, replicas: 20%}]",
			routed), "weight must not shrink"},
		"WeightUnrouted": {"without a route", alphaOf("[{weight: 20, replicas: 10%}, {weight: 10, replicas: 20%}]",
			"[]"), ""},
		"ReplicasShrink": {"the same rule", alphaOf("[{replicas: 20%}, {replicas: 10%}]", "[]"), "must not shrink"},
		"ReplicasWeight": {"a weight is compared with a percentage", alphaOf("[{replicas: 20%}, {weight: 10}]", "[]"),
			"must not shrink"},
		"ReplicasNumbers": {"a number is not compared with a weight", alphaOf("[{replicas: 20}, {weight: 10}]", "[]"),
			""},
		"Routing": {"the same rules", alphaOf(oneStep, "[{service: a}]"),
			"doesn't say what routes to the Service"},
		"RoutingTwo": {"all entries apply", alphaOf(oneStep,
			"[{service: a, ingress: {name: a}}, {service: b, ingress: {name: b}}]"), ""},
		"PauseText": {"seconds are a number", alphaOf("[{replicas: 1, pause: {duration: 5m}}]", "[]"),
			"a number of seconds"},
		"Unknown": {"a field of the other version", alphaOf("[{replicas: 1, traffic: 5%}]", "[]"),
			"unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := alpha.Create(testContext(t), c.parse(t, test.text), dryRun)
			requireVerdict(t, err, test.says, test.reason)
		})
	}
}

// During a release the same fields are immutable as in v1beta1, except the number of steps.
func TestAlphaFields_AreImmutableDuringRelease(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	alpha := c.startConverting(t)
	stored, err := alpha.Create(testContext(t), c.parseOwn(t, alphaOf("[{replicas: 1}]", routed)),
		metav1.CreateOptions{})
	require.NoError(t, err)
	c.setStatus(t, stored, `{"status":{"phase":"Progressing"}}`)
	for name, test := range map[string]struct{ reason, patch, says string }{
		"Workload": {"a release keeps its workload", `{"spec":{"objectRef":{"workloadRef":{"name":"other"}}}}`,
			"objectRef can't change"},
		"Routings": {"the release must restore the borrowed routes",
			`{"spec":{"strategy":{"canary":{"trafficRoutings":null}}}}`, "trafficRoutings can't change"},
		"Steps": {"the number of steps may change",
			`{"spec":{"strategy":{"canary":{"steps":[{"replicas":1},{"replicas":2}]}}}}`, ""},
	} {
		_, err := alpha.Patch(testContext(t), stored.GetName(), types.MergePatchType, []byte(test.patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		requireVerdict(t, err, test.says, name+": "+test.reason)
	}
}
