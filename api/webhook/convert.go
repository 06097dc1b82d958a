package webhook

import (
	"context"
	"time"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/kruise/conversion"
)

// PathConvert is the path of the conversion webhook for Rollout versions.
const PathConvert = "/convert"

// CRDs publishes the conversion webhook in the CustomResourceDefinition of Rollouts.
type CRDs interface {
	PublishConversion(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
	WatchConversion(ctx context.Context, changed func())
}

// NewConversion returns the endpoint that converts Rollouts.
func NewConversion(definitions CRDs) Endpoint {
	return Endpoint{Path: PathConvert, Handler: reviewHandler(convert), Publish: definitions.PublishConversion,
		Watch: definitions.WatchConversion}
}

func convert(_ context.Context, request []byte) ([]byte, error) { return conversion.Review(request) }
