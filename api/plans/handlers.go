// Package plans answers the HTTP API of the catalogue's services, of deployment plans, and of tasks, the executions of plans.
package plans

import (
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/stream"
)

// Handlers answer the operations of openapi.yaml on services, plans and tasks.
type Handlers struct {
	*backend.Backend
	streams *stream.Hub
}

// New makes the handlers.
func New(b *backend.Backend, streams *stream.Hub) *Handlers { return &Handlers{b, streams} }
