// Package input reads what requests have in common: bodies, small forms, keys and the header that names the front door.
package input

import (
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/workflows"
)

// The longest texts that are recorded, in characters.
const (
	MaxActor  = workflows.MaxActor
	MaxReason = workflows.MaxReason
	maxKey    = 255
)

// FrontDoor is what the caller says it is.
func FrontDoor(via *schema.Via) (string, error) {
	if via == nil {
		return string(schema.FrontDoorHTTP), nil
	}
	if !via.Valid() {
		return "", problem.Malformed.Because("the header Slipway-Via is %q: give http, cli or console, or leave it out", *via)
	}
	return string(*via), nil
}

// Text is the text of a parameter; "" when it is left out.
func Text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// Key is the key of a request, which may stand in its body or in its header.
func Key(inBody string, header *string) (string, error) {
	key := Text(header)
	switch {
	case header != nil && (key == "" || len(key) > maxKey):
		return "", problem.Malformed.Because("the header Idempotency-Key has %d bytes: give 1 to %d, or leave it out", len(key), maxKey)
	case header != nil && inBody != "" && inBody != key:
		return "", problem.Malformed.Because("the header Idempotency-Key and the body's key differ: give one of them")
	case header == nil:
		return inBody, nil
	}
	return key, nil
}

// MaxGate is the longest gate that a workflow looks at, in characters.
const MaxGate = 100

// LegalID refuses an ID or name that nothing can have.
func LegalID(what, id string) error {
	if err := catalog.ValidID(id); err != nil {
		return problem.Malformed.Because("the %s cannot be called so: %v", what, err)
	}
	return nil
}
