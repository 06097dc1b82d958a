package kuscia

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// homeStore is the part of the home cluster that this package reads and writes. Errors are failure.Error with the kinds
// NotFound, Conflict, Refused, Forbidden and Unreachable.
type homeStore interface {
	// ListAppImages reads one page sorted by name; next is "" on the last page.
	ListAppImages(ctx context.Context, limit int, cursor string) (items []kuscia.AppImage, next string, err error)
	GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error)
	// CreateAppImage and CreateServing return a Conflict if the name exists.
	CreateAppImage(ctx context.Context, image *kuscia.AppImage) error
	// UpdateAppImage and UpdateServing replace the object that was read; they return a Conflict if it has changed
	// since. UpdateServing does not change the status, and stores the written object in serving.
	UpdateAppImage(ctx context.Context, image *kuscia.AppImage) error
	DeleteAppImage(ctx context.Context, name string) error
	// GetServing also returns a serving that is being deleted.
	GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error)
	CreateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error
	UpdateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error
	// DeleteServing returns a Conflict if the ID now belongs to another serving.
	DeleteServing(ctx context.Context, stored *kuscia.KusciaDeployment) error
	// Queue returns the task queue of a party, and whether the party exists: as a Party object, or as a namespace of
	// the home cluster.
	Queue(ctx context.Context, party string) (queue string, known bool, err error)
	// CheckCluster returns an error if the home cluster cannot be read.
	CheckCluster(ctx context.Context) error
}

// maxConcurrent is the maximum number of concurrent calls to the home cluster per request: a serving may have hundreds
// of parties.
const maxConcurrent = 16

// notFound is the error for a missing object, with the API server's message: clients recognise it by the message,
// because there is no code for it.
func notFound(resource, name string) error {
	return failure.New(failure.NotFound, "%s.%s %q not found", resource, kuscia.GroupVersion.Group, name)
}

// illegalName reports that no object can have the name; reading it would return another error than not found.
func illegalName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }

// getServing reads a serving. A serving that is being deleted is not found.
func (s *Service) getServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	missing := notFound(kuscia.KusciaDeploymentResource.Resource, id)
	if illegalName(id) {
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
	if illegalName(name) {
		return nil, missing
	}
	image, err := s.store.GetAppImage(ctx, name)
	if failure.Is(err, failure.NotFound) {
		return nil, missing
	}
	return image, err
}

// appImages reads the AppImages of these parties by name, and omits missing ones.
func (s *Service) appImages(ctx context.Context, parties []kuscia.Party) (map[string]kuscia.AppImageSpec, error) {
	names := distinct(parties, func(p kuscia.Party) string { return p.AppImageRef })
	found := make([]*kuscia.AppImage, len(names))
	err := forEach(len(names), func(i int) error {
		if illegalName(names[i]) {
			return nil
		}
		image, err := s.store.GetAppImage(ctx, names[i])
		if failure.Is(err, failure.NotFound) {
			return nil
		}
		found[i] = image
		return err
	})
	images := make(map[string]kuscia.AppImageSpec, len(names))
	for i, image := range found {
		if err == nil && image != nil {
			images[names[i]] = image.Spec
		}
	}
	return images, err
}

// distinct returns the parties' names without duplicates, in order.
func distinct(parties []kuscia.Party, name func(kuscia.Party) string) (names []string) {
	for _, party := range parties {
		if n := name(party); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// forEach makes n calls, several at a time, and returns the error of the first failed index.
func forEach(n int, ask func(i int) error) error {
	errs := make([]error, n)
	var asking errgroup.Group
	asking.SetLimit(maxConcurrent)
	for i := range n {
		asking.Go(func() error {
			errs[i] = ask(i)
			return nil
		})
	}
	_ = asking.Wait() // the first error by index counts, not the earliest
	return cmp.Or(errs...)
}
