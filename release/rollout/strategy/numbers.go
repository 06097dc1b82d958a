package strategy

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/strictyaml"
)

// Percent reads a percentage: 20%, or 20, in quotes or not; nil if it is absent or cannot be read.
func Percent(v strictyaml.Value, least int32) *int32 {
	if !v.Present() {
		return nil
	}
	number, text, isText := v.NumberOrText(math.MinInt64, math.MaxInt64)
	if isText {
		number = percentOf(text)
	}
	switch {
	case v.Unreadable():
		return nil
	case number < int64(least) || number > 100:
		v.CannotRead(`must be a share from %d%% to 100%%, not %s`, least, shown(number, text, isText))
		return nil
	}
	return new(int32(number))
}

// percentOf returns N of "N%", a whole number from 0; -1 for any other text.
func percentOf(text string) int64 {
	digits, signed := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 31)
	if !signed || err != nil || strconv.FormatUint(n, 10) != digits {
		return -1
	}
	return int64(n)
}

// shown returns a number or text as the document has it, for messages.
func shown(number int64, text string, isText bool) string {
	if isText {
		return strictyaml.Quote(text)
	}
	return strconv.FormatInt(number, 10)
}

// amount reads a number of pods, in quotes or not, or a percentage of them; nil if it is absent or cannot be read.
func amount(v strictyaml.Value, least int32) *intstr.IntOrString {
	if !v.Present() {
		return nil
	}
	number, text, isText := v.NumberOrText(math.MinInt64, math.MaxInt64)
	var result intstr.IntOrString
	switch n := percentOf(text); {
	case v.Unreadable():
	case isText && (n < int64(least) || n > 100):
		v.CannotRead(`must be a number of pods, or a share from %d%% to 100%%, not %s`, least, strictyaml.Quote(text))
	case isText:
		result = intstr.FromString(text)
	case number < int64(least) || number > math.MaxInt32:
		v.CannotRead(`must be a number of pods from %d to %d, or a share such as 10%%, not %d`, least, math.MaxInt32,
			number)
	default:
		result = intstr.FromInt32(int32(number))
	}
	return &result
}
