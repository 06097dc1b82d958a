package kruise

import (
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Via is the front door of what an object asks for.
const Via = "kubectl"

// Release is a release that an object asks for.
type Release struct {
	Request strategy.Request
	Object  rollout.ObjectRef
	// Confirm is why somebody has to approve it before anything is done; "": nobody has to.
	Confirm string
}

// Answer is what became of a command. Closed says that no release was there to take it.
type Answer struct {
	Outcome audit.Outcome
	Message string
	Closed  bool
}
