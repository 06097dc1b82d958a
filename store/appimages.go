package store

import (
	"context"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

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
