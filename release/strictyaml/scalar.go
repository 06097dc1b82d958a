package strictyaml

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/duration"
)

// The short tags of YAML's types.
const (
	stringTag    = "!!str"
	integerTag   = "!!int"
	floatTag     = "!!float"
	booleanTag   = "!!bool"
	nullTag      = "!!null"
	timestampTag = "!!timestamp"
)

// Text returns a string that is not empty.
func (v Value) Text() string {
	if !v.usable() {
		return ""
	}
	text, ok := v.text()
	if ok && text == "" {
		v.CannotRead("is empty: write a value, or leave the key out")
	}
	return text
}

// FreeText returns a string for people: it may be empty or null.
func (v Value) FreeText() string {
	if v.isNull() || !v.usable() {
		return ""
	}
	text, _ := v.text()
	return text
}

func (v Value) text() (text string, ok bool) {
	switch v.tag() {
	// YAML 1.2 has no dates: what the library reads as one is a text.
	case stringTag, timestampTag:
		return v.node.Value, true
	case integerTag, floatTag, booleanTag:
		v.CannotRead("must be text, not %s: put it in quotes", describe(v.node))
	default:
		v.CannotRead("must be text, not %s", describe(v.node))
	}
	return "", false
}

// Bool returns a boolean.
func (v Value) Bool() bool {
	if !v.usable() {
		return false
	}
	if v.tag() != booleanTag {
		v.CannotRead("must be true or false, not %s", describe(v.node))
		return false
	}
	return strings.EqualFold(v.node.Value, "true")
}

// decimal matches an unambiguous integer: no other base, no separators, no leading zero (which YAML 1.1 reads as
// octal).
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// isQuotedNumber reports whether the value is a text that is a whole number.
func (v Value) isQuotedNumber() bool {
	return v.tag() == stringTag && decimal.MatchString(v.node.Value)
}

// Integer returns a 64-bit integer from least to most, both included. It may be in quotes: tools that fill in templates
// write it so.
func (v Value) Integer(least, most int64) int64 {
	if !v.usable() {
		return 0
	}
	switch tag := v.tag(); {
	case tag != integerTag && tag != floatTag && !v.isQuotedNumber():
		v.CannotRead("must be a whole number, not %s", describe(v.node))
		return 0
	case !decimal.MatchString(v.node.Value):
		v.CannotRead("must be a whole number in decimal digits without leading zeros, not %s", clip(v.node.Value))
		return 0
	}
	number, err := strconv.ParseInt(v.node.Value, 10, 64)
	if err != nil || number < least || number > most {
		v.CannotRead("must be from %d to %d, not %s", least, most, clip(v.node.Value))
		return 0
	}
	return number
}

// NumberOrText returns an integer from least to most, in quotes or not, or another text; isText reports which.
func (v Value) NumberOrText(least, most int64) (number int64, text string, isText bool) {
	if v.tag() == stringTag && !v.isQuotedNumber() {
		return 0, v.Text(), true
	}
	return v.Integer(least, most), "", false
}

// Seconds returns a duration in whole seconds, from least to most, both included: a number of seconds, in quotes or
// not, or a text such as 90s, 5m or 1h30m.
func (v Value) Seconds(least, most int64) int64 {
	if !v.usable() {
		return 0
	}
	lasts, err := duration.Parse(v.node.Value)
	seconds := int64(lasts / time.Second)
	switch tag := v.tag(); {
	case tag != stringTag && tag != integerTag || err != nil:
		v.CannotRead("must be a duration, such as %s, not %s", duration.Examples, describe(v.node))
		return 0
	case lasts%time.Second != 0 && seconds <= most:
		v.CannotRead("must be whole seconds, not %s", clip(v.node.Value))
		return 0
	case seconds < least || seconds > most:
		v.CannotRead("must be from %d to %d seconds, not %s", least, most, clip(v.node.Value))
		return 0
	}
	return seconds
}

// Duration returns a text that is to be read as a duration. A number of seconds, in quotes or not, gets its unit.
func (v Value) Duration() string {
	if v.tag() == stringTag && !v.isQuotedNumber() {
		return v.Text()
	}
	return strconv.FormatInt(v.Seconds(0, math.MaxInt64), 10) + "s"
}

// digits matches a number without sign, fraction or exponent, of any length.
var digits = regexp.MustCompile(`^[0-9]+$`)

// Name returns a text, or an integer exactly as spelt in the document: 0111 stays "0111".
func (v Value) Name() string {
	if !v.usable() {
		return ""
	}
	switch tag := v.tag(); {
	case tag == integerTag || tag == floatTag && digits.MatchString(v.node.Value):
		return v.node.Value
	case tag == stringTag || tag == timestampTag:
		return v.Text()
	case tag == floatTag || tag == booleanTag:
		v.CannotRead("must be a whole number or text, not %s: if that is the name, put it in quotes", describe(v.node))
	default:
		v.CannotRead("must be a whole number or text, not %s", describe(v.node))
	}
	return ""
}

// maxDepth is the maximum nesting depth of a value that is kept as JSON.
const maxDepth = 64

// Object returns a complete mapping as JSON; nil if it is absent or not a mapping. Repeated keys, anchors and aliases
// are errors too.
func (v Value) Object() []byte {
	if !v.is(yaml.MappingNode, "a mapping") {
		return nil
	}
	raw, err := json.Marshal(v.plain(0))
	if err != nil {
		v.CannotRead("cannot be written as JSON: %s", err)
		return nil
	}
	return raw
}

// plain returns the value in the types of encoding/json. Unlike elsewhere nulls are legal: they may have a meaning in
// the object.
func (v Value) plain(depth int) any {
	if v.isNull() || !v.usable() {
		return nil
	}
	if depth > maxDepth {
		v.CannotRead("is nested more than %d levels deep", maxDepth)
		return nil
	}
	switch v.node.Kind {
	case yaml.MappingNode:
		m, object := v.readMapping(nil), map[string]any{}
		for _, key := range m.keys {
			object[key] = m.Field(key).plain(depth + 1)
		}
		return object
	case yaml.SequenceNode:
		list := []any{}
		for _, entry := range v.List() {
			list = append(list, entry.plain(depth+1))
		}
		return list
	}
	return v.plainScalar()
}

func (v Value) plainScalar() (value any) {
	switch v.tag() {
	case stringTag, timestampTag:
		return v.node.Value
	case booleanTag, integerTag, floatTag:
		err := v.node.Decode(&value)
		if number, is := value.(float64); err == nil && !(is && (math.IsInf(number, 0) || math.IsNaN(number))) {
			return value
		}
	}
	v.CannotRead("must be text, a number, true or false, not %s", describe(v.node))
	return nil
}
