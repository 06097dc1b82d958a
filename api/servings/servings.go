// Package servings implements the native HTTP API of servings and AppImages.
package servings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/strictyaml"
)

// Handlers implements the operations of openapi.yaml on servings.
type Handlers struct {
	*backend.Backend
	Streams *stream.Hub
}

// ListServings answers GET /api/v1/servings.
func (h *Handlers) ListServings(c echo.Context, params schema.ListServingsParams) error {
	reader := newServingReader(h)
	return answer.Objects(c, params.Limit, params.Cursor, h.Home.ListServings,
		func(kd *kuscia.KusciaDeployment) (serving.View, error) {
			return reader.view(c.Request().Context(), kd)
		})
}

// GetServing answers GET /api/v1/servings/{id}. Lists and events leave out the spec, which can be large.
func (h *Handlers) GetServing(c echo.Context, id schema.ServingID) error {
	return answer.Shared(c, h.Recent, answer.ObjectMaxAge, func(ctx context.Context) (view serving.View, err error) {
		kd, err := h.findServing(ctx, id)
		if err != nil {
			return view, err
		}
		shown, err := declared.Effective(kd)
		if err != nil {
			return view, err
		}
		view, err = newServingReader(h).view(ctx, kd)
		view.Spec = &shown.Spec
		return view, err
	})
}

func (h *Handlers) readServing(ctx context.Context, id string) (serving.View, error) {
	kd, err := h.findServing(ctx, id)
	if err != nil {
		return serving.View{}, err
	}
	return newServingReader(h).view(ctx, kd)
}

// findServing reads a serving, including one that is being deleted.
func (h *Handlers) findServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	if declared.CheckName(id) != nil {
		return nil, noSuchServing(id) // the name is illegal, and the API server's error would be less clear
	}
	kd, err := h.Home.GetServing(ctx, id)
	if failure.Is(err, failure.NotFound) {
		return nil, noSuchServing(id)
	}
	return kd, err
}

func noSuchServing(id string) error {
	return problem.NotFound.Because("serving %s does not exist: GET /api/v1/servings lists those that do", id)
}

// servingReader creates views of servings, and reads AppImages and queues that they share only once.
type servingReader struct {
	*Handlers
	viewContext serving.ViewContext
	// asked are the AppImages and domains that were read, including those that do not exist.
	asked map[string]bool
}

func newServingReader(h *Handlers) *servingReader {
	return &servingReader{Handlers: h, asked: map[string]bool{},
		viewContext: serving.ViewContext{Images: map[string]kuscia.AppImageSpec{}, Queues: map[string]string{}}}
}

func (r *servingReader) view(ctx context.Context, kd *kuscia.KusciaDeployment) (serving.View, error) {
	for _, party := range kd.Spec.Parties {
		if err := r.readImage(ctx, party.AppImageRef); err != nil {
			return serving.View{}, err
		}
		if err := r.readQueue(ctx, party.DomainID); err != nil {
			return serving.View{}, err
		}
	}
	view, err := serving.NewView(kd, r.viewContext)
	if op := view.Operation; op != nil && op.Workflow != nil {
		op.Workflow = r.WorkflowRef(op.Workflow.ID, op.Workflow.RunID)
	}
	view.Conditions = conditions.OfServing(view, kd.Status.Conditions)
	return view, err
}

// repeated reports whether something was asked for before.
func (r *servingReader) repeated(what string) bool {
	before := r.asked[what]
	r.asked[what] = true
	return before
}

func (r *servingReader) readImage(ctx context.Context, name string) error {
	if r.repeated("image "+name) || declared.CheckName(name) != nil {
		return nil
	}
	image, err := r.Home.GetAppImage(ctx, name)
	if err == nil {
		r.viewContext.Images[name] = image.Spec
	}
	return failure.Ignore(err, failure.NotFound)
}

func (r *servingReader) readQueue(ctx context.Context, domain string) error {
	if r.repeated("domain "+domain) || declared.CheckName(domain) != nil {
		return nil
	}
	queue, known, err := r.Home.Queue(ctx, domain)
	if known {
		r.viewContext.Queues[domain] = queue
	}
	return failure.Ignore(err, failure.Refused) // the younger of two parties with one queue is shown nevertheless
}

func (h *Handlers) writer() declared.Writer { return declared.Writer{Home: h.Home} }

// PutServing answers PUT /api/v1/servings/{id}.
func (h *Handlers) PutServing(c echo.Context, id schema.ServingID, params schema.PutServingParams) error {
	spec, err := input.DecodeNamed(c, "serving", id, declared.CheckName, strictyaml.Decode[kuscia.KusciaDeploymentSpec])
	if err != nil {
		return err
	}
	result, err := h.writer().PutServing(c.Request().Context(), declared.ServingRequest{ID: id, Spec: spec,
		AffinityMode: input.Text(params.AffinityMode), Generation: params.Generation})
	if refusal, is := errors.AsType[declared.Refusal](err); is {
		return problem.Refused.Listing(refusal, "serving %s cannot run", id)
	}
	return answerPut(c, result, err)
}

func answerPut(c echo.Context, result schema.PutDeclaredResult, err error) error {
	switch {
	case err != nil:
		return problem.RefusedIsMalformed(err)
	case result.Changed:
		return c.JSON(http.StatusAccepted, result)
	}
	return c.JSON(http.StatusOK, result)
}

// DeleteServing answers DELETE /api/v1/servings/{id}.
func (h *Handlers) DeleteServing(c echo.Context, id schema.ServingID) error {
	ctx := c.Request().Context()
	return answer.NoContent(c, failure.RetryOnConflict("serving "+id, func() error {
		kd, err := h.findServing(ctx, id)
		if err != nil {
			return err
		}
		return h.Home.DeleteServing(ctx, kd)
	}))
}

// ListAppImages answers GET /api/v1/appimages.
func (h *Handlers) ListAppImages(c echo.Context, params schema.ListAppImagesParams) error {
	return answer.Objects(c, params.Limit, params.Cursor, h.Home.ListAppImages,
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

// PutServingPolicy answers PUT /api/v1/servings/{id}/policy.
func (h *Handlers) PutServingPolicy(c echo.Context, id schema.ServingID) error {
	policy, err := input.DecodeValid(c, "the policy", decodePolicy)
	if err != nil {
		return err
	}
	var created, changed bool
	err = failure.RetryOnConflict("serving "+id, func() (err error) {
		created, changed, err = h.putPolicy(c.Request().Context(), id, policy)
		return err
	})
	return answer.Put(c, created, schema.PutServingPolicyResult{ID: id, Changed: changed}, err)
}

func decodePolicy(body []byte) (serving.Policy, strictyaml.Errors) {
	if len(body) == 0 { // a missing annotation means the default policy; a missing body means nothing
		return serving.Policy{}, strictyaml.Errors{{Reason: "there is no body: send {} for the default policy"}}
	}
	return serving.DecodePolicy(body)
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
		return false, false, problem.Refused.Listing(strangers, "the policy of serving %s cannot be saved", id)
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
