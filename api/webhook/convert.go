package webhook

import (
	"context"
	"time"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/kruise/conversion"
)

// PathConvert is where Rollouts are converted between their versions.
const PathConvert = "/convert"

// Definitions is where it is written down who converts Rollouts.
type Definitions interface {
	PublishConversion(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
	WatchConversion(ctx context.Context, changed func())
}

// NewConversion is the endpoint that converts Rollouts.
func NewConversion(definitions Definitions) Endpoint {
	return Endpoint{Path: PathConvert, Handler: answering(convert), Publish: definitions.PublishConversion,
		Watch: definitions.WatchConversion}
}

func convert(_ context.Context, request []byte) ([]byte, error) { return conversion.Review(request) }
