package build

import (
	"regexp"
	"strings"
	"unicode"

	"slipway.io/slipway/release/phrase"
)

const (
	// longestLog is how many bytes of a failed build's log are kept, shortLog of one that succeeded: a task must fit
	// into one Temporal response, even if it builds many services.
	longestLog, shortLog = 2000, 400
	// longestLine is how many bytes of a line a message quotes.
	longestLine = 300
	ellipsis    = "…"
)

// TailLines is how many lines of a build's log are read.
const TailLines = 40

// Tail returns the end of a log for storage and display: without control characters, and without user, password and
// query in URLs.
func Tail(log string, failed bool) string {
	most := shortLog
	if failed {
		most = longestLog
	}
	log = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(Hide(log), "?")))
	if len(log) <= most {
		return log
	}
	log = log[len(log)-most+len(ellipsis):]
	if at := strings.IndexByte(log, '\n'); at >= 0 && at < len(log)-1 {
		log = log[at+1:]
	}
	return ellipsis + strings.ToValidUTF8(log, "")
}

var (
	userInfo = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://)[^\s/@]*@`)
	query    = regexp.MustCompile(`(?i)([a-z][a-z0-9+.-]*://[^\s?#"'<>]*)[?#][^\s"'<>]*`)
)

// Hide removes user, password and query from the URLs in a text.
func Hide(text string) string {
	return query.ReplaceAllString(userInfo.ReplaceAllString(text, "${1}"), "${1}?…")
}

// lastLine returns the last line of a text that is not blank.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(Tail(text, true)), "\n")
	return phrase.Cut(strings.TrimSpace(lines[len(lines)-1]), longestLine)
}
