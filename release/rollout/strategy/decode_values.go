package strategy

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/strictyaml"
)

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
	if !v.Present() {
		return nil
	}
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

// seconds reads a time in whole seconds; nil when it is absent or cannot be read.
func seconds(v strictyaml.Value, least int64) *int64 {
	if !v.Present() {
		return nil
	}
	n := v.Integer(least, math.MaxInt32)
	return &n
}
