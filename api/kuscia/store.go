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

// homeStore is what this package reads and writes in the home cluster. Errors are failure.Error with the kinds NotFound, Conflict,
// Refused, Forbidden and Unreachable.
type homeStore interface {
	// ListAppImages reads one page in order of name; next is "" on the last one.
	ListAppImages(ctx context.Context, limit int, cursor string) (items []kuscia.AppImage, next string, err error)
	GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error)
	// CreateAppImage and CreateServing are a Conflict when there is one of the name.
	CreateAppImage(ctx context.Context, image *kuscia.AppImage) error
	// UpdateAppImage and UpdateServing replace what was read; a change since is a Conflict. UpdateServing leaves the status, and what was
	// written is in serving afterwards.
	UpdateAppImage(ctx context.Context, image *kuscia.AppImage) error
	DeleteAppImage(ctx context.Context, name string) error
	// GetServing reads also one that is being deleted.
	GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error)
	CreateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error
	UpdateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error
	// DeleteServing is a Conflict when there is another one of the ID by now.
	DeleteServing(ctx context.Context, stored *kuscia.KusciaDeployment) error
	// Queue says whether a party is known: as a Party object, or as a namespace of the home cluster.
	Queue(ctx context.Context, party string) (queue string, known bool, err error)
	// CheckCluster says what is wrong when the home cluster cannot be read.
	CheckCluster(ctx context.Context) error
}

// maxConcurrent is how many questions one request has to the home cluster at once: a serving may have hundreds of parties.
const maxConcurrent = 16

// notFound says that an object does not exist, in the API server's words: clients know it by these, since the codes do not say it.
func notFound(resource, name string) error {
	return failure.New(failure.NotFound, "%s.%s %q not found", resource, kuscia.GroupVersion.Group, name)
}

// illegalName says that no object can have the name; asking for it would be an error of another kind than its absence.
func illegalName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 }

// getServing reads a serving. One that is being deleted is gone for whoever asks.
func (s *Service) getServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	gone := notFound(kuscia.KusciaDeploymentResource.Resource, id)
	if illegalName(id) {
		return nil, gone
	}
	serving, err := s.store.GetServing(ctx, id)
	if failure.Is(err, failure.NotFound) || err == nil && serving.DeletionTimestamp != nil {
		return nil, gone
	}
	return serving, err
}

// getAppImage reads an AppImage; absent is the code of the answer when there is none.
func (s *Service) getAppImage(ctx context.Context, name string, absent int32) (*kuscia.AppImage, error) {
	gone := refused(absent, "%s", notFound(kuscia.AppImageResource.Resource, name))
	if illegalName(name) {
		return nil, gone
	}
	image, err := s.store.GetAppImage(ctx, name)
	if failure.Is(err, failure.NotFound) {
		return nil, gone
	}
	return image, err
}

// appImages reads the AppImages of these parties by name; one that does not exist is absent from the answer.
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

// distinct are the names of the parties, each once, in the order in which they come.
func distinct(parties []kuscia.Party, name func(kuscia.Party) string) (names []string) {
	for _, party := range parties {
		if n := name(party); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// forEach asks n questions, some at once, and returns the error of the first that has one.
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
	_ = asking.Wait() // the first of them counts, not the fastest
	return cmp.Or(errs...)
}
