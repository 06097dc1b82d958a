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

// heldDeployment is a Deployment whose change to this image is held.
func heldDeployment(image string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "shop", "name": "web", "resourceVersion": "7",
			"annotations": map[string]any{gate.AnnotationHeld: `{"/spec/paused":null}`}},
		"spec": map[string]any{"paused": true, "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": image}}}}}}}
}

// A hold is released for the template that was seen. Another one declared before the write stays held: it has not been
// released.
func TestHoldIsKept_ForAnotherTemplate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, now string
		wholly      bool
		paused      bool
	}{
		{"the template is the one that was seen", "x:1", false, false},
		{"it has been changed since", "x:2", false, true},
		{"the Rollout gives up the workload with any template", "x:2", true, false},
	} {
		seen := kruise.ReadWorkload(heldDeployment("x:1"))
		objects := fake.NewSimpleDynamicClient(runtime.NewScheme(), heldDeployment(c.now))
		require.NoError(t, (&Controller{objects: objects}).releaseHold(t.Context(), seen, c.wholly), c.reason)
		after, err := objects.Resource(seen.Ref.Lookup().Resource).Namespace("shop").Get(t.Context(), "web",
			metav1.GetOptions{})
		require.NoError(t, err)
		paused, _, _ := unstructured.NestedBool(after.Object, "spec", "paused")
		require.Equal(t, c.paused, paused, c.reason)
	}
}
