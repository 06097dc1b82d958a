package build

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
)

// Yield is the result of a build: an image or a package.
type Yield struct {
	// Image is "repository@sha256:<hex>".
	Image string `json:"image,omitempty"`
	// Package is the URL of a package, and SHA256 the digest of its bytes.
	Package string `json:"package,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

const (
	digestMark = "sha256:"
	// longestResult is the maximum length of a result in bytes: Kubernetes truncates termination messages to it.
	longestResult = 4096
)

var resultForm = regexp.MustCompile(`^(.*)([@ ])` + digestMark + `([0-9a-f]{64})$`)

// ParseYield parses the result of a build, which is the termination message of its first container. It is one line,
// optionally with a line break at its end, and nothing else:
//
//	image@sha256:<64 digits>      of a build of an image: the name is the pattern's, with or without its tag
//	URL sha256:<64 digits>        of a build of a package: the URL is the pattern's
//
// Digits are hexadecimal, in lower case. The error is a clause that says what is wrong.
func (r Request) ParseYield(message string) (Yield, error) {
	line := strings.TrimSuffix(strings.TrimSuffix(message, "\n"), "\r")
	switch {
	case line == "":
		return Yield{}, fmt.Errorf("it wrote no result: its first container has to write %s to its termination "+
			"message (/dev/termination-log)", r.form())
	case len(message) >= longestResult || strings.ContainsFunc(line, func(c rune) bool { return c < ' ' || c > '~' }):
		return Yield{}, fmt.Errorf("its result is not one line of plain text: its first container has to write %s "+
			"and nothing else to its termination message",
			r.form())
	}
	expected, parts := r.ExpectedResult(), resultForm.FindStringSubmatch(line)
	what, separator := r.yields()
	if parts == nil || parts[2] != separator {
		return Yield{}, fmt.Errorf("its result is %s, not %s", strictyaml.Quote(line), r.form())
	}
	name, repository := parts[1], source.WithoutTag(expected)
	switch {
	case name != expected && (r.Package != "" || name != repository):
		return Yield{}, fmt.Errorf("its result names the %s %s, but build.%s in the catalogue names %s", what,
			strictyaml.Quote(name), what, expected)
	case r.Package != "":
		return Yield{Package: name, SHA256: parts[3]}, nil
	}
	return Yield{Image: repository + "@" + digestMark + parts[3]}, nil
}

// yields returns what the build yields, and what separates its name from its digest.
func (r Request) yields() (what, separator string) {
	if r.Package != "" {
		return "package", " "
	}
	return "image", "@"
}

// form returns the expected format of the result.
func (r Request) form() string {
	_, separator := r.yields()
	return r.ExpectedResult() + separator + digestMark + "…"
}

// String returns the result in the form that ParseYield reads.
func (y Yield) String() string {
	if y.Image != "" {
		return y.Image
	}
	return y.Package + " " + digestMark + y.SHA256
}

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
	// without user, password and query of URLs
	log = query.ReplaceAllString(userInfo.ReplaceAllString(log, "${1}"), "${1}?…")
	log = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(log, "?")))
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

// lastLine returns the last line of a text that is not blank.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(Tail(text, true)), "\n")
	return phrase.Cut(strings.TrimSpace(lines[len(lines)-1]), longestLine)
}
