package plans

import (
	"context"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// ListPlans answers GET /api/v1/plans.
func (h *Handlers) ListPlans(c echo.Context, params schema.ListPlansParams) error {
	limit, err := page.Limit(params.Limit)
	if err != nil {
		return err
	}
	items, next, err := h.Home.ListPlans(c.Request().Context(), limit, input.Text(params.Cursor))
	if err != nil {
		return page.CursorError(err, params.Cursor)
	}
	list := schema.PlanList{Items: make([]schema.PlanSummary, len(items)), NextCursor: next}
	for i := range items {
		list.Items[i] = schema.PlanSummary{Name: v1alpha1.IDOf(&items[i]), Comment: items[i].Spec.Comment, Items: len(items[i].Spec.Items),
			Task: items[i].Status.Task, CreatedAt: items[i].CreationTimestamp.UTC()}
	}
	return c.JSON(http.StatusOK, list)
}

// GetPlan answers GET /api/v1/plans/{name}.
func (h *Handlers) GetPlan(c echo.Context, name schema.PlanName) error {
	form, err := answer.Type(c, answer.TypeJSON, answer.TypeYAML)
	if err != nil {
		return err
	}
	found, err := h.plan(c.Request().Context(), name)
	if err != nil {
		return err
	}
	if form == answer.TypeJSON {
		return c.JSON(http.StatusOK, found.Spec)
	}
	document, err := plan.Encode(found.Spec)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, answer.TypeYAML, document)
}

func (h *Handlers) plan(ctx context.Context, name string) (*v1alpha1.DeployPlan, error) {
	if catalog.ValidID(name) != nil {
		return nil, problem.NotFound.Because("plan %s does not exist", name)
	}
	return h.Home.GetPlan(ctx, name)
}

// PutPlan answers PUT /api/v1/plans/{name}.
func (h *Handlers) PutPlan(c echo.Context, name schema.PlanName) error {
	body, isJSON, err := input.Document(c)
	if err != nil {
		return err
	}
	if err := input.LegalID("plan", name); err != nil {
		return err
	}
	document, warnings, wrong := decodePlan(body, isJSON)
	if len(wrong) > 0 {
		return problem.WrongDocument("plan "+name, wrong)
	}
	refusals, err := h.resolve(c.Request().Context(), document)
	if err != nil {
		return err
	}
	created, changed, err := h.Home.PutPlan(c.Request().Context(), name, document)
	if err != nil {
		return problem.RefusedIsMalformed(err)
	}
	return c.JSON(answer.PutStatus(created), schema.PutPlanResult{Name: name, Changed: changed,
		Warnings: append(problem.Warnings(warnings), problem.Fields(append(refusals, plan.Unavailable(document)...))...)})
}

func decodePlan(body []byte, isJSON bool) (plan.Document, []plan.Warning, strictyaml.Errors) {
	document, warnings, wrong := plan.Decode(body)
	if len(wrong) == 0 {
		wrong = input.NotJSON(body, isJSON)
	}
	return document, warnings, wrong
}

// resolve says what of a plan the catalogue does not allow as it is now.
func (h *Handlers) resolve(ctx context.Context, document plan.Document) (strictyaml.Errors, error) {
	services, err := h.Home.GetServices(ctx, serviceIDs(document))
	if err != nil {
		return nil, err
	}
	return plan.Resolve(document, services), nil
}

func serviceIDs(document plan.Document) []plan.ServiceID {
	ids := make([]plan.ServiceID, 0, len(document.Items))
	for _, item := range document.Items {
		if item.ServiceID != "" {
			ids = append(ids, item.ServiceID)
		}
	}
	return ids
}

// ValidatePlan answers POST /api/v1/plans/validate.
func (h *Handlers) ValidatePlan(c echo.Context) error {
	body, isJSON, err := input.Document(c)
	if err != nil {
		return err
	}
	document, warnings, wrong := decodePlan(body, isJSON)
	result := schema.ValidateResult{Waves: []schema.Wave{}, Warnings: problem.Warnings(warnings)}
	if len(wrong) == 0 {
		result.Waves = waves(document)
	}
	document, sound := withoutWrong(document, wrong)
	refusals, err := h.resolve(c.Request().Context(), document)
	if err != nil {
		return err
	}
	for _, refusal := range refusals {
		if refusal.Item == 0 || sound[refusal.Item-1] {
			wrong = append(wrong, refusal)
		}
	}
	result.Warnings = append(result.Warnings, problem.Fields(plan.Unavailable(document))...)
	result.Errors = problem.Fields(wrong)
	result.Valid = len(wrong) == 0
	return c.JSON(http.StatusOK, result)
}

// withoutWrong blanks the items that have an error of their own, which leaves the others their numbers, and says which are sound. What a
// wrong item was meant to be nobody knows, so the catalogue has nothing to say of it.
func withoutWrong(document plan.Document, wrong strictyaml.Errors) (rest plan.Document, sound []bool) {
	rest = plan.Document{Comment: document.Comment, Items: slices.Clone(document.Items)}
	sound = slices.Repeat([]bool{true}, len(rest.Items))
	for _, e := range wrong {
		if e.Item > 0 && e.Item <= len(rest.Items) {
			rest.Items[e.Item-1], sound[e.Item-1] = plan.Item{}, false
		}
	}
	return rest, sound
}

func waves(document plan.Document) []schema.Wave {
	answer := []schema.Wave{}
	for _, wave := range document.Waves() {
		items := make([]schema.WaveItem, len(wave.Items))
		for i, n := range wave.Items {
			item := document.Items[n]
			items[i] = schema.WaveItem{Item: n + 1, ServiceID: string(item.ServiceID), Deployment: item.Deployment, ContainerExecMethod: item.MethodOrDefault()}
		}
		answer = append(answer, schema.Wave{Priority: wave.Priority, Items: items})
	}
	return answer
}

// DeletePlan answers DELETE /api/v1/plans/{name}.
func (h *Handlers) DeletePlan(c echo.Context, name schema.PlanName) error {
	ctx := c.Request().Context()
	for range backend.Attempts {
		found, err := h.plan(ctx, name)
		if err != nil {
			return err
		}
		live, err := h.liveTask(ctx, found)
		if err != nil {
			return err
		}
		if live != nil {
			return problem.Conflict.Because("plan %s cannot be deleted while its task %s is %s: stop the task first", name, live.id, live.state).About(live.id, nil)
		}
		err = h.Home.DeletePlan(ctx, name, found.ResourceVersion)
		if !failure.Is(err, failure.Conflict) {
			return answer.NoContent(c, err)
		}
	}
	return problem.Conflict.Because("plan %s keeps being changed by others: repeat", name)
}
