package source

import (
	"net/url"
	"strings"
	"unicode"
)

// Unreadable replaces text that is not a URL and might contain a secret anywhere.
const Unreadable = "(unreadable URL)"

// Redact returns a URL that may be logged, reported and recorded: without user info, and with `?…` instead of a query
// or fragment, which may be signatures. Text that is not a URL with a host becomes Unreadable.
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
