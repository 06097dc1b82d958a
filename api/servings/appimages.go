package servings

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/strictyaml"
)

// ListAppImages answers GET /api/v1/appimages.
func (h *Handlers) ListAppImages(c echo.Context, params schema.ListAppImagesParams) error {
	return page.AnswerObjects(c, params.Limit, params.Cursor, h.Home.ListAppImages,
		func(image *kuscia.AppImage) (schema.AppImage, error) { return showAppImage(image), nil })
}

func showAppImage(image *kuscia.AppImage) schema.AppImage {
	return schema.AppImage{Name: image.Name, Generation: image.Generation, Spec: image.Spec,
		CreatedAt: image.CreationTimestamp.UTC()}
}

// GetAppImage answers GET /api/v1/appimages/{name}.
func (h *Handlers) GetAppImage(c echo.Context, name schema.AppImageName) error {
	image, err := h.findAppImage(c.Request().Context(), name)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, showAppImage(image))
}

func (h *Handlers) findAppImage(ctx context.Context, name string) (*kuscia.AppImage, error) {
	missing := problem.NotFound.Because("AppImage %[1]s does not exist: GET /api/v1/appimages lists those that do, and "+
		"PUT /api/v1/appimages/%[1]s creates it", name)
	if declared.CheckName(name) != nil {
		return nil, missing
	}
	image, err := h.Home.GetAppImage(ctx, name)
	if failure.Is(err, failure.NotFound) {
		return nil, missing
	}
	return image, err
}

// PutAppImage answers PUT /api/v1/appimages/{name}.
func (h *Handlers) PutAppImage(c echo.Context, name schema.AppImageName, params schema.PutAppImageParams) error {
	spec, err := input.DecodeNamed(c, "AppImage", name, declared.CheckName, strictyaml.Decode[kuscia.AppImageSpec])
	if err != nil {
		return err
	}
	result, err := h.writer().PutAppImage(c.Request().Context(), name, spec, params.Generation)
	return answerPut(c, result, err)
}

// DeleteAppImage answers DELETE /api/v1/appimages/{name}.
func (h *Handlers) DeleteAppImage(c echo.Context, name schema.AppImageName) error {
	ctx := c.Request().Context()
	if _, err := h.findAppImage(ctx, name); err != nil {
		return err
	}
	return answer.NoContent(c, h.Home.DeleteAppImage(ctx, name))
}
