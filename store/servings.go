package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// ListServings reads one page of the servings in order of ID. next is the cursor of the page after it, "" on the last one.
func (s *Store) ListServings(ctx context.Context, limit int, cursor string) (items []kuscia.KusciaDeployment, next string, err error) {
	return s.servings.page(ctx, limit, cursor)
}

// GetServing reads a serving, also one that is being deleted.
func (s *Store) GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	return s.servings.get(ctx, id)
}

// CreateServing creates a serving; a Conflict says that there is one of its ID. Its namespace has to be there: EnsureNamespace makes it.
func (s *Store) CreateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	serving.Namespace = s.servingNamespace
	_, err := s.servings.Create(ctx, serving, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return failure.New(failure.NotFound,
			"namespace %s, in which servings are kept, or their definition does not exist in the home cluster: "+
				"start the server with --install-crds, or create both", s.servingNamespace)
	}
	return failed(err, "serving "+serving.Name)
}

// UpdateServing replaces the spec and the metadata of the serving that was read, and leaves its status; a change since is a Conflict. What
// was written is in serving afterwards.
func (s *Store) UpdateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error {
	return s.servings.update(ctx, serving)
}

// UpdateServingStatus replaces the status of the serving that was read, with its conditions, and leaves the rest; a change since is a
// Conflict. What was written is in serving afterwards.
func (s *Store) UpdateServingStatus(ctx context.Context, serving *kuscia.KusciaDeployment) error {
	conditions.Keep(serving, time.Now())
	return s.servings.updateStatus(ctx, serving)
}

// DeleteServing deletes the serving that was read, at whatever version it is by now; another one of its ID is a Conflict.
func (s *Store) DeleteServing(ctx context.Context, stored *kuscia.KusciaDeployment) error {
	return s.servings.delete(ctx, stored.Name, &metav1.Preconditions{UID: &stored.UID})
}

// GuardServing puts the finalizer on a serving as it was read, or takes it off. It touches nothing else: what somebody has applied stays as
// it was applied, and its generation with it.
func (s *Store) GuardServing(ctx context.Context, kd *kuscia.KusciaDeployment, guarded bool) error {
	return s.patchServing(ctx, kd, "finalizers", guard(kd.Finalizers, kuscia.Finalizer, guarded))
}

// guard is a list of finalizers with this one, or without it.
func guard(finalizers []string, finalizer string, guarded bool) []string {
	rest := slices.DeleteFunc(append([]string{}, finalizers...), func(f string) bool { return f == finalizer })
	if guarded {
		return append(rest, finalizer)
	}
	return rest
}

// AnnotateServing sets an annotation of a serving as it was read; a change since is a Conflict. Like GuardServing it touches nothing else.
func (s *Store) AnnotateServing(ctx context.Context, kd *kuscia.KusciaDeployment, key, value string) error {
	return s.patchServing(ctx, kd, "annotations", map[string]string{key: value})
}

// patchServing merges one field into the metadata of a serving as it was read.
func (s *Store) patchServing(ctx context.Context, kd *kuscia.KusciaDeployment, field string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: value, "resourceVersion": kd.ResourceVersion}})
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err = s.servings.Patch(ctx, kd.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	return failed(err, "serving "+kd.Name)
}

// ListAppImages reads one page of the AppImages in order of name. next is the cursor of the page after it, "" on the last one.
func (s *Store) ListAppImages(ctx context.Context, limit int, cursor string) (items []kuscia.AppImage, next string, err error) {
	return s.appImages.page(ctx, limit, cursor)
}

// GetAppImage reads an AppImage.
func (s *Store) GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error) {
	return s.appImages.get(ctx, name)
}

// CreateAppImage creates an AppImage; a Conflict says that there is one of its name.
func (s *Store) CreateAppImage(ctx context.Context, image *kuscia.AppImage) error {
	return s.appImages.create(ctx, image)
}

// UpdateAppImage replaces the AppImage that was read; a change since is a Conflict.
func (s *Store) UpdateAppImage(ctx context.Context, image *kuscia.AppImage) error {
	return s.appImages.update(ctx, image)
}

// DeleteAppImage deletes an AppImage. Servings that run it go on with the version that they have.
func (s *Store) DeleteAppImage(ctx context.Context, name string) error {
	return s.appImages.delete(ctx, name, nil)
}
