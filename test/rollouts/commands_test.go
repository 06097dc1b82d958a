package rollouts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/harness"
)

// A command in the status is accepted in both versions and gets the name of its sender; other status changes by users
// are refused in both.
func TestStatusCommands_AreAcceptedInBothVersions(t *testing.T) {
	c := newCluster(t)
	c.startConverting(t)
	guard := harness.SharedGuard(t)
	guard.EnforceOn(t, c.namespace)
	as := func(user string, resource schema.GroupVersionResource) dynamic.ResourceInterface {
		client, err := dynamic.NewForConfig(c.Impersonate(user))
		require.NoError(t, err)
		return client.Resource(resource).Namespace(c.namespace)
	}
	patch := func(user string, resource schema.GroupVersionResource, name, body string) (*unstructured.Unstructured,
		error) {
		return as(user, resource).Patch(testContext(t), name, types.MergePatchType, []byte(body), metav1.PatchOptions{},
			"status")
	}
	for file, objects := range map[string]dynamic.ResourceInterface{"canary-v1beta1": c.beta(),
		"canary-v1alpha1": c.alpha()} {
		made, err := objects.Create(testContext(t), c.example(t, file), metav1.CreateOptions{})
		require.NoError(t, err)
		for _, resource := range []schema.GroupVersionResource{v1beta1.Resource, v1alpha1.Resource} {
			_, err := patch(harness.EngineUser, resource, made.GetName(),
				`{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepPaused","message":"waits",
				"slipway":{"seq":7,"stepState":"StepPaused","nextStepIndex":2,"by":null},
				"canaryStatus":{"currentStepIndex":1,"nextStepIndex":2,"currentStepState":"StepPaused","podTemplateHash":"h","canaryReplicas":1,"canaryReadyReplicas":1}}}`)
			require.NoError(t, err, resource.Version)
			guard.WaitStatusProtected(t, as("anna", resource), made.GetName())
			o, err := patch("anna", resource, made.GetName(),
				`{"status":{"slipway":{"by":"the boss"},"canaryStatus":{"currentStepState":"StepReady"}}}`)
			require.NoError(t, err, resource.Version)
			by, _, _ := unstructured.NestedString(o.Object, "status", "slipway", "by")
			require.Equal(t, "anna", by, resource.Version)
			_, err = patch("anna", resource, made.GetName(), `{"status":{"canaryStatus":{"canaryReplicas":9}}}`)
			require.ErrorContains(t, err, "only Slipway writes canaryStatus.canaryReplicas", resource.Version)
		}
	}
}
