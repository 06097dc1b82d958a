package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// PathMutate is the path of the mutating webhook that holds changes of workloads named by Rollout objects.
const PathMutate = "/mutate"

// Gate configures the endpoint that holds workload changes.
type Gate struct {
	// Engine reports whether a user is the engine, whose changes are not held.
	Engine func(user, namespace string) bool
	// Rollouts lists the Rollout objects of a namespace.
	Rollouts func(ctx context.Context, namespace string) ([]v1beta1.Rollout, error)
	// Publish is Endpoint.Publish.
	Publish func(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
}

// NewGate returns the endpoint that holds changes of workloads, for clusters without mutating admission policies.
func NewGate(g Gate) Endpoint {
	return Endpoint{Path: PathMutate, Publish: g.Publish,
		Handler: reviewHandler(func(ctx context.Context, request []byte) ([]byte, error) {
			rollouts := func(namespace string) ([]v1beta1.Rollout, error) { return g.Rollouts(ctx, namespace) }
			return hold.Reviewer{Engine: g.Engine, Rollouts: rollouts}.Review(request)
		})}
}

// reviewHandler returns a handler that answers review requests. A request that is not a review, or cannot be answered,
// gets an error status.
func reviewHandler(review func(ctx context.Context, request []byte) ([]byte, error)) http.Handler {
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
