package webhook

import (
	"context"
	"time"

	registration "k8s.io/api/admissionregistration/v1"
	authorization "k8s.io/api/authorization/v1"

	"slipway.io/slipway/release/author"
)

// PathAuthors is the path of the webhook that checks authors of Rollouts and TrafficRoutings.
const PathAuthors = "/authors"

// Authors configures the endpoint that checks whether the authors of Rollouts and TrafficRoutings may change what these
// refer to.
type Authors struct {
	// Engine reports whether a user is the engine, whose edits pass.
	Engine func(user, namespace string) bool
	// May asks the API server whether a user has a permission.
	May func(ctx context.Context, question authorization.SubjectAccessReviewSpec) (bool, error)
	// Publish is Endpoint.Publish.
	Publish func(ctx context.Context, client registration.WebhookClientConfig) (again time.Duration, err error)
}

// NewAuthors returns the endpoint, for clusters without validating admission policies.
func NewAuthors(a Authors) Endpoint {
	handler := editReviews("make the object smaller", func(ctx context.Context) reviewer {
		return author.Reviewer{Engine: a.Engine,
			May: func(question authorization.SubjectAccessReviewSpec) (bool, error) { return a.May(ctx, question) }}
	})
	return Endpoint{Path: PathAuthors, Handler: handler, Certificate: true, Publish: a.Publish}
}
