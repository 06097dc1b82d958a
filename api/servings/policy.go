package servings

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/strictyaml"
)

// PutServingPolicy answers PUT /api/v1/servings/{id}/policy.
func (h *Handlers) PutServingPolicy(c echo.Context, id schema.ServingID) error {
	policy, err := readPolicy(c)
	if err != nil {
		return err
	}
	var created, changed bool
	err = failure.RetryOnConflict("serving "+id, func() (err error) {
		created, changed, err = h.putPolicy(c.Request().Context(), id, policy)
		return err
	})
	if err != nil {
		return problem.RefusedIsMalformed(err)
	}
	return c.JSON(answer.PutStatus(created), schema.PutServingPolicyResult{ID: id, Changed: changed})
}

func readPolicy(c echo.Context) (serving.Policy, error) {
	policy, wrong, err := input.Decode(c, func(body []byte) (serving.Policy, strictyaml.Errors) {
		if len(body) == 0 { // a missing annotation means the default policy; a missing body means nothing
			return serving.Policy{}, strictyaml.Errors{{Reason: "there is no body: send {} for the default policy"}}
		}
		return serving.DecodePolicy(body)
	})
	if err == nil && len(wrong) > 0 {
		err = problem.InvalidDocument("the policy", wrong)
	}
	return policy, err
}

func (h *Handlers) putPolicy(ctx context.Context, id string, policy serving.Policy) (created, changed bool, err error) {
	kd, err := h.findServing(ctx, id)
	if err != nil {
		return false, false, err
	}
	if kd.DeletionTimestamp != nil {
		return false, false, problem.Conflict.Because("serving %s is being deleted: it can no longer be changed", id)
	}
	var strangers []schema.FieldProblem
	for _, i := range policy.UnknownParties(kd.Spec.Parties) {
		strangers = append(strangers, schema.FieldProblem{Field: fmt.Sprintf("parties[%d]", i),
			Reason: policy.Parties[i] + " is not a party of the serving"})
	}
	if len(strangers) > 0 {
		return false, false, problem.Refused.Because("the policy of serving %s cannot be saved: %s", id,
			problem.Summary(strangers)).Listing(strangers)
	}
	text, err := json.Marshal(policy)
	if err != nil {
		return false, false, fmt.Errorf("policy of serving %s: %w", id, err)
	}
	former, there := kd.Annotations[serving.AnnotationPolicy]
	if stored, wrong := serving.DecodePolicy([]byte(former)); there && len(wrong) == 0 &&
		reflect.DeepEqual(stored, policy) {
		return false, false, nil
	}
	return !there, true, h.Home.AnnotateServing(ctx, kd, serving.AnnotationPolicy, string(text))
}
