package source

import (
	"net/url"
	"strings"
	"unicode"
)

// Unreadable stands in for what can't be read as a URL, and might be a secret in any part.
const Unreadable = "(unreadable URL)"

// Redact is a URL as it may be logged, reported and recorded: without user info, and with `?…` in place of a query or fragment, which may be
// signatures. What isn't a URL with a host is not shown at all.
func Redact(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme == "" || u.Opaque != "" || u.Hostname() == "" || !strings.HasPrefix(u.Path+"/", "/") {
		return Unreadable
	}
	shown := u.Scheme + "://" + u.Host + u.EscapedPath()
	if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return Unreadable
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		shown += "?…"
	}
	return shown
}
