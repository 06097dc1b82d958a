package workloadops

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// gateLength is how many characters of the digest a gate has.
const gateLength = 16

// Gate is an opaque token of what a person approves: whoever approves sends back what they saw, and what has changed since has another one.
func Gate(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:gateLength]
}
