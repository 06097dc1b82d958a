package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// PathMutate is where changes of workloads are held that Rollouts name.
const PathMutate = "/mutate"

// Gate is what the gate's endpoint needs.
type Gate struct {
	// Engine says that a user is the engine, whose edits pass.
	Engine func(user, namespace string) bool
	// Rollouts reads those of a namespace.
	Rollouts func(ctx context.Context, namespace string) ([]v1beta1.Rollout, error)
	// Publish is the endpoint's.
	Publish func(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
}

// NewGate is the endpoint that holds changes of workloads, for clusters that have no policies for it.
func NewGate(g Gate) Endpoint {
	return Endpoint{Path: PathMutate, Publish: g.Publish, Handler: answering(func(ctx context.Context, request []byte) ([]byte, error) {
		rollouts := func(namespace string) ([]v1beta1.Rollout, error) { return g.Rollouts(ctx, namespace) }
		return hold.Asked{Engine: g.Engine, Rollouts: rollouts}.Review(request)
	})}
}

// answering reads a request and answers it. What is no such request, or can't be answered, is refused.
func answering(review func(ctx context.Context, request []byte) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := io.ReadAll(r.Body)
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the request can't be read: "+err.Error(), status)
			return
		}
		answer, err := review(r.Context(), request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
}
