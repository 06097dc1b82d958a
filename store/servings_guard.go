package store

import (
	"context"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// GuardServing puts the finalizer on a serving as it was read, or takes it off. It touches nothing else: what somebody has applied stays as
// it was applied, and its generation with it.
func (s *Store) GuardServing(ctx context.Context, kd *kuscia.KusciaDeployment, guarded bool) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	finalizers := slices.DeleteFunc(slices.Clone(kd.Finalizers), func(f string) bool { return f == kuscia.Finalizer })
	if guarded {
		finalizers = append(finalizers, kuscia.Finalizer)
	}
	return s.patchServing(ctx, kd, "finalizers", finalizers)
}

// AnnotateServing sets an annotation of a serving as it was read; a change since is a Conflict. Like GuardServing it touches nothing else.
func (s *Store) AnnotateServing(ctx context.Context, kd *kuscia.KusciaDeployment, key, value string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return s.patchServing(ctx, kd, "annotations", map[string]string{key: value})
}

// patchServing merges one field into the metadata of a serving as it was read.
func (s *Store) patchServing(ctx context.Context, kd *kuscia.KusciaDeployment, field string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: value, "resourceVersion": kd.ResourceVersion}})
	if err != nil {
		return err
	}
	_, err = s.servings.Patch(ctx, kd.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return failed(err, "serving "+kd.Name)
}
