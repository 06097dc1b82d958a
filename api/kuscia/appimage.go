package kuscia

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// defaultPageSize is the page size of AppImage lists if the request has none, maxPageSize the maximum.
const (
	defaultPageSize = 10
	maxPageSize     = 500
)

// CreateAppImage creates an AppImage.
func (s *Service) CreateAppImage(ctx context.Context,
	r *kusciapb.CreateAppImageRequest) (*kusciapb.CreateAppImageResponse, error) {
	return &kusciapb.CreateAppImageResponse{Status: outcome(s.createAppImage(ctx, r), codeCreateAppImage)}, nil
}

func (s *Service) createAppImage(ctx context.Context, r *kusciapb.CreateAppImageRequest) error {
	if err := checkAppImage(r); err != nil {
		return err
	}
	if len(r.GetDeployTemplates()) == 0 {
		return invalid("deploy templates can not be empty")
	}
	if err := checkName("appimage_id", r.GetName()); err != nil {
		return err
	}
	image := &kuscia.AppImage{ObjectMeta: metav1.ObjectMeta{Name: r.GetName()}}
	if err := convert.SetAppImage(&image.Spec, r); err != nil {
		return err
	}
	err := s.store.CreateAppImage(ctx, image)
	if failure.Is(err, failure.Conflict) {
		return refused(codeAppImageExists, "%s.%s %q already exists", kuscia.AppImageResource.Resource,
			kuscia.GroupVersion.Group, r.GetName())
	}
	return err
}

// UpdateAppImage changes an AppImage: its image, and its templates if the request has any. Fields of a template,
// container, port or probe that Kuscia's messages lack are kept if its name stays the same.
func (s *Service) UpdateAppImage(ctx context.Context,
	r *kusciapb.UpdateAppImageRequest) (*kusciapb.UpdateAppImageResponse, error) {
	return &kusciapb.UpdateAppImageResponse{Status: outcome(s.updateAppImage(ctx, r), codeUpdateAppImage)}, nil
}

func (s *Service) updateAppImage(ctx context.Context, r *kusciapb.UpdateAppImageRequest) error {
	if err := checkAppImage(r); err != nil {
		return err
	}
	return failure.RetryOnConflict("AppImage "+r.GetName(), func() error {
		image, err := s.getAppImage(ctx, r.GetName())
		if err != nil {
			return err
		}
		if err := convert.SetAppImage(&image.Spec, r); err != nil {
			return err
		}
		return s.store.UpdateAppImage(ctx, image)
	})
}

// DeleteAppImage deletes an AppImage; servings keep running the version of it that they have.
func (s *Service) DeleteAppImage(ctx context.Context,
	r *kusciapb.DeleteAppImageRequest) (*kusciapb.DeleteAppImageResponse, error) {
	return &kusciapb.DeleteAppImageResponse{Status: outcome(s.deleteAppImage(ctx, r.GetName()), codeDeleteAppImage)},
		nil
}

func (s *Service) deleteAppImage(ctx context.Context, name string) error {
	if err := checkNamed(name); err != nil {
		return err
	}
	missing := notFound(kuscia.AppImageResource.Resource, name)
	if declared.CheckName(name) != nil {
		return missing
	}
	err := s.store.DeleteAppImage(ctx, name)
	if failure.Is(err, failure.NotFound) {
		return missing
	}
	return err
}

// QueryAppImage returns an AppImage.
func (s *Service) QueryAppImage(ctx context.Context, r *kusciapb.QueryAppImageRequest) (*kusciapb.QueryAppImageResponse,
	error) {
	data, err := s.queryAppImage(ctx, r.GetName())
	return &kusciapb.QueryAppImageResponse{Status: outcome(err, codeQueryAppImage), Data: data}, nil
}

func (s *Service) queryAppImage(ctx context.Context, name string) (*kusciapb.QueryAppImageResponseData, error) {
	if err := checkNamed(name); err != nil {
		return nil, err
	}
	image, err := s.getAppImage(ctx, name)
	if err != nil {
		return nil, err
	}
	return convert.AppImageData(image), nil
}

// BatchQueryAppImage returns AppImages in the order of the request; a missing one fails the whole request.
func (s *Service) BatchQueryAppImage(ctx context.Context,
	r *kusciapb.BatchQueryAppImageRequest) (*kusciapb.BatchQueryAppImageResponse, error) {
	data, err := s.batchQueryAppImage(ctx, r.GetNames())
	return &kusciapb.BatchQueryAppImageResponse{Status: outcome(err, codeBatchQueryAppImage), Data: data}, nil
}

func (s *Service) batchQueryAppImage(ctx context.Context, names []string) ([]*kusciapb.QueryAppImageResponseData,
	error) {
	if len(names) == 0 {
		return nil, invalid("names can not be empty")
	}
	if err := checkBatch("names", len(names)); err != nil {
		return nil, err
	}
	for i, name := range names {
		if name == "" {
			return nil, invalid("name can not be empty on index %d", i)
		}
	}
	read, err := readEach(names, func(name string) (*kusciapb.QueryAppImageResponseData, error) {
		image, err := s.getAppImage(ctx, name)
		if err != nil {
			status := outcome(err, codeBatchQueryAppImage)
			return nil, refused(status.GetCode(), "can't get appimage for %s, err: %s", name, status.GetMessage())
		}
		return convert.AppImageData(image), nil
	})
	if err != nil {
		return nil, err
	}
	return convert.MapSlice(names, func(name string) *kusciapb.QueryAppImageResponseData { return read[name] }), nil
}

// ListAppImage returns a page of AppImages, sorted by name.
func (s *Service) ListAppImage(ctx context.Context, r *kusciapb.ListAppImageRequest) (*kusciapb.ListAppImageResponse,
	error) {
	data, err := s.listAppImage(ctx, r)
	return &kusciapb.ListAppImageResponse{Status: outcome(err, codeListAppImage), Data: data}, nil
}

func (s *Service) listAppImage(ctx context.Context,
	r *kusciapb.ListAppImageRequest) (*kusciapb.ListAppImageResponseData, error) {
	size := int(r.GetPageSize())
	switch {
	case size < 0:
		return nil, invalid("page size can not be less than 0")
	case size == 0:
		size = defaultPageSize
	}
	images, next, err := s.store.ListAppImages(ctx, min(size, maxPageSize), r.GetPageToken())
	if err != nil {
		return nil, fmt.Errorf("can't list appimages, err: %w", err)
	}
	data := &kusciapb.ListAppImageResponseData{NextPageToken: next}
	for i := range images {
		data.AppimageList = append(data.AppimageList, convert.AppImageData(&images[i]))
	}
	return data, nil
}

// legalName matches legal names of servings and AppImages.
var legalName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// checkName refuses an illegal name with Kuscia's message, including its trailing blank.
func checkName(field, name string) error {
	if !legalName.MatchString(name) {
		return invalid("Field %q is invalid, invalid value: %q: regex used for validation is %q ", field, name,
			legalName.String())
	}
	return nil
}

func checkNamed(name string) error {
	if name == "" {
		return invalid("appimage name can not be empty")
	}
	return nil
}

// checkAppImage checks the required fields of a created or updated AppImage, with Kuscia's messages.
func checkAppImage(r convert.AppImageRequest) error {
	if err := checkNamed(r.GetName()); err != nil {
		return err
	}
	if r.GetImage().GetName() == "" {
		return invalid("base image name can not be empty")
	}
	for _, template := range r.GetDeployTemplates() {
		switch {
		case template.GetName() == "":
			return invalid("deploy template name can not be empty")
		case len(template.GetContainers()) == 0:
			return invalid("containers can not be empty")
		case template.GetReplicas() < 0:
			return invalid("replicas can not be less than 0")
		}
		if slices.ContainsFunc(template.GetContainers(), func(c *kusciapb.Container) bool {
			return c.GetName() == ""
		}) {
			return invalid("container name can not be empty")
		}
	}
	return nil
}
