package plans

import (
	"context"
	"slices"

	"github.com/labstack/echo/v4"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
)

// ListServices answers GET /api/v1/services.
func (h *Handlers) ListServices(c echo.Context, params schema.ListServicesParams) error {
	return page.AnswerObjects(c, params.Limit, params.Cursor, h.Home.ListServices,
		func(s *v1alpha1.ReleaseService) (schema.ServiceSummary, error) {
			return schema.ServiceSummary{ID: v1alpha1.IDOf(s), DisplayName: s.Spec.DisplayName,
				Workloads: s.Spec.Workloads,
				CreatedAt: s.CreationTimestamp.UTC()}, nil
		})
}

// GetService answers GET /api/v1/services/{id}.
func (h *Handlers) GetService(c echo.Context, id schema.ServiceID) error {
	return answer.Document(c, func() (catalog.Service, error) {
		found, err := h.service(c.Request().Context(), id)
		if err != nil {
			return catalog.Service{}, err
		}
		return found.Spec, nil
	}, func(service catalog.Service) ([]byte, error) { return yaml.Marshal(service) })
}

func (h *Handlers) service(ctx context.Context, id string) (*v1alpha1.ReleaseService, error) {
	if catalog.ValidID(id) != nil {
		return nil, problem.NotFound.Because("service %s does not exist", id)
	}
	return h.Home.GetService(ctx, id)
}

// PutService answers PUT /api/v1/services/{id}.
func (h *Handlers) PutService(c echo.Context, id schema.ServiceID) error {
	service, err := input.DecodeNamed(c, "service", id, catalog.ValidID, strategy.DecodeService)
	if err != nil {
		return err
	}
	created, changed, err := h.Home.PutService(c.Request().Context(), id, service)
	if err != nil {
		return problem.RefusedIsMalformed(err)
	}
	return c.JSON(answer.PutStatus(created), schema.PutServiceResult{ID: id, Changed: changed})
}

// DeleteService answers DELETE /api/v1/services/{id}.
func (h *Handlers) DeleteService(c echo.Context, id schema.ServiceID) error {
	ctx := c.Request().Context()
	if _, err := h.service(ctx, id); err != nil {
		return err
	}
	plans, err := h.plansUsing(ctx, id)
	if err != nil {
		return err
	}
	if len(plans) > 0 {
		return problem.Conflict.Because("service %s is used by %s: remove it there first, or delete the plans", id,
			nameList("plan", plans))
	}
	return answer.NoContent(c, h.Home.DeleteService(ctx, id))
}

// plansUsing returns the plans that name a service. They could not be executed without it.
func (h *Handlers) plansUsing(ctx context.Context, id string) (names []string, err error) {
	for cursor := ""; ; {
		plans, next, err := h.Home.ListPlans(ctx, page.MaxLimit, cursor)
		if err != nil {
			return nil, err
		}
		for i := range plans {
			if slices.ContainsFunc(plans[i].Spec.Items, func(item plan.Item) bool {
				return string(item.ServiceID) == id
			}) {
				names = append(names, v1alpha1.IDOf(&plans[i]))
			}
		}
		if cursor = next; next == "" {
			return names, nil
		}
	}
}

// maxNamed is the number of plans that an error names.
const maxNamed = 5

// nameList formats "plan a" or "the plans a, b and 3 more".
func nameList(what string, names []string) string {
	if len(names) == 1 {
		return what + " " + names[0]
	}
	return "the " + what + "s " + phrase.List(names, maxNamed)
}
