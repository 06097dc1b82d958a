package kuscia

import (
	"context"

	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// homeStore is the part of the home cluster that this package reads and writes. Errors are failure.Error with the kinds
// NotFound, Conflict, Refused, Forbidden and Unreachable.
type homeStore interface {
	declared.Home
	// ListAppImages reads one page sorted by name; next is "" on the last page.
	ListAppImages(ctx context.Context, limit int, cursor string) (items []kuscia.AppImage, next string, err error)
	DeleteAppImage(ctx context.Context, name string) error
	// DeleteServing returns a Conflict if the ID now belongs to another serving.
	DeleteServing(ctx context.Context, stored *kuscia.KusciaDeployment) error
	// CheckCluster returns an error if the home cluster cannot be read.
	CheckCluster(ctx context.Context) error
}

// writer checks and writes servings.
func (s *Service) writer() declared.Writer { return declared.Writer{Home: s.store} }

// readImages returns the function that reads the AppImages of parties.
func (s *Service) readImages(ctx context.Context) convert.ReadImages {
	return func(parties []kuscia.Party) (convert.Images, error) { return s.writer().Images(ctx, parties) }
}

// notFound is the error for a missing object, with the API server's message: clients recognise it by the message,
// because there is no code for it.
func notFound(resource, name string) error {
	return failure.New(failure.NotFound, "%s.%s %q not found", resource, kuscia.GroupVersion.Group, name)
}

// getServing reads a serving. A serving that is being deleted is not found.
func (s *Service) getServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	missing := notFound(kuscia.KusciaDeploymentResource.Resource, id)
	if declared.CheckName(id) != nil {
		return nil, missing
	}
	serving, err := s.store.GetServing(ctx, id)
	if failure.Is(err, failure.NotFound) || err == nil && serving.DeletionTimestamp != nil {
		return nil, missing
	}
	return serving, err
}

// getAppImage reads an AppImage; absent is the code of the response if it does not exist.
func (s *Service) getAppImage(ctx context.Context, name string, absent int32) (*kuscia.AppImage, error) {
	missing := refused(absent, "%s", notFound(kuscia.AppImageResource.Resource, name))
	if declared.CheckName(name) != nil {
		return nil, missing
	}
	image, err := s.store.GetAppImage(ctx, name)
	if failure.Is(err, failure.NotFound) {
		return nil, missing
	}
	return image, err
}
