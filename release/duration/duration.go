// Package duration reads durations as people write them. Documents, flags and settings share it, so that one spelling
// is legal everywhere.
package duration

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Examples are spellings of a duration, for messages and help.
const Examples = "90 (in seconds), 90s, 5m or 1h30m"

// errMalformed is the error of every text that is not a duration. Callers say which spellings are legal.
var errMalformed = errors.New("is not a duration")

// number matches a number of seconds. Readers differ on whether one with a leading zero is octal.
var number = regexp.MustCompile(`^[-+]?(0|[1-9]\d*)$`)

// forms match 1w2d3h4m5s, P1DT4H and P2W, with any part left out.
var forms = []*regexp.Regexp{
	regexp.MustCompile(`^(?:(\d{1,18})w)?(?:(\d{1,18})d)?(?:(\d{1,18})h)?(?:(\d{1,18})m)?(?:(\d{1,18})s)?$`),
	regexp.MustCompile(`^P(?:(\d{1,18})W)?(?:(\d{1,18})D)?(?:T(?:(\d{1,18})H)?(?:(\d{1,18})M)?(?:(\d{1,18})S)?)?$`),
}

var units = []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}

// Parse reads a number of seconds (90), a text of Go (90s, 1h30m, 1.5h, 500ms), the same with weeks and days of 24
// hours (1d12h), or ISO 8601 (PT4H). A duration that is too long for the type is the longest of it, so that the
// caller's own limit refuses it.
func Parse(text string) (time.Duration, error) {
	if text == "" || text == "P" || strings.HasPrefix(text, "P") && strings.HasSuffix(text, "T") {
		return 0, errMalformed
	}
	if number.MatchString(text) {
		return seconds(text), nil
	}
	for _, form := range forms {
		if parts := form.FindStringSubmatch(text); parts != nil {
			return sum(parts[1:]), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errMalformed
	}
	return d, nil
}

// seconds returns a number of seconds; one that is out of range, whatever its length, is the nearest duration.
func seconds(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64) // out of range: the nearest number
	return time.Duration(min(max(n, math.MinInt64/int64(time.Second)), math.MaxInt64/int64(time.Second))) * time.Second
}

// sum adds the parts of a duration, a number of each unit.
func sum(parts []string) (all time.Duration) {
	for i, part := range parts {
		n, _ := strconv.ParseInt("0"+part, 10, 64) // digits only, too few to overflow
		if n > int64((math.MaxInt64-all)/units[i]) {
			return math.MaxInt64
		}
		all += time.Duration(n) * units[i]
	}
	return all
}
