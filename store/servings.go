package store

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// ListServings reads one page of the servings in order of ID. next is the cursor of the page after it, "" on the last one.
func (s *Store) ListServings(ctx context.Context, limit int, cursor string) (items []kuscia.KusciaDeployment, next string, err error) {
	list, err := listPage(ctx, s.servings, limit, cursor)
	if err != nil {
		return nil, "", failed(err, "the list of servings")
	}
	return list.Items, list.Continue, nil
}

// GetServing reads a serving, also one that is being deleted.
func (s *Store) GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	serving, err := s.servings.Get(ctx, id, metav1.GetOptions{})
	if err != nil {
		return nil, failed(err, "serving "+id)
	}
	return serving, nil
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
	ctx, cancel := bounded(ctx)
	defer cancel()
	written, err := s.servings.Update(ctx, serving, metav1.UpdateOptions{})
	if err != nil {
		return failed(err, "serving "+serving.Name)
	}
	*serving = *written
	return nil
}

// UpdateServingStatus replaces the status of the serving that was read, with its conditions, and leaves the rest; a change since is a
// Conflict. What was written is in serving afterwards.
func (s *Store) UpdateServingStatus(ctx context.Context, serving *kuscia.KusciaDeployment) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conditions.Keep(serving, time.Now())
	written, err := s.servings.UpdateStatus(ctx, serving, metav1.UpdateOptions{})
	if err != nil {
		return failed(err, "serving "+serving.Name)
	}
	*serving = *written
	return nil
}

// DeleteServing deletes the serving that was read, at whatever version it is by now; another one of its ID is a Conflict.
func (s *Store) DeleteServing(ctx context.Context, stored *kuscia.KusciaDeployment) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stored.UID}}
	return failed(s.servings.Delete(ctx, stored.Name, options), "serving "+stored.Name)
}
