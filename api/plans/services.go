package plans

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// ListServices answers GET /api/v1/services.
func (h *Handlers) ListServices(c echo.Context, params schema.ListServicesParams) error {
	limit, err := page.Limit(params.Limit)
	if err != nil {
		return err
	}
	items, next, err := h.Home.ListServices(c.Request().Context(), limit, input.Text(params.Cursor))
	if err != nil {
		return page.CursorError(err, params.Cursor)
	}
	list := schema.ServiceList{Items: make([]schema.ServiceSummary, len(items)), NextCursor: next}
	for i := range items {
		list.Items[i] = schema.ServiceSummary{ID: v1alpha1.IDOf(&items[i]), DisplayName: items[i].Spec.DisplayName, Workloads: items[i].Spec.Workloads,
			CreatedAt: items[i].CreationTimestamp.UTC()}
	}
	return c.JSON(http.StatusOK, list)
}

// GetService answers GET /api/v1/services/{id}.
func (h *Handlers) GetService(c echo.Context, id schema.ServiceID) error {
	form, err := answer.Type(c, answer.TypeJSON, answer.TypeYAML)
	if err != nil {
		return err
	}
	if catalog.ValidID(id) != nil {
		return problem.NotFound.Because("service %s does not exist", id)
	}
	service, err := h.Home.GetService(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if form == answer.TypeJSON {
		return c.JSON(http.StatusOK, service.Spec)
	}
	document, err := yaml.Marshal(service.Spec)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, answer.TypeYAML, document)
}

// PutService answers PUT /api/v1/services/{id}.
func (h *Handlers) PutService(c echo.Context, id schema.ServiceID) error {
	body, isJSON, err := input.Document(c)
	if err != nil {
		return err
	}
	if err := input.LegalID("service", id); err != nil {
		return err
	}
	service, wrong := catalog.Decode(body)
	if len(wrong) == 0 {
		wrong = input.NotJSON(body, isJSON)
	}
	if len(wrong) > 0 {
		return problem.WrongDocument("service "+id, wrong)
	}
	created, changed, err := h.Home.PutService(c.Request().Context(), id, service)
	if err != nil {
		return problem.RefusedIsMalformed(err)
	}
	return c.JSON(answer.PutStatus(created), schema.PutServiceResult{ID: id, Changed: changed})
}

// DeleteService answers DELETE /api/v1/services/{id}.
func (h *Handlers) DeleteService(c echo.Context, id schema.ServiceID) error {
	if catalog.ValidID(id) != nil {
		return problem.NotFound.Because("service %s does not exist", id)
	}
	ctx := c.Request().Context()
	if _, err := h.Home.GetService(ctx, id); err != nil {
		return err
	}
	plans, err := h.plansWith(ctx, id)
	if err != nil {
		return err
	}
	if len(plans) > 0 {
		return problem.Conflict.Because("service %s is used by %s: take it out of %s first, or delete the plans", id, named("plan", plans), pronoun(plans))
	}
	return answer.NoContent(c, h.Home.DeleteService(ctx, id))
}

// plansWith are the plans that name a service. They could not be executed without it.
func (h *Handlers) plansWith(ctx context.Context, id string) (names []string, err error) {
	for cursor := ""; ; {
		plans, next, err := h.Home.ListPlans(ctx, page.Most, cursor)
		if err != nil {
			return nil, err
		}
		for i := range plans {
			if slices.ContainsFunc(plans[i].Spec.Items, func(item plan.Item) bool { return string(item.ServiceID) == id }) {
				names = append(names, v1alpha1.IDOf(&plans[i]))
			}
		}
		if cursor = next; next == "" {
			return names, nil
		}
	}
}

// maxNamed is how many plans an error names.
const maxNamed = 5

// named reads "plan a" or "the plans a, b and 3 more".
func named(what string, names []string) string {
	if len(names) == 1 {
		return what + " " + names[0]
	}
	text := "the " + what + "s " + strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func pronoun(names []string) string {
	if len(names) == 1 {
		return "it"
	}
	return "them"
}
