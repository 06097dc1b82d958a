package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/store"
)

// kusciaStore is a store on a cluster with Kuscia's kinds.
func kusciaStore(t *testing.T) *store.Store {
	t.Helper()
	store := newStore(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	require.NoError(t, store.EnsureCRDs(ctx))
	return store
}

func kindOf(t *testing.T, err error) failure.Kind {
	t.Helper()
	var typed *failure.Error
	require.ErrorAs(t, err, &typed)
	return typed.Kind
}

func newAppImage(name string) *kuscia.AppImage {
	return &kuscia.AppImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kuscia.AppImageSpec{
		Image: kuscia.AppImageInfo{Name: "registry.test/serving", Tag: "v1"},
		DeployTemplates: []kuscia.DeployTemplate{{Name: "serving",
			Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{
				Name: "serving", Ports: []kuscia.ContainerPort{{Name: "service", Port: 53509,
					Scope: kuscia.ScopeCluster}}}}}}},
	}}
}

func TestAppImagesAreStored(t *testing.T) {
	t.Parallel()
	store, ctx := kusciaStore(t), testContext(t)
	name := "image-" + rand.String(8)
	require.NoError(t, store.CreateAppImage(ctx, newAppImage(name)))
	deleted := false
	t.Cleanup(func() {
		if !deleted {
			_ = store.DeleteAppImage(context.Background(), name)
		}
	})
	require.Equal(t, failure.Conflict, kindOf(t, store.CreateAppImage(ctx, newAppImage(name))),
		"a second one of its name")

	first, err := store.GetAppImage(ctx, name)
	require.NoError(t, err)
	require.Equal(t, kuscia.ProtocolHTTP, first.Spec.DeployTemplates[0].Spec.Containers[0].Ports[0].Protocol,
		"the definition's default")
	second := first.DeepCopy()
	first.Spec = newAppImage(name).Spec
	require.NoError(t, store.TryAppImage(ctx, first))
	require.EqualValues(t, 1, first.Generation, "with the defaults of the definition it is the stored one")
	first.Spec.Image.Tag = "v2"
	require.NoError(t, store.TryAppImage(ctx, first))
	require.EqualValues(t, 2, first.Generation, "it would be changed")
	first = second.DeepCopy()
	first.Spec.Image.Tag = "v2"
	require.NoError(t, store.UpdateAppImage(ctx, first), "the tries have written nothing")
	require.Equal(t, failure.Conflict, kindOf(t, store.UpdateAppImage(ctx, second)), "changed since it was read")

	found := false
	for cursor := ""; ; {
		page, next, err := store.ListAppImages(ctx, 1, cursor)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 1)
		for _, image := range page {
			found = found || image.Name == name && image.Spec.Image.Tag == "v2"
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	require.True(t, found, "one of the pages contains it")

	require.NoError(t, store.DeleteAppImage(ctx, name))
	deleted = true
	_, err = store.GetAppImage(ctx, name)
	require.Equal(t, failure.NotFound, kindOf(t, err))
	require.Equal(t, failure.NotFound, kindOf(t, store.DeleteAppImage(ctx, name)))
}

func TestServingsAreStored(t *testing.T) {
	t.Parallel()
	store, ctx := kusciaStore(t), testContext(t)
	id := "serving-" + rand.String(8)
	serving := &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: kuscia.KusciaDeploymentSpec{
		Initiator: "alice", Parties: []kuscia.Party{{DomainID: "alice", AppImageRef: "image"}}}}
	require.NoError(t, store.CreateServing(ctx, serving.DeepCopy()))
	t.Cleanup(func() {
		if stored, err := store.GetServing(context.Background(), id); err == nil {
			stored.Finalizers = nil
			_ = store.UpdateServing(context.Background(), stored)
			_ = store.DeleteServing(context.Background(), stored)
		}
	})
	require.Equal(t, failure.Conflict, kindOf(t, store.CreateServing(ctx, serving.DeepCopy())),
		"a second one of its ID")

	stored, err := store.GetServing(ctx, id)
	require.NoError(t, err)
	require.Equal(t, store.Namespace(), stored.Namespace, "in the configured namespace")
	stale := stored.DeepCopy()
	stored.Spec.InputConfig, stored.Status.Phase = "{}", kuscia.PhaseFailed
	require.NoError(t, store.UpdateServing(ctx, stored))
	require.EqualValues(t, 2, stored.Generation)
	require.Equal(t, kuscia.PhasePending, stored.Status.Phase, "an update does not change the status")
	require.Equal(t, failure.Conflict, kindOf(t, store.UpdateServing(ctx, stale)), "changed since it was read")

	stored.Status.Phase, stored.Status.TotalParties, stored.Spec.InputConfig = kuscia.PhaseProgressing, 1, "lost"
	require.NoError(t, store.UpdateServingStatus(ctx, stored))
	require.Equal(t, "{}", stored.Spec.InputConfig, "a status update does not change the spec")
	require.EqualValues(t, 2, stored.Generation, "a status update is no new generation")
	require.True(t, meta.IsStatusConditionTrue(stored.Status.Conditions, conditions.Progressing),
		"the conditions are written with it")
	version := stored.ResourceVersion
	require.NoError(t, store.UpdateServingStatus(ctx, stored))
	require.Equal(t, version, stored.ResourceVersion, "an equal status writes nothing")
	require.Equal(t, failure.Conflict, kindOf(t, store.UpdateServingStatus(ctx, stale)))

	stored.Finalizers = []string{kuscia.Finalizer}
	require.NoError(t, store.UpdateServing(ctx, stored))
	another := stored.DeepCopy()
	another.UID = "another"
	require.Equal(t, failure.Conflict, kindOf(t, store.DeleteServing(ctx, another)),
		"another one of its ID is not deleted")
	require.NoError(t, store.DeleteServing(ctx, stale), "at any version")
	stored, err = store.GetServing(ctx, id)
	require.NoError(t, err)
	require.NotNil(t, stored.DeletionTimestamp, "the finalizer keeps it")
	stored.Finalizers = nil
	require.NoError(t, store.UpdateServing(ctx, stored))
	_, err = store.GetServing(ctx, id)
	require.Equal(t, failure.NotFound, kindOf(t, err))
	require.Equal(t, failure.NotFound, kindOf(t, store.DeleteServing(ctx, stale)))
}
