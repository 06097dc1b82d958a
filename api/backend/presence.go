package backend

import (
	"context"
	"maps"
	"slices"

	"slipway.io/slipway/api/presence"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/party"
)

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
