// Package parties implements the HTTP API of parties.
package parties

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// Handlers implements the operations of openapi.yaml on parties.
type Handlers struct {
	*backend.Backend
}

// ListParties answers GET /api/v1/parties: every Party object, and the party "default", which needs no object.
func (h *Handlers) ListParties(c echo.Context, params schema.ListPartiesParams) error {
	return answer.Objects(c, params.Limit, params.Cursor, h.partyPage,
		func(s *schema.PartyState) (schema.PartyState, error) { return *s, nil })
}

// partyPage returns one page of the parties; the cursor contains the last name of the previous page.
func (h *Handlers) partyPage(ctx context.Context, limit int, cursor string) (states []schema.PartyState, next string,
	err error) {
	after, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(after) > 0 && catalog.ValidParty(string(after)) != nil {
		return nil, "", answer.BadCursor()
	}
	objects, err := h.Home.ListParties(ctx)
	if err != nil {
		return nil, "", err
	}
	states = slices.DeleteFunc(withDefault(objects), func(s schema.PartyState) bool { return s.Name <= string(after) })
	if len(states) > limit {
		states = states[:limit]
		next = base64.RawURLEncoding.EncodeToString([]byte(states[limit-1].Name))
	}
	h.addPresence(ctx, states)
	return states, next, nil
}

// withDefault returns the parties of these objects and the party "default", sorted by name.
func withDefault(objects []v1alpha1.Party) []schema.PartyState {
	states := make([]schema.PartyState, 0, len(objects)+1)
	for i := range objects {
		states = append(states, partyOf(&objects[i], objects))
	}
	if !slices.ContainsFunc(states, func(s schema.PartyState) bool { return s.Name == catalog.DefaultParty }) {
		states = append(states, builtInParty())
	}
	slices.SortFunc(states, func(a, b schema.PartyState) int { return strings.Compare(a.Name, b.Name) })
	return states
}

// partyOf returns the state of a party, one of all.
func partyOf(object *v1alpha1.Party, all []v1alpha1.Party) schema.PartyState {
	state := schema.PartyState{Name: object.Name, Queue: catalog.QueueOf(object.Name, object.Spec.Queue),
		Namespace: object.Spec.Namespace, Labels: object.Spec.Labels,
		CreatedAt: answer.UTC(object.CreationTimestamp.Time)}
	if other := party.QueueHolder(*object, all); other != "" {
		state.Unusable = party.SharedQueue(state.Name, state.Queue, other)
	}
	return state
}

// builtInParty is the party "default" without a Party object.
func builtInParty() schema.PartyState {
	return schema.PartyState{Name: catalog.DefaultParty, Queue: catalog.PartyQueue(catalog.DefaultParty)}
}

// addPresence adds the workers of each party.
func (h *Handlers) addPresence(ctx context.Context, states []schema.PartyState) {
	var queues []string
	for _, state := range states {
		queues = append(queues, state.Queue)
	}
	found := h.Presence(ctx, queues...)
	for i := range states {
		setPresence(&states[i], found[states[i].Queue])
	}
}

func setPresence(s *schema.PartyState, p party.Presence) {
	s.Reachable, s.Reason, s.Workers = p.Reachable, p.Reason, make([]schema.PartyWorker, len(p.Workers))
	if s.ServedBy != "" {
		s.Reason = fmt.Sprintf(
			"%s is a namespace of the home cluster, and has no Party object: the party %s serves it; %s", s.Name,
			s.ServedBy, p.Reason)
	}
	if !p.LastSeenAt.IsZero() {
		s.LastSeenAt = answer.UTC(p.LastSeenAt)
	}
	for i, w := range p.Workers {
		s.Workers[i] = schema.PartyWorker{Identity: w.Identity, Host: w.Host, Build: w.Build, Policy: w.Policy,
			Account: w.Account.User, Guard: w.Account.Guard,
			StartedAt: w.StartedAt.UTC(), LastSeenAt: w.LastSeenAt.UTC()}
	}
}

// GetParty answers GET /api/v1/parties/{name}.
func (h *Handlers) GetParty(c echo.Context, name schema.PartyName) error {
	ctx := c.Request().Context()
	state, _, err := h.findParty(ctx, name)
	if err != nil {
		return err
	}
	states := []schema.PartyState{state}
	h.addPresence(ctx, states)
	return c.JSON(http.StatusOK, states[0])
}

// findParty reads a party: its object, or a party that needs no object; then object is nil.
func (h *Handlers) findParty(ctx context.Context, name string) (state schema.PartyState, object *v1alpha1.Party,
	err error) {
	if catalog.ValidParty(name) != nil {
		return state, nil, problem.NotFound.Because("party %s does not exist", name)
	}
	object, err = h.Home.GetParty(ctx, name)
	if err == nil {
		all, err := h.Home.ListParties(ctx)
		return partyOf(object, all), object, err
	}
	if !failure.Is(err, failure.NotFound) {
		return state, nil, err
	}
	if name == catalog.DefaultParty {
		return builtInParty(), nil, nil
	}
	queue, known, err := h.Home.FindQueue(ctx, name)
	if err != nil {
		return state, nil, err
	}
	if !known {
		return state, nil, problem.NotFound.Because(
			"party %s does not exist: create it (PUT /api/v1/parties/%s), or create a namespace of that name in the "+
				"home cluster", name, name)
	}
	return schema.PartyState{Name: name, Queue: queue, ServedBy: catalog.DefaultParty}, nil, nil
}

// PutParty answers PUT /api/v1/parties/{name}.
func (h *Handlers) PutParty(c echo.Context, name schema.PartyName) error {
	spec, err := input.DecodeNamed(c, "party", name, catalog.ValidParty, party.Decode)
	if err != nil {
		return err
	}
	created, changed, err := h.Home.PutParty(c.Request().Context(), name, spec)
	return answer.Put(c, created, schema.PutPartyResult{Name: name, Changed: changed}, err)
}

// DeleteParty answers DELETE /api/v1/parties/{name}.
func (h *Handlers) DeleteParty(c echo.Context, name schema.PartyName) error {
	ctx := c.Request().Context()
	return answer.NoContent(c, failure.RetryOnConflict("party "+name, func() error {
		state, object, err := h.findParty(ctx, name)
		if err != nil {
			return err
		}
		if object == nil {
			return nothingToDelete(state)
		}
		if err := h.partyInUse(ctx, name); err != nil {
			return err
		}
		return h.Home.DeleteParty(ctx, object)
	}))
}

func nothingToDelete(state schema.PartyState) error {
	if state.ServedBy != "" {
		return problem.Conflict.Because("party %s has no Party object that could be deleted: it is a namespace of "+
			"the home cluster, which the party %s serves", state.Name, state.ServedBy)
	}
	return problem.Conflict.Because("the party %s always exists, and has no Party object that could be deleted: its "+
		"worker polls queue %s", state.Name, state.Queue)
}

// partyInUse refuses while an open release names the party. Temporal's lists lag behind, so each listed workflow is
// described again.
func (h *Handlers) partyInUse(ctx context.Context, name string) error {
	attribute := workflows.AttributeParties.GetName()
	open := backend.OpenWorkflows{Backend: h.Backend, Query: fmt.Sprintf("(%s = '%s' OR %s = '%s')", attribute, name,
		attribute, workflows.CutMarker)}
	found, err := open.List(ctx)
	if err != nil {
		return err
	}
	for _, workflowID := range slices.Sorted(maps.Keys(found)) {
		described, err := h.Describe(ctx, workflowID)
		if err != nil {
			return err
		}
		if execution.IsOpen(described) {
			return problem.Conflict.Because("party %s cannot be deleted while the release %s, which %s, is running: "+
				"wait until it has ended, or stop it",
				name, workflowID, namesParty(found[workflowID], name)).HeldBy(workflowID)
		}
	}
	return nil
}

// namesParty describes how a workflow names the party.
func namesParty(info *workflowpb.WorkflowExecutionInfo, name string) string {
	var parties []string
	payload := info.GetSearchAttributes().GetIndexedFields()[workflows.AttributeParties.GetName()]
	if converter.GetDefaultDataConverter().FromPayload(payload, &parties) == nil && slices.Contains(parties, name) {
		return "names it"
	}
	return "names too many parties to list them and may name it"
}
