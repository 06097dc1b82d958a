package store

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// ListAppImages reads one page of the AppImages in order of name. next is the cursor of the page after it, "" on the last one.
func (s *Store) ListAppImages(ctx context.Context, limit int, cursor string) (items []kuscia.AppImage, next string, err error) {
	list, err := listPage(ctx, s.appImages, limit, cursor)
	if err != nil {
		return nil, "", failed(err, "the list of AppImages")
	}
	return list.Items, list.Continue, nil
}

// GetAppImage reads an AppImage.
func (s *Store) GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	image, err := s.appImages.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, failed(err, "AppImage "+name)
	}
	return image, nil
}

// CreateAppImage creates an AppImage; a Conflict says that there is one of its name.
func (s *Store) CreateAppImage(ctx context.Context, image *kuscia.AppImage) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.appImages.Create(ctx, image, metav1.CreateOptions{})
	return failed(err, "AppImage "+image.Name)
}

// UpdateAppImage replaces the AppImage that was read; a change since is a Conflict.
func (s *Store) UpdateAppImage(ctx context.Context, image *kuscia.AppImage) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, err := s.appImages.Update(ctx, image, metav1.UpdateOptions{})
	return failed(err, "AppImage "+image.Name)
}

// DeleteAppImage deletes an AppImage. Servings that run it go on with the version that they have.
func (s *Store) DeleteAppImage(ctx context.Context, name string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return failed(s.appImages.Delete(ctx, name, metav1.DeleteOptions{}), "AppImage "+name)
}
