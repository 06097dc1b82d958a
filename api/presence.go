package api

import (
	"context"
	"maps"
	"slices"

	"slipway.io/slipway/api/presence"
	"slipway.io/slipway/release/party"
)

// presence says of each queue who polls it.
func (h *handlers) presence(ctx context.Context, queues ...string) map[string]party.Presence {
	return presence.Finder{Temporal: h.Temporal, Namespace: h.Namespace}.Of(ctx, queues...)
}

// absentParty is a party whose worker did not answer, and what was heard instead.
type absentParty struct{ name, queue, trouble string }

// whoIsAbsent is the answer for parties that did not answer, each with what is known of its workers.
func (h *handlers) whoIsAbsent(ctx context.Context, absent ...absentParty) []FieldProblem {
	queues := map[string]bool{}
	for _, one := range absent {
		queues[one.queue] = true
	}
	known := h.presence(ctx, slices.Collect(maps.Keys(queues))...)
	problems := make([]FieldProblem, len(absent))
	for i, one := range absent {
		problems[i] = FieldProblem{Field: "party " + one.name, Reason: one.trouble}
		if found := known[one.queue]; found.Reachable != party.Unknown {
			problems[i].Reason += "; " + found.Reason
		}
	}
	return problems
}
