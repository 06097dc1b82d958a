package strategy

import (
	"strings"

	"slipway.io/slipway/release/strictyaml"
)

// FieldError says what is wrong with one field of a document.
type FieldError = strictyaml.FieldError

// Errors are all that is wrong with a document, in the order of its lines.
type Errors = strictyaml.Errors

// Reader reads the parts that documents about rollouts have in common, and collects what is wrong with them.
type Reader struct {
	found    *strictyaml.Findings
	warnings []string
}

// NewReader reads for a document with these findings.
func NewReader(found *strictyaml.Findings) *Reader { return &Reader{found: found} }

// Refuse records that a rule is broken. What is wrong with a field that could not be read was said already.
func (r *Reader) Refuse(field, format string, args ...any) { r.found.Refuse(0, field, format, args...) }

// Warn records what is legal but probably not meant.
func (r *Reader) Warn(field, reason string) {
	if !r.found.Unreadable(field) {
		r.warnings = append(r.warnings, FieldError{Field: field, Line: r.found.Line(field), Reason: reason}.Error())
	}
}

// Warnings are all warnings, each a sentence with its place.
func (r *Reader) Warnings() []string { return r.warnings }

// Name refuses a name that is absent, or illegal by one of the rules of Kubernetes.
func (r *Reader) Name(field, name string, rule func(string) []string) {
	if name == "" {
		r.Refuse(field, "is required")
		return
	}
	if problems := rule(name); len(problems) > 0 {
		r.Refuse(field, "%s is not a legal name: %s", strictyaml.Quote(name), strings.Join(problems, "; "))
	}
}

// oneOf reads a word that must be one of a few; "" when it is absent or another.
func oneOf[T ~string](v strictyaml.Value, words ...T) T {
	text := v.Text()
	if text == "" {
		return ""
	}
	known := make([]string, len(words))
	for i, word := range words {
		if string(word) == text {
			return word
		}
		known[i] = string(word)
	}
	v.CannotRead("must be one of %s, not %s%s", strings.Join(known, ", "), strictyaml.Quote(text), strictyaml.DidYouMean(text, known))
	return ""
}
