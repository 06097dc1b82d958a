package render

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"slipway.io/slipway/release/plan"
)

// TimeOr is the time, or the other one where it is not known.
func TimeOr(at *time.Time, other time.Time) time.Time {
	if at == nil || at.IsZero() {
		return other
	}
	return *at
}

// Because appends a reason, or a comment, where there is one.
func Because(reason string) string {
	if reason = OneLine(reason); reason == "" {
		return ""
	}
	return ": " + reason
}

// Count is a number with its noun: "1 party", "3 parties".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %s", n, Plural(noun))
}

// Fraction is "3/5".
func Fraction(n, of int) string { return fmt.Sprintf("%d/%d", n, of) }

// Plural is the word for several: "services", "parties", "matches".
func Plural(noun string) string {
	if stem, found := strings.CutSuffix(noun, "y"); found {
		return stem + "ies"
	}
	if strings.HasSuffix(noun, "ch") {
		return noun + "es"
	}
	return noun + "s"
}

// OrDash shows an empty cell as a dash.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// ShortDuration is a duration in its two largest units: 9s, 3m05s, 2h10m, 4d3h. Less than nothing, as between two clocks, is 0s.
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

// ReasonAndMessage is the word for it and the sentence, or what of the two there is.
func ReasonAndMessage(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}
	return reason + ": " + message
}

// DisplayWidth is how many columns of a terminal the text takes: Chinese characters take two, accents of their own none.
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

// padded fills the text with blanks up to that many columns.
func padded(text string, columns int) string {
	return text + strings.Repeat(" ", max(columns-DisplayWidth(text), 0))
}

// Clipped cuts the text to that many columns and marks the cut.
func Clipped(text string, columns int) string {
	if DisplayWidth(text) <= columns {
		return text
	}
	return beginning(text, columns-1) + "…"
}

// maxCell is how wide the sentence in a row of a table may be: an error with a URL and a digest would make the whole table unreadable.
const maxCell = 100

// Cell is a sentence in one line, cut for a row of a table. Whoever wants it whole gets the object itself.
func Cell(text string) string { return Clipped(OneLine(text), maxCell) }

// beginning is as much of the text as fits into that many columns.
func beginning(text string, columns int) string {
	used := 0
	for at, r := range text {
		if used += runeWidth(r); used > columns {
			return text[:at]
		}
	}
	return text
}

// OneLine makes text of any origin safe to print: line breaks and control characters, which could move the cursor, become blanks.
func OneLine(text string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(clean)
}

// After reads " after 3m05s", "" while one of the times is not known.
func After(from, to *time.Time) string {
	if from == nil || to == nil || from.IsZero() {
		return ""
	}
	return " after " + ShortDuration(plan.Lasted(*from, *to))
}

// Clock is a time as a person reads it today: the date is there when it is another.
func Clock(at, today time.Time) string {
	at = at.In(today.Location())
	if at.Format(time.DateOnly) != today.Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}

// Prose breaks the paragraphs of a text into lines of at most that many columns. Lines that begin with a blank are lists and tables, and
// stay as they are.
func Prose(text string, columns int) string {
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
