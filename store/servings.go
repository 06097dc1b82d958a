package store

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// ListServings reads one page of the servings in order of ID. next is the cursor of the next page, "" on the last one.
func (s *Store) ListServings(ctx context.Context, limit int, cursor string) (items []kuscia.KusciaDeployment,
	next string, err error) {
	return s.servings.page(ctx, limit, cursor)
}

// GetServing reads a serving, also one that is being deleted.
func (s *Store) GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	return s.servings.get(ctx, id)
}

// CreateServing creates a serving; an existing one of its ID is a Conflict. Its namespace must exist: EnsureNamespace
// creates it.
func (s *Store) CreateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error {
	serving.Namespace = s.servingNamespace
	err := s.servings.create(ctx, serving)
	if failure.Is(err, failure.NotFound) {
		return failure.New(failure.NotFound, "namespace %s, for servings, or their definition does not exist in the "+
			"home cluster: start the server with --install-crds, or create both", s.servingNamespace)
	}
	return err
}

// UpdateServing replaces spec and metadata of the serving that was read, but not its status; a change since is a
// Conflict. Afterwards serving holds the stored state.
func (s *Store) UpdateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error {
	return s.servings.update(ctx, serving)
}

// UpdateServingStatus replaces the status of the serving that was read, with its conditions, and nothing else; a change
// since is a Conflict. Afterwards serving holds the stored state.
func (s *Store) UpdateServingStatus(ctx context.Context, serving *kuscia.KusciaDeployment) error {
	conditions.UpdateStatus(serving, time.Now())
	return write(ctx, s.servings, serving, s.servings.UpdateStatus, metav1.UpdateOptions{})
}

// DeleteServing deletes the serving that was read, at any version; another one of its ID is a Conflict.
func (s *Store) DeleteServing(ctx context.Context, stored *kuscia.KusciaDeployment) error {
	return s.servings.delete(ctx, stored.Name, &metav1.Preconditions{UID: &stored.UID})
}

// GuardServing adds or removes the finalizer of a serving; a change since it was read is a Conflict. It changes nothing
// else: applied fields and the generation stay the same.
func (s *Store) GuardServing(ctx context.Context, kd *kuscia.KusciaDeployment, guarded bool) error {
	return s.patchServing(ctx, kd, "finalizers", guard(kd.Finalizers, kuscia.Finalizer, guarded))
}

// guard returns the finalizers with or without this one.
func guard(finalizers []string, finalizer string, guarded bool) []string {
	rest := slices.DeleteFunc(append([]string{}, finalizers...), func(f string) bool { return f == finalizer })
	if guarded {
		return append(rest, finalizer)
	}
	return rest
}

// AnnotateServing sets an annotation of a serving; a change since it was read is a Conflict. Like GuardServing it
// changes nothing else.
func (s *Store) AnnotateServing(ctx context.Context, kd *kuscia.KusciaDeployment, key, value string) error {
	return s.patchServing(ctx, kd, "annotations", map[string]string{key: value})
}

// patchServing merges one field into a serving's metadata; a change since it was read is a Conflict.
func (s *Store) patchServing(ctx context.Context, kd *kuscia.KusciaDeployment, field string, value any) error {
	_, err := patch(ctx, s.servings, kd.Name, map[string]any{"metadata": map[string]any{field: value,
		"resourceVersion": kd.ResourceVersion}})
	return asFailure(err, "serving "+kd.Name)
}

// ListAppImages reads one page of the AppImages in order of name. next is the cursor of the next page, "" on the last
// one.
func (s *Store) ListAppImages(ctx context.Context, limit int, cursor string) (items []kuscia.AppImage, next string,
	err error) {
	return s.appImages.page(ctx, limit, cursor)
}

// GetAppImage reads an AppImage.
func (s *Store) GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error) {
	return s.appImages.get(ctx, name)
}

// CreateAppImage creates an AppImage; an existing one of its name is a Conflict.
func (s *Store) CreateAppImage(ctx context.Context, image *kuscia.AppImage) error {
	return s.appImages.create(ctx, image)
}

// UpdateAppImage replaces the AppImage that was read; a change since is a Conflict.
func (s *Store) UpdateAppImage(ctx context.Context, image *kuscia.AppImage) error {
	return s.appImages.update(ctx, image)
}

// TryAppImage is UpdateAppImage without the write: afterwards image holds what would be stored.
func (s *Store) TryAppImage(ctx context.Context, image *kuscia.AppImage) error {
	return write(ctx, s.appImages, image, s.appImages.Update, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
}

// DeleteAppImage deletes an AppImage. Servings that use it keep their version.
func (s *Store) DeleteAppImage(ctx context.Context, name string) error {
	return s.appImages.delete(ctx, name, nil)
}

// watchServings returns one watch for all followers of servings. It delivers metadata only: a follower reads the
// serving itself.
func (s *Store) watchServings() *watch.Watch[*metav1.PartialObjectMetadata] {
	return watch.New(watch.From(s.watched, s.watched.Resource(kuscia.KusciaDeploymentResource).Namespace),
		func(object *metav1.PartialObjectMetadata) (*metav1.PartialObjectMetadata, error) {
			object.ManagedFields, object.Annotations = nil, nil
			return object, nil
		}, watch.Options{Namespaces: []string{s.servingNamespace}}).
		Handle(watch.OnChange(func(object *metav1.PartialObjectMetadata) { s.followers.Notify(object.Name) }))
}

// FollowServing notifies about changes of a serving, including its deletion, until leave is called. Changes that arrive
// faster than they are received are merged. Without Run there are no notifications.
func (s *Store) FollowServing(id string) (changed <-chan struct{}, leave func()) {
	return s.followers.Subscribe(id)
}
