// Package backend is what the handlers of the HTTP API have in common behind them: the home cluster, and Temporal with the questions that
// are asked of it.
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
	"slipway.io/slipway/release/kruise/reference"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/store"
	"slipway.io/slipway/store/recent"
	"slipway.io/slipway/temporal/presence"
	"slipway.io/slipway/workflows"
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
	// Recent keeps answers for a moment, and Lists what Temporal's lists said; nil: nothing is kept.
	Recent, Lists *recent.Answers
	// Checks asks each party about many rollouts at once; nil: about one after the other.
	Checks *gather.Questions[workflows.RolloutPreflight, workflows.PreflightOutcome]
	// Beside says what else releases what Rollout objects name. None: nobody looks.
	Beside func(context.Context) (reference.Beside, error)
}

// BudgetSeconds is UnreachableBudget as workflows take it.
func (b *Backend) BudgetSeconds() int64 { return int64(b.UnreachableBudget / time.Second) }

// Presence says of each queue who polls it.
func (h *Backend) Presence(ctx context.Context, queues ...string) map[string]party.Presence {
	return presence.Finder{Temporal: h.Temporal, Namespace: h.Namespace}.Of(ctx, queues...)
}

// AbsentParty is a party whose worker did not answer, and what was heard instead.
type AbsentParty struct{ Name, Queue, Trouble string }

// WhoIsAbsent is the answer for parties that did not answer, each with what is known of its workers.
func (h *Backend) WhoIsAbsent(ctx context.Context, absent ...AbsentParty) []schema.FieldProblem {
	queues := map[string]bool{}
	for _, one := range absent {
		queues[one.Queue] = true
	}
	known := h.Presence(ctx, slices.Collect(maps.Keys(queues))...)
	problems := make([]schema.FieldProblem, len(absent))
	for i, one := range absent {
		problems[i] = schema.FieldProblem{Field: "party " + one.Name, Reason: one.Trouble}
		if found := known[one.Queue]; found.Reachable != party.Unknown {
			problems[i].Reason += "; " + found.Reason
		}
	}
	return problems
}
