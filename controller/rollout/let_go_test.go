package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise"
)

// heldDeployment is a Deployment whose change of template to an image is held.
func heldDeployment(image string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "shop", "name": "web", "resourceVersion": "7", "annotations": map[string]any{gate.AnnotationHeld: `{"/spec/paused":null}`}},
		"spec": map[string]any{"paused": true, "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": image}}}}}}}
}

// What is held is let go for the template that was looked at. Another one that somebody declares before the write is held on: it has not been released.
func TestAnotherTemplateIsNotLetGo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, now string
		wholly      bool
		paused      bool
	}{
		{"the template is the one that was looked at", "x:1", false, false},
		{"it has been changed since", "x:2", false, true},
		{"the Rollout lets go of the workload, whatever it declares", "x:2", true, false},
	} {
		seen := kruise.ReadWorkload(heldDeployment("x:1"))
		objects := fake.NewSimpleDynamicClient(runtime.NewScheme(), heldDeployment(c.now))
		require.NoError(t, (&Controller{objects: objects}).letGo(t.Context(), seen, c.wholly), c.reason)
		after, err := objects.Resource(resourceOf(seen)).Namespace("shop").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(t, err)
		paused, _, _ := unstructured.NestedBool(after.Object, "spec", "paused")
		require.Equal(t, c.paused, paused, c.reason)
	}
}
