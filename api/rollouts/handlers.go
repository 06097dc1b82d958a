// Package rollouts answers the HTTP API of rollouts.
package rollouts

import (
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/stream"
)

// Handlers answer the operations of openapi.yaml on rollouts.
type Handlers struct {
	*backend.Backend
	streams *stream.Hub
}

// New makes the handlers.
func New(b *backend.Backend, streams *stream.Hub) *Handlers { return &Handlers{b, streams} }
