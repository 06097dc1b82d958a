package hold

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/review"
)

// maxPart is the most bytes of JSON of a part of an object that is decoded, other than text: Slipway's status, and
// settings of a few words.
const maxPart = 256 << 10

// errTooLarge is an edit with a larger part.
var errTooLarge = errors.New("a part of it is too large")

// reader reads the parts of an object that decide about an edit.
type reader struct {
	*jsontext.Decoder
	kind Kind
}

// parts returns the parts of an object on which a decision depends, as if the object had no others: its name, Slipway's
// labels and annotations, the fields that hold, and what a status commands. In the place of a pod template is a digest
// of what affects pods.
func (k Kind) parts(raw []byte) (map[string]any, error) {
	if len(raw) == 0 {
		return nil, errors.New("an object is missing")
	}
	object, err := reader{review.NewDecoder(raw), k}.members(reader.part)
	if err != nil {
		return nil, fmt.Errorf("an object can't be read: %w", err)
	}
	return object, nil
}

// members reads an object with those of its members that one returns; ignored is what it returns for all others.
func (r reader) members(one func(reader, string) (any, error)) (map[string]any, error) {
	out := map[string]any{}
	err := review.Members(r.Decoder, func(name string) error {
		value, err := one(r, name)
		if _, skip := value.(ignored); err == nil && !skip {
			out[name] = value
		}
		return err
	})
	return out, err
}

// object is members for a value that may be no object: then it is decoded.
func (r reader) object(one func(reader, string) (any, error)) (any, error) {
	if r.PeekKind() != '{' {
		return r.decode()
	}
	return r.members(one)
}

// ignored is a value on which no decision depends.
type ignored struct{}

func (r reader) skip() (any, error) { return ignored{}, r.SkipValue() }

// decode decodes the next value.
func (r reader) decode() (value any, err error) {
	raw, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	if len(raw) > maxPart && raw.Kind() != '"' {
		return nil, fmt.Errorf("%w: it has %d bytes of JSON, and may have %d", errTooLarge, len(raw), maxPart)
	}
	err = utiljson.Unmarshal(raw, &value)
	return value, err
}

func (r reader) part(name string) (any, error) {
	switch name {
	case "metadata":
		return r.object(reader.metadata)
	case "spec":
		return r.object(reader.spec)
	case "status":
		return r.object(reader.status)
	}
	return r.skip()
}

func (r reader) metadata(name string) (any, error) {
	switch name {
	case "name":
		return r.decode()
	case "labels", "annotations":
		return r.object(reader.mark)
	}
	return r.skip()
}

// mark keeps what has a meaning for Slipway.
func (r reader) mark(name string) (any, error) {
	if strings.HasPrefix(name, Prefix) {
		return r.decode()
	}
	return r.skip()
}

func (r reader) spec(name string) (any, error) {
	switch {
	case name == "template":
		return r.object(reader.template)
	case slices.Contains([]string{"replicas", "updateStrategy"}, name),
		strings.HasPrefix(r.kind.Pointer+"/", "/spec/"+jsonpatch.Escape(name)+"/"):
		return r.decode()
	}
	return r.skip()
}

func (r reader) status(name string) (any, error) {
	switch name {
	case statusEngine:
		return r.decode()
	case "canaryStatus", "blueGreenStatus":
		return r.object(func(r reader, name string) (any, error) {
			if name == "currentStepState" || name == "nextStepIndex" {
				return r.decode()
			}
			return r.skip()
		})
	}
	return r.skip()
}

// template replaces the spec and the metadata of a pod template by digests: templates are only compared.
func (r reader) template(name string) (any, error) {
	switch {
	case name == "spec":
		raw, err := r.canonical()
		return digest.Of(string(raw)), err
	case name == "metadata" && r.PeekKind() == '{':
		raw, err := r.canonical()
		if err != nil {
			return nil, err
		}
		return templateMetadata(raw, r.kind.TemplateLabel)
	}
	return r.skip()
}

func (r reader) canonical() ([]byte, error) {
	raw, err := r.ReadValue()
	if err != nil {
		return nil, err
	}
	return review.Canonical(raw)
}

// templateMetadata returns metadata that is equal for templates whose metadata means the same for pods. raw is
// canonical; ignoredLabel is a label that means nothing.
func templateMetadata(raw []byte, ignoredLabel string) (any, error) {
	out := map[string]any{}
	var others []byte
	d := review.NewDecoder(raw)
	err := review.Members(d, func(name string) error {
		value, err := d.ReadValue()
		switch {
		case err != nil || name == "creationTimestamp":
		case name == "labels" || name == "annotations":
			leftOut := ""
			if name == "labels" {
				leftOut = ignoredLabel
			}
			var counted []byte
			if counted, err = membersBut(leftOut, value); len(counted) > 0 {
				out[name] = map[string]any{"": digest.Of(string(counted))}
			}
		default:
			others = appendMember(others, name, value)
		}
		return err
	})
	if len(others) > 0 {
		out["others"] = digest.Of(string(others))
	}
	return out, err
}

// membersBut returns the members of an object in canonical JSON, without one of them; nothing if the value is no
// object.
func membersBut(one string, object jsontext.Value) (counted []byte, err error) {
	if object.Kind() != '{' {
		return nil, nil
	}
	d := review.NewDecoder(object)
	err = review.Members(d, func(name string) error {
		value, err := d.ReadValue()
		if err == nil && name != one {
			counted = appendMember(counted, name, value)
		}
		return err
	})
	return counted, err
}

func appendMember(to []byte, name string, value jsontext.Value) []byte {
	quoted, _ := jsontext.AppendQuote(nil, name) // an error names invalid UTF-8, which is replaced
	return append(append(append(to, quoted...), value...), ',')
}
