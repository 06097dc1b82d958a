// Package backend is what the handlers of the HTTP API have in common behind them: the home cluster, and Temporal with the questions that
// are asked of it.
package backend

import (
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"

	"slipway.io/slipway/store"
)

// Backend is what the front door works with.
type Backend struct {
	// Home is the engine's home cluster.
	Home *store.Store
	// Temporal is where releases run, Namespace its namespace ("": default).
	Temporal  client.Client
	Namespace string
	// TemporalUI is the address of the Temporal UI, "http://host:port"; "": releases carry no link to it.
	TemporalUI string
	Log        *slog.Logger
	// MaxConcurrent is how many services of one task are released at once at most (0: 50).
	MaxConcurrent int
	// MaxConcurrentWorkloads is how many workloads of one service a PARALLEL release has under way at once at most (0: 100).
	MaxConcurrentWorkloads int
	// UnreachableBudget is how long a cluster may be out of reach before a release is interrupted (0: 120 s).
	UnreachableBudget time.Duration
}

// BudgetSeconds is UnreachableBudget as workflows take it.
func (b *Backend) BudgetSeconds() int64 { return int64(b.UnreachableBudget / time.Second) }
