package audit

import (
	"encoding/hex"

	"slipway.io/slipway/release/digest"
)

// gateLength is the length of a gate, in characters of the digest.
const gateLength = 16

// Gate returns an opaque token for the state that an approver approves. The approver sends it back; if the state has
// changed since, the gate differs.
func Gate(parts ...string) string { return digest.Of(parts...)[:gateLength] }

// IsGate reports whether a text has the form of a gate.
func IsGate(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == gateLength
}
