// Package backend is what all handlers of the HTTP API use: the home cluster, and Temporal with the calls that several
// handlers share.
package backend

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/gather"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/store"
	"slipway.io/slipway/temporal/presence"
	"slipway.io/slipway/workflows"
)

// Backend holds the dependencies and settings of the handlers.
type Backend struct {
	// Home is the store of the engine's home cluster.
	Home *store.Store
	// Temporal is the client of the Temporal service that runs the releases; Namespace is its namespace ("": default).
	Temporal  client.Client
	Namespace string
	// TemporalUI is the address of the Temporal UI, "http://host:port"; "": releases have no link to it.
	TemporalUI string
	Log        *slog.Logger
	// MaxConcurrent is the maximum number of services of a task that are released at the same time (0: 50).
	MaxConcurrent int
	// MaxConcurrentWorkloads is the maximum number of workloads of a service that a PARALLEL release changes at the
	// same time (0: 100).
	MaxConcurrentWorkloads int
	// UnreachableBudget is how long a cluster may be unreachable before a release is interrupted (0: 120 s).
	UnreachableBudget time.Duration
	// Recent caches responses for a fraction of a second, Lists caches results of Temporal's lists; nil: nothing is
	// cached.
	Recent, Lists *recent.Cache
	// Checks batches the rollout checks of each party; nil: each is sent separately.
	Checks *gather.Batcher[workflows.RolloutPreflight, workflows.PreflightOutcome]
	// OtherController reports another controller that acts on the same Rollout objects; nil: not checked.
	OtherController func(context.Context) (reference.OtherController, error)
}

// BudgetSeconds is UnreachableBudget in seconds, the unit of workflow inputs.
func (b *Backend) BudgetSeconds() int64 { return int64(b.UnreachableBudget / time.Second) }

// Presence returns, for each queue, which workers poll it.
func (h *Backend) Presence(ctx context.Context, queues ...string) map[string]party.Presence {
	return presence.Finder{Temporal: h.Temporal, Namespace: h.Namespace}.Of(ctx, queues...)
}

// UnreachableParty is a party whose worker did not answer, its queue and the reason.
type UnreachableParty struct{ Name, Queue, Reason string }

// ExplainUnreachable returns one problem for each party that did not answer, with what is known about its workers.
func (h *Backend) ExplainUnreachable(ctx context.Context, absent ...UnreachableParty) []schema.FieldProblem {
	queues := map[string]bool{}
	for _, one := range absent {
		queues[one.Queue] = true
	}
	known := h.Presence(ctx, slices.Collect(maps.Keys(queues))...)
	problems := make([]schema.FieldProblem, len(absent))
	for i, one := range absent {
		problems[i] = schema.FieldProblem{Field: "party " + one.Name, Reason: one.Reason}
		if found := known[one.Queue]; found.Reachable != party.Unknown {
			problems[i].Reason += "; " + found.Reason
		}
	}
	return problems
}
