package rollout

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

	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
)

// trafficHome records writes.
type trafficHome struct{ written chan v1alpha1.TrafficRouting }

func (trafficHome) Engine(context.Context) (workload.Engine, error) {
	return workload.Engine{}, nil
}

func (h trafficHome) SetTrafficStatus(_ context.Context, t *v1alpha1.TrafficRouting) error {
	h.written <- *t
	return nil
}

func (h trafficHome) FreeTraffic(_ context.Context, t *v1alpha1.TrafficRouting) error {
	t.Finalizers = nil
	h.written <- *t
	return nil
}

func trafficRouting(name string, change func(o *unstructured.Unstructured)) *unstructured.Unstructured {
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

// watchTraffic watches these objects next to another controller, or none, and returns the writes.
func watchTraffic(t *testing.T, other string, objects ...runtime.Object) <-chan v1alpha1.TrafficRouting {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{v1alpha1.TrafficRoutingResource: "TrafficRoutingList"}
	h := trafficHome{make(chan v1alpha1.TrafficRouting, 10)}
	asked := make(chan struct{}, 10)
	c := NewTrafficRoutings(h, dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds,
		objects...), Options{
		OtherController: func(context.Context) (reference.OtherController, error) {
			asked <- struct{}{}
			return reference.OtherController{Message: other}, nil
		}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, c.Start(context.Background()))
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	<-asked // one object has to be written: it was checked
	return h.written
}

func written(t *testing.T, from <-chan v1alpha1.TrafficRouting) v1alpha1.TrafficRouting {
	t.Helper()
	select {
	case one := <-from:
		return one
	case <-time.After(10 * time.Second):
		require.Fail(t, "nothing is written")
		return v1alpha1.TrafficRouting{}
	}
}

func TestNewTrafficRoutingBecomesHealthy(t *testing.T) {
	t.Parallel()
	one := written(t, watchTraffic(t, "", trafficRouting("gray", nil)))
	require.Equal(t, v1alpha1.TrafficHealthy, one.Status.Phase)
	require.Equal(t, "no rollout holds it", one.Status.Message)
}

func TestTrafficRoutingIsDeleted_DespiteFinalizerOfRemovedController(t *testing.T) {
	t.Parallel()
	one := written(t, watchTraffic(t, "", trafficRouting("gray", func(o *unstructured.Unstructured) {
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		o.SetFinalizers([]string{"rollouts.kruise.io/trafficrouting"})
	})))
	require.Empty(t, one.Finalizers)
}

func TestTrafficRoutingIsNotWritten_NextToAnotherController(t *testing.T) {
	t.Parallel()
	all := watchTraffic(t, "Kruise Rollouts itself is on this cluster", trafficRouting("gray", nil))
	require.Empty(t, all, "the other controller writes their status itself")
}
