// Package servings implements the native HTTP API of servings and AppImages.
package servings

import (
	"context"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/page"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// Handlers implements the operations of openapi.yaml on servings.
type Handlers struct {
	*backend.Backend
	streams *stream.Hub
}

// New creates the handlers.
func New(b *backend.Backend, streams *stream.Hub) *Handlers { return &Handlers{b, streams} }

// ListServings answers GET /api/v1/servings.
func (h *Handlers) ListServings(c echo.Context, params schema.ListServingsParams) error {
	reader := newServingReader(h)
	return page.AnswerObjects(c, params.Limit, params.Cursor, h.Home.ListServings,
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

// servingReader creates views of servings, and reads the AppImages and queues that they share only once.
type servingReader struct {
	*Handlers
	viewContext serving.ViewContext
	seen        map[string]bool
}

func newServingReader(h *Handlers) *servingReader {
	return &servingReader{Handlers: h, seen: map[string]bool{},
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

// first reports whether a key is passed for the first time.
func (r *servingReader) first(key string) bool {
	known := r.seen[key]
	r.seen[key] = true
	return !known
}

func (r *servingReader) readImage(ctx context.Context, name string) error {
	if !r.first("image "+name) || declared.CheckName(name) != nil {
		return nil
	}
	image, err := r.Home.GetAppImage(ctx, name)
	if err == nil {
		r.viewContext.Images[name] = image.Spec
	}
	return failure.Ignore(err, failure.NotFound)
}

func (r *servingReader) readQueue(ctx context.Context, domain string) error {
	if !r.first("queue "+domain) || declared.CheckName(domain) != nil {
		return nil
	}
	queue, known, err := r.Home.Queue(ctx, domain)
	if known {
		r.viewContext.Queues[domain] = queue
	}
	return err
}
