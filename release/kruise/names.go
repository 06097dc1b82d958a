package kruise

import (
	"cmp"

	"slipway.io/slipway/release/audit"
)

// NameSource is where the name of the user of an action was read. Each of them is recorded by the API server if
// admission policies or a webhook do that; otherwise it is whatever a client wrote there.
type NameSource string

// The sources of names: the status of the Rollout, its annotations, and those of its workload.
const (
	NamedInStatus   NameSource = "status"
	NamedOnRollout  NameSource = "rollout"
	NamedOnWorkload NameSource = "workload"
)

// Named reports whether an action names a user.
func (n NextAction) Named() bool {
	return n.NameSource != "" && cmp.Or(n.By, n.Command.Actor) != "" || n.First != nil && n.First.Actor != ""
}

// Unverified returns the action with its users marked as unverified, for a source of names that nothing in the API
// server records. The mark is part of the name, so that every record of the command shows it.
func (n NextAction) Unverified() NextAction {
	n.By, n.Command.Actor = audit.Unverified(n.By), audit.Unverified(n.Command.Actor)
	if n.First != nil {
		first := *n.First
		first.Actor = audit.Unverified(first.Actor)
		n.First = &first
	}
	return n
}

// RefusedCommand returns the action with its command refused: the release records it with the reason, and restores the
// status.
func (n NextAction) RefusedCommand(why string) NextAction {
	n.Command.Refuse = "nothing verifies who sends commands in the status of Rollouts, and this engine requires it " +
		"(--require-gate): " + why + ". `slipway rollout " + string(n.Command.Verb) + "` works meanwhile"
	return n
}
