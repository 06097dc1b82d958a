package workflows

import (
	"fmt"

	"slipway.io/slipway/release/serving"
)

// ServingVerbRequest is the payload of every verb of an operation on a serving, as Update and as Signal. All fields are
// optional.
type ServingVerbRequest struct {
	VerbRequest
	// Party is the approved party; "" is the one that waits now. Gate is waitingFor.gate as the sender saw it; "" is
	// not checked. Both are for approve only.
	Party string `json:"party,omitempty"`
	Gate  string `json:"gate,omitempty"`
}

// servingMenu lists the verbs of a Serving.
var servingMenu = newMenu(func(verb serving.Verb, q ServingVerbRequest) serving.Command {
	return serving.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key, Party: q.Party,
		Gate: q.Gate}
}, validateServingVerb,
	menuEntry{serving.VerbApprove, `Let the party begin that waits for an approval. ` +
		`Payload: empty, or {"actor":"ann","reason":"looks good","party":"bob"}.`},
	menuEntry{serving.VerbPause, `Hold the operation: running steps continue, no other party begins. ` +
		`Payload: empty, or {"actor":"ann","reason":"lunch"}.`},
	menuEntry{serving.VerbResume, `Continue after a pause. Payload: empty, or {"actor":"ann"}.`},
	menuEntry{serving.VerbStop, `End an update: every party returns to the previous version. ` +
		`Payload: empty, or {"actor":"ann","reason":"bad numbers"}.`},
)

func validateServingVerb(verb serving.Verb, q ServingVerbRequest) error {
	switch {
	case verb != serving.VerbApprove && (q.Party != "" || q.Gate != ""):
		return fmt.Errorf("party and gate are for approve only: %s applies to all parties", verb)
	case len(q.Gate) > maxGate:
		return fmt.Errorf("gate has %d characters: send waitingFor.gate unchanged", len(q.Gate))
	case len(q.Party) > MaxParty:
		return fmt.Errorf("party has %d characters: send waitingFor.party unchanged", len(q.Party))
	}
	return validateVerb(q.VerbRequest)
}
