package render

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
)

// TimeOrDefault returns the time, or other if the time is unknown.
func TimeOrDefault(at *time.Time, other time.Time) time.Time {
	if at == nil || at.IsZero() {
		return other
	}
	return *at
}

// ReasonSuffix returns ": " and the reason, or "" without a reason.
func ReasonSuffix(reason string) string {
	if reason = OneLine(reason); reason == "" {
		return ""
	}
	return ": " + reason
}

// Fraction returns, for example, "3/5".
func Fraction(n, of int) string { return fmt.Sprintf("%d/%d", n, of) }

// ShortDuration formats a duration in its two largest units: 9s, 3m05s, 2h10m, 4d3h. A negative one, caused by clock
// differences, is 0s.
func ShortDuration(d time.Duration) string {
	seconds := max(int64(d/time.Second), 0)
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm%02ds", seconds/60, seconds%60)
	case seconds < 86400:
		return fmt.Sprintf("%dh%02dm", seconds/3600, seconds/60%60)
	}
	return fmt.Sprintf("%dd%dh", seconds/86400, seconds/3600%24)
}

// ReasonAndMessage joins a condition's reason and message; either may be empty.
func ReasonAndMessage(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

// DisplayWidth returns the number of terminal columns of the text: Chinese characters take two, combining accents none.
func DisplayWidth(text string) int {
	columns := 0
	for _, r := range text {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// padRight appends spaces up to this number of columns.
func padRight(text string, columns int) string {
	return text + strings.Repeat(" ", max(columns-DisplayWidth(text), 0))
}

// Truncate cuts the text to this number of columns and marks the cut with an ellipsis.
func Truncate(text string, columns int) string {
	if DisplayWidth(text) <= columns {
		return text
	}
	return prefixOfWidth(text, columns-1) + "…"
}

// maxCell bounds the width of a sentence in a table: an error with a URL and a digest would make the table unreadable.
const maxCell = 100

// Cell returns a sentence on one line, cut for a table. `get` prints the complete text.
func Cell(text string) string { return Truncate(OneLine(text), maxCell) }

// prefixOfWidth returns the longest prefix that fits into this number of columns.
func prefixOfWidth(text string, columns int) string {
	used := 0
	for at, r := range text {
		if used += runeWidth(r); used > columns {
			return text[:at]
		}
	}
	return text
}

// OneLine makes untrusted text safe to print: it replaces line breaks and control characters, which could move the
// cursor, by spaces.
func OneLine(text string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(clean)
}

// DurationSuffix returns " after 3m05s", or "" if one of the times is unknown.
func DurationSuffix(from, to *time.Time) string {
	if from == nil || to == nil || from.IsZero() {
		return ""
	}
	return " after " + ShortDuration(plan.ShownDuration(*from, *to))
}

// Clock returns the time of day, preceded by the date if it is not today.
func Clock(at, today time.Time) string {
	at = at.In(today.Location())
	if at.Format(time.DateOnly) != today.Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}

// WrapText wraps the paragraphs of a text at this number of columns. Lines that begin with a space (lists and tables)
// are not changed.
func WrapText(text string, columns int) string {
	var lines, words []string
	flush := func() {
		line := ""
		for _, word := range words {
			if line != "" && DisplayWidth(line)+1+DisplayWidth(word) > columns {
				lines, line = append(lines, line), ""
			}
			line = strings.TrimPrefix(line+" "+word, " ")
		}
		if line != "" {
			lines = append(lines, line)
		}
		words = nil
	}
	for _, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == ' ' {
			flush()
			lines = append(lines, line)
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
	return strings.Join(lines, "\n")
}

var waits = map[rollout.WaitKind]string{
	rollout.WaitApproval: "approval",
	rollout.WaitTimer:    "the pause to end",
	rollout.WaitWindow:   "a release window",
	rollout.WaitPods:     "pods",
	rollout.WaitTraffic:  "routes to take effect",
	rollout.WaitParty:    "the party's cluster",
	rollout.WaitDrift:    "a decision about a change by another client",
	rollout.WaitResume:   "user action",
}

// WaitText returns what a release waits for, as in "waiting for approval".
func WaitText(kind rollout.WaitKind) string { return cmp.Or(waits[kind], string(kind)) }
