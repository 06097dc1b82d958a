// Package trafficroutings answers the HTTP API of TrafficRoutings.
package trafficroutings

import (
	"slipway.io/slipway/api/backend"
)

// Handlers answer the operations of openapi.yaml on TrafficRoutings.
type Handlers struct {
	*backend.Backend
}

// New makes the handlers.
func New(b *backend.Backend) *Handlers { return &Handlers{b} }
