// Package digest computes the digests that names, labels and annotations contain.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Of returns the SHA-256 of texts, with zero bytes between them, in hexadecimal.
func Of(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// maxLabel is the maximum length of a label's value (Kubernetes API).
const maxLabel = 63

// Label returns a text as the value of a label: itself, or its digest if it is too long.
func Label(text string) string {
	if len(text) <= maxLabel {
		return text
	}
	return Of(text)[:maxLabel-7]
}
