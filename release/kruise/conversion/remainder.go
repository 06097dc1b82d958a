package conversion

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// remainder is what is attached to an object: its form in the other version.
type remainder struct {
	// Digest is that of both forms: it says of which the form was made, and that nobody has edited it.
	Digest string `json:"digest"`
	form
	// Attached is what is attached to the form in the other version itself.
	Attached *string `json:"attached,omitempty"`
}

// newRemainder attaches a form in the other version to a form.
func newRemainder(to, other form, attached *string) *string {
	text := string(marshal(remainder{Digest: digest(to, other, attached), form: other, Attached: attached}))
	return &text
}

// readRemainder reads what is attached; nil where nothing is, or what nobody of ours wrote.
func readRemainder(text *string) *remainder {
	if text == nil {
		return nil
	}
	var raw map[string]any
	var r remainder
	// The values of the spec are those of an unstructured object: whole numbers are int64.
	if utiljson.Unmarshal([]byte(*text), &raw) != nil || json.Unmarshal([]byte(*text), &r) != nil || r.Digest == "" {
		return nil
	}
	r.Spec = raw["spec"]
	return &r
}

// isOf says that the remainder was made for a form as it is now.
func (r *remainder) isOf(f form) bool { return r.Digest == digest(f, r.form, r.Attached) }

func digest(to, other form, attached *string) string {
	sum := sha256.Sum256(marshal([]any{to, other, attached}))
	return hex.EncodeToString(sum[:])
}

// equal compares values as they are in JSON.
func equal(a, b any) bool { return string(marshal(a)) == string(marshal(b)) }

// marshal is the value as JSON, with the keys of objects in order.
func marshal(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err) // values of an unstructured object: they always marshal
	}
	return raw
}
