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
	// FieldError is a problem with one field of a document.
	FieldError = strictyaml.FieldError
	// Errors are all problems of a document, in line order.
	Errors = strictyaml.Errors
)

// Reader reads the parts that rollout documents have in common, and collects their problems.
type Reader struct {
	found    *strictyaml.Findings
	warnings []string
	// stored means that the document is an object which the API server has accepted: what other controllers of its kind
	// ignore causes a warning, not an error.
	stored bool
}

// NewReader returns a Reader that adds to the findings of one document.
func NewReader(found *strictyaml.Findings) *Reader { return &Reader{found: found} }

// Refuse records a broken rule. It ignores a field that could not be read, since that error is already recorded.
func (r *Reader) Refuse(field, format string, args ...any) { r.found.Refuse(0, field, format, args...) }

// refuseUnlessStored refuses what a client must not send; for an object that is already stored it only warns.
func (r *Reader) refuseUnlessStored(field, format string, args ...any) {
	if r.stored {
		r.Warn(field, fmt.Sprintf(format, args...))
		return
	}
	r.Refuse(field, format, args...)
}

// Warn records what is legal but probably not intended.
func (r *Reader) Warn(field, reason string) {
	if !r.found.Unreadable(field) {
		r.warnings = append(r.warnings, FieldError{Field: field, Line: r.found.Line(field), Reason: reason}.Error())
	}
}

// Warnings returns all warnings, each a sentence with its field and line.
func (r *Reader) Warnings() []string { return r.warnings }

// Name refuses a name that is absent or that breaks the given Kubernetes naming rule.
func (r *Reader) Name(field, name string, rule func(string) []string) {
	if name == "" {
		r.Refuse(field, "is required")
		return
	}
	if problems := rule(name); len(problems) > 0 {
		r.Refuse(field, "%s is not a legal name: %s", strictyaml.Quote(name), strings.Join(problems, "; "))
	}
}

// name reads a name and refuses one that is absent or illegal.
func (r *Reader) name(m strictyaml.Mapping, key string, rule func(string) []string) string {
	name := m.Optional(key).Text()
	r.Name(m.Field(key).Path(), name, rule)
	return name
}

// required reads a text and refuses an absent one.
func (r *Reader) required(m strictyaml.Mapping, key, reason string) string {
	text := m.Optional(key).Text()
	if text == "" {
		r.Refuse(m.Field(key).Path(), "is required%s", reason)
	}
	return text
}

// listOf reads a list of at most `most` entries, each with read.
func listOf[T any](r *Reader, v strictyaml.Value, most int, what string,
	read func(i int, entry strictyaml.Value) T) []T {
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

// oneOf reads a value of an enumeration; "" if it is absent or unknown.
func oneOf[T ~string](v strictyaml.Value, words ...T) T {
	text := T(v.Text())
	if text == "" || slices.Contains(words, text) {
		return text
	}
	v.CannotRead("must be one of %s, not %s%s", strictyaml.List(words), strictyaml.Quote(string(text)),
		strictyaml.DidYouMean(string(text), words))
	return ""
}

// readEnum and readInteger overwrite a default if the field is present.
func readEnum[T ~string](v strictyaml.Value, to *T, words ...T) {
	if v.Present() {
		*to = oneOf(v, words...)
	}
}

func readInteger(v strictyaml.Value, to *int64, least, most int64) {
	if v.Present() {
		*to = v.Integer(least, most)
	}
}

// percentPattern matches a percentage as the documents write it: an integer with the percent sign.
var percentPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})%$`)

// parsePercent returns N of "N%"; ok is false for any other text and above 100.
func parsePercent(text string) (n int32, ok bool) {
	if !percentPattern.MatchString(text) {
		return 0, false
	}
	parsed, err := strconv.ParseInt(strings.TrimSuffix(text, "%"), 10, 32)
	return int32(parsed), err == nil && parsed <= 100
}

// percent reads a percentage; nil if it is absent or cannot be read.
func percent(v strictyaml.Value, least int32) *int32 {
	text := v.Text()
	if text == "" {
		return nil
	}
	n, ok := parsePercent(text)
	if !ok || n < least {
		v.CannotRead(`must be a share from "%d%%" to "100%%", with the sign, not %s`, least, strictyaml.Quote(text))
		return nil
	}
	return &n
}

// amount reads a number of pods or a percentage of them; nil if it is absent or cannot be read.
func amount(v strictyaml.Value, least int32) *intstr.IntOrString {
	if !v.Present() {
		return nil
	}
	number, text, isText := v.NumberOrText(math.MinInt64, math.MaxInt64)
	var result intstr.IntOrString
	switch n, ok := parsePercent(text); {
	case isText && (text == "" || !ok || n < least):
		v.CannotRead(`must be a number of pods, or a share from "%d%%" to "100%%", not %s`, least,
			strictyaml.Quote(text))
	case isText:
		result = intstr.FromString(text)
	case number < int64(least) || number > math.MaxInt32:
		v.CannotRead(`must be a number of pods from %d to %d, or a share such as "10%%", not %d`, least, math.MaxInt32,
			number)
	default:
		result = intstr.FromInt32(int32(number))
	}
	return &result
}
