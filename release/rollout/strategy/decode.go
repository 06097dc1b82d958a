package strategy

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/strictyaml"
)

type (
	// FieldError says what is wrong with one field of a document.
	FieldError = strictyaml.FieldError
	// Errors are all that is wrong with a document, in the order of its lines.
	Errors = strictyaml.Errors
)

// Reader reads the parts that documents about rollouts have in common, and collects what is wrong with them.
type Reader struct {
	found    *strictyaml.Findings
	warnings []string
	// object says that the document is an object which an API server has taken: what other controllers of its kind pass over is warned of.
	object bool
}

// NewReader reads for a document with these findings.
func NewReader(found *strictyaml.Findings) *Reader { return &Reader{found: found} }

// Refuse records that a rule is broken. What is wrong with a field that could not be read was said already.
func (r *Reader) Refuse(field, format string, args ...any) { r.found.Refuse(0, field, format, args...) }

// refuseUnlessStored refuses what a document that is sent should not say, and warns of it where the document is an object that stands already.
func (r *Reader) refuseUnlessStored(field, format string, args ...any) {
	if r.object {
		r.Warn(field, fmt.Sprintf(format, args...))
		return
	}
	r.Refuse(field, format, args...)
}

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

// name reads a name, and refuses one that is absent or illegal.
func (r *Reader) name(m strictyaml.Mapping, key string, rule func(string) []string) string {
	name := m.Optional(key).Text()
	r.Name(m.Field(key).Path(), name, rule)
	return name
}

// required reads a text, and refuses one that is absent.
func (r *Reader) required(m strictyaml.Mapping, key, reason string) string {
	text := m.Optional(key).Text()
	if text == "" {
		r.Refuse(m.Field(key).Path(), "is required%s", reason)
	}
	return text
}

// listOf reads a list of at most so many entries, each by read.
func listOf[T any](r *Reader, v strictyaml.Value, most int, what string, read func(i int, entry strictyaml.Value) T) []T {
	entries := v.List()
	if len(entries) > most {
		r.Refuse(v.Path(), "has %d %s, of at most %d", len(entries), what, most)
	}
	var all []T
	for i, entry := range entries {
		all = append(all, read(i, entry))
	}
	return all
}

// oneOf reads a word that must be one of a few; "" when it is absent or another.
func oneOf[T ~string](v strictyaml.Value, words ...T) T {
	text := T(v.Text())
	if text == "" || slices.Contains(words, text) {
		return text
	}
	known := make([]string, len(words))
	for i, word := range words {
		known[i] = string(word)
	}
	v.CannotRead("must be one of %s, not %s%s", strings.Join(known, ", "), strictyaml.Quote(string(text)),
		strictyaml.DidYouMean(string(text), known))
	return ""
}

// readWord and readInteger read a field over its default, where it is there.
func readWord[T ~string](v strictyaml.Value, to *T, words ...T) {
	if v.Present() {
		*to = oneOf(v, words...)
	}
}

func readInteger(v strictyaml.Value, to *int64, least, most int64) {
	if v.Present() {
		*to = v.Integer(least, most)
	}
}

// percentPattern is a share as the documents write it: a whole number of percent, with its sign.
var percentPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})%$`)

// percentNumber is N of "N%"; ok is false for any other text, and above 100.
func percentNumber(text string) (n int32, ok bool) {
	if !percentPattern.MatchString(text) {
		return 0, false
	}
	parsed, err := strconv.ParseInt(strings.TrimSuffix(text, "%"), 10, 32)
	return int32(parsed), err == nil && parsed <= 100
}

// percent reads a share in percent; nil when it is absent or cannot be read.
func percent(v strictyaml.Value, least int32) *int32 {
	text := v.Text()
	if text == "" {
		return nil
	}
	n, ok := percentNumber(text)
	if !ok || n < least {
		v.CannotRead(`must be a share from "%d%%" to "100%%", with the sign, not %s`, least, strictyaml.Quote(text))
		return nil
	}
	return &n
}

// amount reads a number of pods, or a share of them in percent; nil when it is absent or cannot be read.
func amount(v strictyaml.Value, least int32) *intstr.IntOrString {
	if !v.Present() {
		return nil
	}
	number, text, isText := v.NumberOrText(math.MinInt64, math.MaxInt64)
	var result intstr.IntOrString
	switch n, ok := percentNumber(text); {
	case isText && (text == "" || !ok || n < least):
		v.CannotRead(`must be a number of pods, or a share from "%d%%" to "100%%", not %s`, least, strictyaml.Quote(text))
	case isText:
		result = intstr.FromString(text)
	case number < int64(least) || number > math.MaxInt32:
		v.CannotRead(`must be a number of pods from %d to %d, or a share such as "10%%", not %d`, least, math.MaxInt32, number)
	default:
		result = intstr.FromInt32(int32(number))
	}
	return &result
}
