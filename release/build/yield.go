package build

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"slipway.io/slipway/release/phrase"
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
	digestMark  = "sha256:"
	digestChars = 64
	// longestResult is the maximum length of a result in bytes: Kubernetes truncates termination messages to it.
	longestResult = 4096
)

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
	separator := "@"
	if r.Package != "" {
		separator = " "
	}
	at := strings.LastIndex(line, separator)
	name, digest, ok := "", "", false
	if at >= 0 {
		name = line[:at]
		digest, ok = strings.CutPrefix(line[at+1:], digestMark)
	}
	if !ok || !isDigest(digest) {
		return Yield{}, fmt.Errorf("its result is %s, not %s", strictyaml.Quote(line), r.form())
	}
	if r.Package != "" {
		if name != r.ExpectedResult() {
			return Yield{}, fmt.Errorf("its result names the package %s, but build.package in the catalogue names %s",
				strictyaml.Quote(name), r.ExpectedResult())
		}
		return Yield{Package: name, SHA256: digest}, nil
	}
	repository := withoutTag(r.ExpectedResult())
	if name != r.ExpectedResult() && name != repository {
		return Yield{}, fmt.Errorf("its result names the image %s, but build.image in the catalogue names %s",
			strictyaml.Quote(name), r.ExpectedResult())
	}
	return Yield{Image: repository + "@" + digestMark + digest}, nil
}

// form returns the expected format of the result.
func (r Request) form() string {
	if r.Package != "" {
		return r.ExpectedResult() + " " + digestMark + "…"
	}
	return r.ExpectedResult() + "@" + digestMark + "…"
}

// isDigest reports whether a text is a SHA-256 in lower-case hexadecimal digits.
func isDigest(text string) bool {
	return len(text) == digestChars && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'f')
	})
}

// withoutTag returns the repository of an image without a digest. A colon before a slash belongs to a registry's port.
func withoutTag(image string) string {
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		return image[:at]
	}
	return image
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
