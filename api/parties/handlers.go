// Package parties answers the HTTP API of parties.
package parties

import (
	"slipway.io/slipway/api/backend"
)

// Handlers answer the operations of openapi.yaml on parties.
type Handlers struct {
	*backend.Backend
}

// New makes the handlers.
func New(b *backend.Backend) *Handlers { return &Handlers{b} }
