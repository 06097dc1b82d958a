package kube_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/kube"
)

// one returns a cluster with one Service, and a counter of its reads.
func one(t *testing.T) (c kube.Cluster, ref kube.Ref, reads *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	client := fake.NewSimpleDynamicClient(scheme, &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1",
		Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u",
			Annotations: map[string]string{"is": "old"}}})
	reads = new(int)
	client.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		*reads++
		return false, nil, nil
	})
	return kube.NewCluster(nil, client, nil), kube.Ref{Resource: corev1.SchemeGroupVersion.WithResource("services"),
		Namespace: "shop", Name: "web"}, reads
}

func is(t *testing.T, o *unstructured.Unstructured, err error) string {
	t.Helper()
	require.NoError(t, err)
	return o.GetAnnotations()["is"]
}

func TestReadCacheReadsEachObjectOnce(t *testing.T) {
	t.Parallel()
	c, ref, reads := one(t)
	ctx := kube.WithReadCache(t.Context())
	for range 3 {
		o, err := c.Get(ctx, ref)
		require.Equal(t, "old", is(t, o, err))
		o.SetAnnotations(map[string]string{"is": "scribbled on"}) // each caller gets its own copy
	}
	missing := ref
	missing.Name = "absent"
	for range 2 {
		_, err := c.Get(ctx, missing)
		require.True(t, apierrors.IsNotFound(err), "a missing object is cached too")
	}
	require.Equal(t, 2, *reads)
	_, err := c.Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, 3, *reads, "another context has its own cache")
}

func TestReadCacheContainsOwnWrites(t *testing.T) {
	t.Parallel()
	new := []byte(`[{"op": "replace", "path": "/metadata/annotations/is", "value": "new"}]`)
	for _, c := range []struct {
		reason string
		write  func(c kube.Cluster, ctx context.Context, ref kube.Ref) error
		is     string
		reads  int
	}{
		{"the result of a write needs no read", func(c kube.Cluster, ctx context.Context, ref kube.Ref) error {
			_, err := c.Patch(ctx, ref, new, false)
			return err
		}, "new", 1},
		{"after a refused write the object is read again",
			func(c kube.Cluster, ctx context.Context, ref kube.Ref) error {
				_, err := c.Patch(ctx, ref, []byte(`[{"op": "test", "path": "/metadata/uid", "value": "other"}]`),
					false)
				require.Error(t, err)
				return nil
			}, "old", 2},
		{"after a refused dry run too", func(c kube.Cluster, ctx context.Context, ref kube.Ref) error {
			_, err := c.Patch(ctx, ref, []byte(`[{"op": "test", "path": "/metadata/uid", "value": "other"}]`), true)
			require.Error(t, err)
			return nil
		}, "old", 2},
	} {
		cluster, ref, reads := one(t)
		ctx := kube.WithReadCache(t.Context())
		o, err := cluster.Get(ctx, ref)
		require.Equal(t, "old", is(t, o, err), c.reason)
		require.NoError(t, c.write(cluster, ctx, ref), c.reason)
		o, err = cluster.Get(ctx, ref)
		require.Equal(t, c.is, is(t, o, err), c.reason)
		require.Equal(t, c.reads, *reads, c.reason)
	}
}

func TestReadCacheContainsOwnDeletion(t *testing.T) {
	t.Parallel()
	c, ref, reads := one(t)
	ctx := kube.WithReadCache(t.Context())
	_, err := c.Get(ctx, ref)
	require.NoError(t, err)
	require.NoError(t, c.Delete(ctx, ref, "u", ""))
	_, err = c.Get(ctx, ref)
	require.True(t, apierrors.IsNotFound(err))
	require.Equal(t, 2, *reads)
}
