// Package declared checks and writes the objects of the home cluster that declare servings, KusciaDeployments and
// AppImages, for the native API and for Kuscia's.
package declared

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Home is the part of the home cluster that this package reads and writes. Errors are failure.Error with the kinds
// NotFound, Conflict, Refused, Forbidden and Unreachable.
type Home interface {
	GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error)
	// CreateAppImage and CreateServing return a Conflict if the name exists.
	CreateAppImage(ctx context.Context, image *kuscia.AppImage) error
	// UpdateAppImage and UpdateServing replace the object that was read, and store the written object in it; they
	// return a Conflict if it has changed since. UpdateServing does not change the status.
	UpdateAppImage(ctx context.Context, image *kuscia.AppImage) error
	// TryAppImage is UpdateAppImage without the write: afterwards image holds what would be stored.
	TryAppImage(ctx context.Context, image *kuscia.AppImage) error
	// GetServing also returns a serving that is being deleted.
	GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error)
	CreateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error
	UpdateServing(ctx context.Context, serving *kuscia.KusciaDeployment) error
	// Queue returns the task queue of a party, and whether the party exists: as a Party object, or as a namespace of
	// the home cluster.
	Queue(ctx context.Context, party string) (queue string, known bool, err error)
}

// Writer checks and writes servings and AppImages.
type Writer struct{ Home Home }

// created is the result of a creation: the API server counts generations from 1.
func created(name string) schema.PutDeclaredResult {
	return schema.PutDeclaredResult{Name: name, Generation: 1, Created: true, Changed: true}
}

// checkBase refuses a request that is based on another generation than the current one; 0 is the generation of an
// object that does not exist. advice is what to do about an object that exists already.
func checkBase(name, advice string, based *int64, current int64) error {
	switch {
	case based == nil || *based == current:
		return nil
	case current == 0:
		return problem.NotFound.Because("%s does not exist", name)
	case *based == 0:
		return problem.Conflict.Because("%s exists already%s", name, advice)
	}
	return problem.Conflict.Because("another client has changed %s: its generation is %d, not %d; read it again and "+
		"repeat the change", name, current, *based)
}

// CheckName refuses a name that no object can have; reading it would return another error than not found.
func CheckName(name string) error {
	if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

// Images reads the AppImages of these parties by name, and omits missing ones.
func (w Writer) Images(ctx context.Context, parties []kuscia.Party) (map[string]kuscia.AppImageSpec, error) {
	names := distinct(parties, func(p kuscia.Party) string { return p.AppImageRef })
	found := make([]*kuscia.AppImage, len(names))
	err := ForEach(len(names), func(i int) error {
		if CheckName(names[i]) != nil {
			return nil
		}
		image, err := w.Home.GetAppImage(ctx, names[i])
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

// maxConcurrent is the maximum number of concurrent calls to the home cluster per request: a serving may have hundreds
// of parties.
const maxConcurrent = 16

// ForEach makes n calls, several at a time, and returns the error of the first failed index.
func ForEach(n int, ask func(i int) error) error {
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
