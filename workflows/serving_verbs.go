package workflows

import (
	"fmt"

	"slipway.io/slipway/release/serving"
)

// ServingVerbRequest is the payload of every verb of an operation on a serving, as Update and as Signal. All fields are optional.
type ServingVerbRequest struct {
	VerbRequest
	// Party is who is approved, "" whoever waits now; Gate is waitingFor.gate as the person saw it, "" is not checked. Both are for approve.
	Party string `json:"party,omitempty"`
	Gate  string `json:"gate,omitempty"`
}

// servingMenu is what a Serving takes.
var servingMenu = menuOf(func(verb serving.Verb, q ServingVerbRequest) serving.Command {
	return serving.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key, Party: q.Party, Gate: q.Gate}
}, validateServingVerb,
	menuEntry{serving.VerbApprove, `Have the party begin that waits for an approval. ` +
		`Payload: empty, or {"actor":"ann","reason":"looks good","party":"bob"}.`},
	menuEntry{serving.VerbPause, `Hold the operation: what has begun goes on, no other party begins. ` +
		`Payload: empty, or {"actor":"ann","reason":"lunch"}.`},
	menuEntry{serving.VerbResume, `Go on after a pause. Payload: empty, or {"actor":"ann"}.`},
	menuEntry{serving.VerbStop, `End an update: every party goes back to the version of before. ` +
		`Payload: empty, or {"actor":"ann","reason":"bad numbers"}.`},
)

func validateServingVerb(verb serving.Verb, q ServingVerbRequest) error {
	switch {
	case verb != serving.VerbApprove && (q.Party != "" || q.Gate != ""):
		return fmt.Errorf("party and gate are for approve only: %s is about all parties", verb)
	case len(q.Gate) > maxGate:
		return fmt.Errorf("gate has %d characters: send waitingFor.gate as it is", len(q.Gate))
	case len(q.Party) > MaxParty:
		return fmt.Errorf("party has %d characters: send waitingFor.party as it is", len(q.Party))
	}
	return validateVerb(q.VerbRequest)
}
