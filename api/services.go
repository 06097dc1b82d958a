package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/v1alpha1"
)

// ListServices answers GET /api/v1/services.
func (h *handlers) ListServices(c echo.Context, params ListServicesParams) error {
	limit, err := pageLimit(params.Limit)
	if err != nil {
		return err
	}
	items, next, err := h.Home.ListServices(c.Request().Context(), limit, text(params.Cursor))
	if err != nil {
		return cursorError(err, params.Cursor)
	}
	list := ServiceList{Items: make([]ServiceSummary, len(items)), NextCursor: next}
	for i := range items {
		list.Items[i] = ServiceSummary{ID: v1alpha1.IDOf(&items[i]), DisplayName: items[i].Spec.DisplayName, Workloads: items[i].Spec.Workloads,
			CreatedAt: items[i].CreationTimestamp.UTC()}
	}
	return c.JSON(http.StatusOK, list)
}

// GetService answers GET /api/v1/services/{id}.
func (h *handlers) GetService(c echo.Context, id ServiceID) error {
	form, err := chooseType(c, typeJSON, typeYAML)
	if err != nil {
		return err
	}
	if catalog.ValidID(id) != nil {
		return kindNotFound.because("service %s does not exist", id)
	}
	service, err := h.Home.GetService(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if form == typeJSON {
		return c.JSON(http.StatusOK, service.Spec)
	}
	document, err := yaml.Marshal(service.Spec)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, typeYAML, document)
}

// PutService answers PUT /api/v1/services/{id}.
func (h *handlers) PutService(c echo.Context, id ServiceID) error {
	body, isJSON, err := readDocument(c)
	if err != nil {
		return err
	}
	if err := legalID("service", id); err != nil {
		return err
	}
	service, wrong := catalog.Decode(body)
	if len(wrong) == 0 {
		wrong = notJSON(body, isJSON)
	}
	if len(wrong) > 0 {
		return wrongDocument("service "+id, wrong)
	}
	created, changed, err := h.Home.PutService(c.Request().Context(), id, service)
	if err != nil {
		return refusedIsMalformed(err)
	}
	return c.JSON(putStatus(created), PutServiceResult{ID: id, Changed: changed})
}

// DeleteService answers DELETE /api/v1/services/{id}.
func (h *handlers) DeleteService(c echo.Context, id ServiceID) error {
	if catalog.ValidID(id) != nil {
		return kindNotFound.because("service %s does not exist", id)
	}
	return orNoContent(c, h.Home.DeleteService(c.Request().Context(), id))
}

// legalID refuses an ID or name that nothing can have.
func legalID(what, id string) error {
	if err := catalog.ValidID(id); err != nil {
		return kindMalformed.because("the %s cannot be called so: %v", what, err)
	}
	return nil
}

func putStatus(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}
