package workflows

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/plan"
)

// The longest actor, reason, key and front door that a verb may carry, in characters: they are kept in history and in the record.
const (
	MaxActor  = 200
	MaxReason = 2000
	MaxKey    = 200
	maxVia    = 32
)

// verbMenu is what one type of workflow takes from people: its verbs V, each with a request Q, by Signal and by Update.
type verbMenu[V ~string, Q any] struct {
	entries []menuEntry[V]
	// validate rejects what is malformed. What the state does not allow is accepted and answered with a refusal, since refusals belong to
	// the record.
	validate func(ctx workflow.Context, verb V, request Q) error
}

// menuEntry is a verb with what the signal menu of the Temporal UI says of it.
type menuEntry[V ~string] struct {
	verb        V
	description string
}

// offer lists each verb in the UI's signal menu and answers it as an Update, by ask. Both ways end in the same inbox.
func offer[V ~string, Q, A any](ctx workflow.Context, menu verbMenu[V, Q], ask func(ctx workflow.Context, verb V, request Q) (A, error)) error {
	for _, v := range menu.entries {
		// The interceptor takes these signals; asking for the channel is what puts the name and its description into the menu.
		workflow.GetSignalChannelWithOptions(ctx, string(v.verb), workflow.SignalChannelOptions{Description: v.description})
		err := workflow.SetUpdateHandlerWithOptions(ctx, string(v.verb), func(ctx workflow.Context, request Q) (A, error) {
			return ask(ctx, v.verb, request)
		}, workflow.UpdateHandlerOptions{Description: v.description, Validator: func(ctx workflow.Context, request Q) error {
			return menu.validate(ctx, v.verb, request)
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// verbSignal is a signal as it was read: a verb of the menu with its request, or why it is none.
type verbSignal[V ~string, Q any] struct {
	verb    V
	request Q
	// malformed says why the payload could not be read; "" when it could. unknown: there is no such verb.
	malformed string
	unknown   bool
}

// read reads a signal as its event comes in. Of a payload that is malformed nothing is kept.
func (menu verbMenu[V, Q]) read(ctx workflow.Context, in *interceptor.HandleSignalInput) verbSignal[V, Q] {
	s := verbSignal[V, Q]{verb: V(cell(in.SignalName, maxVerb))}
	known := slices.ContainsFunc(menu.entries, func(e menuEntry[V]) bool { return string(e.verb) == in.SignalName })
	if !known {
		s.unknown = true
		return s
	}
	var request Q
	err := decodeStrictly(in.Arg, &request)
	if err == nil {
		err = menu.validate(ctx, s.verb, request)
	}
	if err != nil {
		s.malformed = message(err)
		return s
	}
	s.request = request
	return s
}

// planMenu is what a DeployPlan takes.
var planMenu = verbMenu[plan.Verb, VerbRequest]{
	entries: []menuEntry[plan.Verb]{
		{plan.VerbPause, `Let the services that are being released finish, then hold back the rest. Payload: empty, or {"actor":"…","reason":"…","key":"…"}.`},
		{plan.VerbResume, `Go on after a pause or an interruption. Payload: empty, or {"actor":"…","reason":"…","key":"…"}.`},
		{plan.VerbStop, `Let the services that are being released finish, then end the task for good. Payload: empty, or {"actor":"…","reason":"…","key":"…"}.`},
	},
	validate: func(_ workflow.Context, _ plan.Verb, request VerbRequest) error { return validateVerb(request) },
}

// validateVerb rejects what is too long to be kept.
func validateVerb(r VerbRequest) error {
	for _, field := range []struct {
		name, value string
		most        int
	}{{"actor", r.Actor, MaxActor}, {"reason", r.Reason, MaxReason}, {"key", r.Key, MaxKey}, {"via", r.Via, maxVia}} {
		if length := utf8.RuneCountInString(field.value); length > field.most {
			return temporal.NewNonRetryableApplicationError(
				fmt.Sprintf("%s has %d characters: at most %d are kept", field.name, length, field.most), "Malformed", nil)
		}
	}
	return nil
}
