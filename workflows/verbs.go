package workflows

import (
	"fmt"
	"unicode/utf8"

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

// verbDescriptions are what the signal menu of the Temporal UI says.
var verbDescriptions = []struct {
	verb        plan.Verb
	description string
}{
	{plan.VerbPause, `Let the services that are being released finish, then hold back the rest. Payload: empty, or {"actor":"…","reason":"…","key":"…"}.`},
	{plan.VerbResume, `Go on after a pause or an interruption. Payload: empty, or {"actor":"…","reason":"…","key":"…"}.`},
	{plan.VerbStop, `Let the services that are being released finish, then end the task for good. Payload: empty, or {"actor":"…","reason":"…","key":"…"}.`},
}

// offerVerbs lists each verb in the UI's signal menu and answers it as an Update. Both ways end in the same inbox.
func offerVerbs(ctx workflow.Context, box *inbox) error {
	for _, v := range verbDescriptions {
		// The interceptor takes these signals; asking for the channel is what puts the name and its description into the menu.
		workflow.GetSignalChannelWithOptions(ctx, string(v.verb), workflow.SignalChannelOptions{Description: v.description})
		err := workflow.SetUpdateHandlerWithOptions(ctx, string(v.verb), func(ctx workflow.Context, request VerbRequest) (VerbResponse, error) {
			c := &command{verb: v.verb, request: request}
			box.push(c)
			if err := workflow.Await(ctx, func() bool { return c.response != nil }); err != nil {
				return VerbResponse{}, err
			}
			return *c.response, nil
		}, workflow.UpdateHandlerOptions{Description: v.description, Validator: validateVerb})
		if err != nil {
			return err
		}
	}
	return nil
}

// validateVerb rejects what is malformed. What the state does not allow is accepted and answered with a refusal, since refusals
// belong to the record (design §4).
func validateVerb(_ workflow.Context, r VerbRequest) error {
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
