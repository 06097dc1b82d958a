package rollout

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workload"
)

// A kind whose definition is installed after the engine started is watched as soon as a Rollout names a workload of it.
// Then every Rollout is checked, because earlier changes of the workload were not reported.
func TestKindIsWatchedImmediately_WhenInstalledLater(t *testing.T) {
	t.Parallel()
	set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1alpha1",
		"kind":     "CloneSet",
		"metadata": map[string]any{"name": "web", "namespace": "shop"}}}
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range workload.Kinds {
		lists[k.Resource] = k.Kind + "List"
	}
	cloneSet := workload.Of("apps.kruise.io", "CloneSet")
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, set)
	var served, began atomic.Bool
	w := newWorkloads(objects, Options{Log: slog.Default(), Served: func(resource schema.GroupVersionResource) bool {
		return resource == workload.Kinds[0].Resource || served.Load() && resource == cloneSet.Resource
	}}, func(*kruise.Workload) {}, func() { began.Store(true) })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.kinds.Run(ctx)
	}()
	require.Eventually(t, began.Load, 10*time.Second, 10*time.Millisecond, "a served kind is watched")
	began.Store(false)
	served.Store(true)
	r := &v1beta1.Rollout{}
	r.Namespace, r.Spec.WorkloadRef = "shop", v1beta1.ObjectRef{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet",
		Name: "web"}
	found, err := w.named(ctx, r)
	require.NoError(t, err)
	require.Equal(t, "web", found.Name)
	require.Eventually(t, began.Load, 10*time.Second, 10*time.Millisecond, "not only minutes later")
	cancel()
	<-ended
}
