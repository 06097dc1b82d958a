// Package trafficroutings implements the HTTP API of TrafficRoutings.
package trafficroutings

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/labstack/echo/v4"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
)

// Handlers implements the operations of openapi.yaml on TrafficRoutings.
type Handlers struct {
	*backend.Backend
}

// ListTrafficRoutings answers GET /api/v1/trafficroutings.
func (h *Handlers) ListTrafficRoutings(c echo.Context, params schema.ListTrafficRoutingsParams) error {
	engine, err := h.Home.Engine(c.Request().Context())
	if err != nil {
		return err
	}
	return answer.Objects(c, params.Limit, params.Cursor,
		func(ctx context.Context, limit int, cursor string) ([]v1alpha1.TrafficRouting,
			string, error) {
			return h.Home.ListTrafficRoutings(ctx, input.Text(params.Namespace), limit, cursor)
		}, func(found *v1alpha1.TrafficRouting) (schema.TrafficRouting, error) {
			return trafficAnswer(found, engine)
		})
}

// GetTrafficRouting answers GET /api/v1/trafficroutings/{namespace}/{name}.
func (h *Handlers) GetTrafficRouting(c echo.Context, namespace schema.Namespace, name schema.TrafficRoutingName) error {
	ctx := c.Request().Context()
	engine, err := h.Home.Engine(ctx)
	if err != nil {
		return err
	}
	found, err := h.Home.GetTrafficRouting(ctx, namespace, name)
	if err != nil {
		return err
	}
	shown, err := trafficAnswer(found, engine)
	return answer.JSON(c, shown, err)
}

func trafficAnswer(found *v1alpha1.TrafficRouting, engine workload.Engine) (schema.TrafficRouting, error) {
	answer := schema.TrafficRouting{Namespace: found.Namespace, Name: found.Name, CreatedAt: found.CreatedAt,
		Status: schema.TrafficRoutingStatus{Phase: schema.TrafficRoutingStatusPhase(found.Status.Phase),
			Message: found.Status.Message, Holders: holdersOf(found, engine)}}
	if err := json.Unmarshal(found.Spec, &answer.Spec); err != nil {
		return answer, fmt.Errorf("TrafficRouting %s/%s: %w", found.Namespace, found.Name, err)
	}
	return answer, nil
}

// holdersOf returns the workflows that hold a TrafficRouting, with their engine if it is another one.
func holdersOf(found *v1alpha1.TrafficRouting, engine workload.Engine) []string {
	holders := []string{}
	for _, claim := range found.Status.Holders {
		holders = append(holders, workload.ParseHolder(claim).NameFor(engine))
	}
	return holders
}

// PutTrafficRouting answers PUT /api/v1/trafficroutings/{namespace}/{name}.
func (h *Handlers) PutTrafficRouting(c echo.Context, namespace schema.Namespace, name schema.TrafficRoutingName) error {
	document, wrong, err := input.Decode(c, trafficrouting.Decode)
	if err != nil {
		return err
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return problem.Malformed.Because("the name %s/%s is invalid: namespace and name are lower-case letters, "+
			"digits and dashes", namespace, name)
	}
	wrong = append(wrong, checkName("metadata.namespace", document.Namespace, namespace)...)
	wrong = append(wrong, checkName("metadata.name", document.Name, name)...)
	if len(wrong) > 0 {
		return problem.InvalidDocument("the traffic routing", wrong)
	}
	result := schema.PutTrafficRoutingResult{Namespace: namespace, Name: name,
		Warnings: append([]string{}, document.Warnings...)}
	var created bool
	err = failure.RetryOnConflict(nameOf(namespace, name), func() (err error) {
		created, result.Changed, err = h.putTrafficRouting(c.Request().Context(), namespace, name, document)
		return err
	})
	return answer.Put(c, created, result, err)
}

// nameOf returns the name of a TrafficRouting in messages.
func nameOf(namespace, name string) string { return "TrafficRouting " + namespace + "/" + name }

// checkName refuses a document whose name differs from its address.
func checkName(field, declared, address string) strictyaml.Errors {
	if declared == "" || declared == address {
		return nil
	}
	return strictyaml.Errors{{Field: field, Reason: fmt.Sprintf("is %s, but the address contains %s: make them equal",
		declared, address)}}
}

func (h *Handlers) putTrafficRouting(ctx context.Context, namespace, name string,
	document trafficrouting.Document) (created, changed bool, err error) {
	stored, err := h.Home.GetTrafficRouting(ctx, namespace, name)
	if failure.Is(err, failure.NotFound) {
		stored, err = nil, nil
	}
	if err != nil {
		return false, false, err
	}
	if stored != nil && len(stored.Status.Holders) > 0 && !sameSpec(stored.Spec, document.Spec) {
		if err := h.refuseHeld(ctx, stored, "changed"); err != nil {
			return false, false, err
		}
	}
	changed, err = h.Home.PutTrafficRouting(ctx, namespace, name, document.Spec, stored)
	return stored == nil, changed, err
}

// sameSpec reports whether two specs mean the same, regardless of formatting.
func sameSpec(a, b json.RawMessage) bool {
	left, wrongLeft := trafficrouting.DecodeSpec("", a)
	right, wrongRight := trafficrouting.DecodeSpec("", b)
	if len(wrongLeft) > 0 || len(wrongRight) > 0 {
		return false
	}
	return equality.Semantic.DeepEqual(left, right)
}

// DeleteTrafficRouting answers DELETE /api/v1/trafficroutings/{namespace}/{name}.
func (h *Handlers) DeleteTrafficRouting(c echo.Context, namespace schema.Namespace,
	name schema.TrafficRoutingName) error {
	ctx := c.Request().Context()
	return answer.NoContent(c, failure.RetryOnConflict(nameOf(namespace, name), func() error {
		found, err := h.Home.GetTrafficRouting(ctx, namespace, name)
		if err != nil {
			return err
		}
		if err := h.refuseHeld(ctx, found, "deleted"); err != nil {
			return err
		}
		return h.Home.DeleteTrafficRouting(ctx, found)
	}))
}

// refuseHeld refuses to change or delete a TrafficRouting while workflows that hold it still run.
func (h *Handlers) refuseHeld(ctx context.Context, found *v1alpha1.TrafficRouting, verb string) error {
	engine, err := h.Home.Engine(ctx)
	if err != nil {
		return err
	}
	living, err := h.LiveHolders(ctx, found.Status.Holders)
	if err != nil || len(living) == 0 {
		return err
	}
	held, problems := make([]string, len(living)), make([]schema.FieldProblem, len(living))
	for i, holder := range living {
		held[i] = holder.NameFor(engine)
		problems[i] = schema.FieldProblem{Field: "status.holders", Reason: "is held by " + held[i]}
	}
	return problem.Conflict.Because("TrafficRouting %s/%s cannot be %s while it is held by %s: wait until they have "+
		"ended, or stop them",
		found.Namespace, found.Name, verb, strings.Join(held, ", ")).HeldBy(held[0]).Listing(problems)
}
