package trafficrouting

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workloadops"
)

// home notes what is written.
type home struct{ written chan v1alpha1.TrafficRouting }

func (home) Engine(context.Context) (workloadops.Engine, error) { return workloadops.Engine{}, nil }

func (h home) SetTrafficStatus(_ context.Context, t *v1alpha1.TrafficRouting) error {
	h.written <- *t
	return nil
}

func (h home) FreeTraffic(_ context.Context, t *v1alpha1.TrafficRouting) error {
	t.Finalizers = nil
	h.written <- *t
	return nil
}

func objectOf(name string, change func(o *unstructured.Unstructured)) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(v1alpha1.TrafficRoutingResource.GroupVersion().WithKind(v1alpha1.TrafficRoutingKind))
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetGeneration(1)
	if change != nil {
		change(o)
	}
	return o
}

// start watches these objects beside another controller, or none, and says what is written.
func start(t *testing.T, other string, objects ...runtime.Object) <-chan v1alpha1.TrafficRouting {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{v1alpha1.TrafficRoutingResource: "TrafficRoutingList"}
	h := home{make(chan v1alpha1.TrafficRouting, 10)}
	asked := make(chan struct{}, 10)
	c, err := New(h, dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...), Options{
		Beside: func(context.Context) (string, error) { asked <- struct{}{}; return other, nil }, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, c.Start(context.Background()))
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	<-asked // one object is to be written: it has been looked at
	return h.written
}

func next(t *testing.T, written <-chan v1alpha1.TrafficRouting) v1alpha1.TrafficRouting {
	t.Helper()
	select {
	case one := <-written:
		return one
	case <-time.After(10 * time.Second):
		require.Fail(t, "nothing is written")
		return v1alpha1.TrafficRouting{}
	}
}

func TestATrafficRoutingThatSomebodyHasMadeIsHealthy(t *testing.T) {
	t.Parallel()
	one := next(t, start(t, "", objectOf("gray", nil)))
	require.Equal(t, v1alpha1.TrafficHealthy, one.Status.Phase)
	require.Equal(t, "no rollout holds it", one.Status.Message)
}

func TestWhatARemovedControllerHasLeftDoesNotKeepATrafficRouting(t *testing.T) {
	t.Parallel()
	one := next(t, start(t, "", objectOf("gray", func(o *unstructured.Unstructured) {
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		o.SetFinalizers([]string{"rollouts.kruise.io/trafficrouting"})
	})))
	require.Empty(t, one.Finalizers)
}

func TestAnotherControllersTrafficRoutingsAreLeftAlone(t *testing.T) {
	t.Parallel()
	written := start(t, "Kruise Rollouts itself is on this cluster", objectOf("gray", nil))
	require.Empty(t, written, "it keeps their status itself")
}
