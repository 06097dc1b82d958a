package strictyaml

import (
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Text is a string that is not empty.
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

// FreeText is a string that people write for people: it may be empty, or without a value.
func (v Value) FreeText() string {
	if v.node != nil && v.node.Anchor == "" && v.node.Kind == yaml.ScalarNode && v.node.ShortTag() == nullTag {
		return ""
	}
	if !v.usable() {
		return ""
	}
	text, _ := v.text()
	return text
}

func (v Value) text() (text string, ok bool) {
	if v.node.Kind == yaml.ScalarNode {
		switch v.node.ShortTag() {
		// YAML 1.2 has no dates: what the library takes for one is a text.
		case stringTag, timestampTag:
			return v.node.Value, true
		case integerTag, floatTag, booleanTag:
			v.CannotRead("must be text, not %s: put it in quotes", describe(v.node))
			return "", false
		}
	}
	v.CannotRead("must be text, not %s", describe(v.node))
	return "", false
}

// decimal is a whole number as everybody reads it: no other base, no separators, no leading zero (which YAML 1.1 reads as octal).
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// Integer is a whole number of 64 bits from least to most, both included.
func (v Value) Integer(least, most int64) int64 {
	if !v.usable() {
		return 0
	}
	tag := v.node.ShortTag()
	if v.node.Kind != yaml.ScalarNode || tag != integerTag && tag != floatTag {
		hint := ""
		if tag == stringTag && decimal.MatchString(v.node.Value) {
			hint = ": leave out the quotes"
		}
		v.CannotRead("must be a whole number, not %s%s", describe(v.node), hint)
		return 0
	}
	if !decimal.MatchString(v.node.Value) {
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

// digits is a number without sign, fraction or exponent, of any length.
var digits = regexp.MustCompile(`^[0-9]+$`)

// Name is a text, or a whole number in the very spelling of the document: 0111 stays "0111".
func (v Value) Name() string {
	if !v.usable() {
		return ""
	}
	tag := v.node.ShortTag()
	if v.node.Kind == yaml.ScalarNode && (tag == integerTag || tag == floatTag && digits.MatchString(v.node.Value)) {
		return v.node.Value
	}
	if v.node.Kind == yaml.ScalarNode && (tag == floatTag || tag == booleanTag) {
		v.CannotRead("must be a whole number or text, not %s: if that is the name, put it in quotes", describe(v.node))
		return ""
	}
	if tag != stringTag && tag != timestampTag {
		v.CannotRead("must be a whole number or text, not %s", describe(v.node))
		return ""
	}
	return v.Text()
}
