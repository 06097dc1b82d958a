package conversion

import (
	"bytes"
	"encoding/json"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/jsonpatch"
)

// remainder is the attached annotation: the object's form in the other version.
type remainder struct {
	// Digest covers both forms and Attached. It matches only if the object has not been edited since the remainder was
	// made.
	Digest string `json:"digest"`
	form
	// Attached is the annotation that was attached to the form in the other version.
	Attached *string `json:"attached,omitempty"`
}

// newRemainder encodes a form in the other version, to attach it to the form to.
func newRemainder(to, other form, attached *string) *string {
	text := string(jsonpatch.Encode(remainder{Digest: digestOf(to, other, attached), form: other, Attached: attached}))
	return &text
}

// readRemainder decodes an attached annotation; nil if there is none or Slipway did not write it.
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

// isOf reports whether the remainder was made for the current state of a form.
func (r *remainder) isOf(f form) bool { return r.Digest == digestOf(f, r.form, r.Attached) }

func digestOf(to, other form, attached *string) string {
	return digest.Of(string(jsonpatch.Encode([]any{to, other, attached})))
}

// equal reports whether two values have the same JSON.
func equal(a, b any) bool { return bytes.Equal(jsonpatch.Encode(a), jsonpatch.Encode(b)) }
