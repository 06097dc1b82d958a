package source_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/source"
)

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"https://host/path":                        "https://host/path",
		"https://host":                             "https://host",
		"HTTPS://user:secret@host:8443/a/b.zip":    "https://host:8443/a/b.zip",
		"https://token@host/a?sig=secret":          "https://host/a?…",
		"https://host/a?":                          "https://host/a?…",
		"https://host/a#secret":                    "https://host/a?…",
		"https://host/a%0ab":                       "https://host/a%0ab",
		"ssh://git@host/group/app.git":             "ssh://host/group/app.git",
		"git@host:secret/app.git":                  "(unreadable URL)",
		"https://us:er:secret@host/":               "https://host/",
		"https://user:sec%ret@host/":               "(unreadable URL)",
		"https://user:sec/ret@host/":               "(unreadable URL)",
		"https:user:secret@host":                   "(unreadable URL)",
		"https:///secret":                          "(unreadable URL)",
		"secret":                                   "(unreadable URL)",
		"":                                         "(unreadable URL)",
		"https://ho\nst/secret":                    "(unreadable URL)",
		"https://host\u202e/secret":                "(unreadable URL)",
		"https://[::1/secret":                      "(unreadable URL)",
		"https://user:secret@host:port?sig=secret": "(unreadable URL)",
	} {
		require.Equal(t, want, source.Redact(raw), raw)
	}
}

// A secret in the user info, the query or the fragment is never shown, whatever surrounds it; the result is a URL
// without any of these parts.
func FuzzRedact(f *testing.F) {
	f.Add("user", "host", "path", "q=")
	f.Add("", "[::1]:80", "%2e%2e/a b", "%zz")
	f.Fuzz(func(t *testing.T, user, host, path, query string) {
		require.NotPanics(t, func() { source.Redact(user + host + path + query) })
		if strings.ContainsAny(user+host, "/?#") || strings.ContainsAny(path, "?#") {
			return // the secrets would be in another place
		}
		shown := source.Redact("https://" + user + ":S3CRET@" + host + "/" + path + "?" + query + "S3CRET#S3CRET")
		require.NotContains(t, shown, "S3CRET")
		if shown == source.Unreadable {
			return
		}
		parsed, err := url.Parse(shown)
		require.NoError(t, err)
		require.Nil(t, parsed.User)
		require.Equal(t, "…", parsed.RawQuery)
		require.Empty(t, parsed.Fragment)
	})
}

func TestParseURL(t *testing.T) {
	for raw, says := range map[string]string{
		"https://host/app.zip":             "",
		"HTTP://Host.:8080/app.zip?sig=x":  "",
		"http://[::1]:8080/":               "",
		"https://user:secret@host/app.zip": "https://host/app.zip: the URL contains a user name or password",
		"https://@host/app.zip":            "the URL contains a user name or password",
		"ftp://host/app.zip?secret":        "ftp://host/app.zip?…: only http and https",
		"file:///etc/secret":               "(unreadable URL): only http and https",
		"/etc/secret":                      "only http and https",
		"https:secret":                     "names no host",
		"https:///secret":                  "names no host",
		"https://:80/secret":               "names no host",
		"https://host:0/":                  "port",
		"https://host:99999/":              "port",
		"https://host:secret/":             "not a valid URL",
		"https://ho st/secret":             "not a valid URL",
		"https://host\\@secret/":           "not a valid URL",
		"https://0x7f.1/":                  "notation that is not supported",
		"https://[fe80::1%25eth0]/":        "zones",
		"https://host/\nHeader: secret":    "not a valid URL",
		"https://xn--/":                    "",
		"https://\u2024\u2024/":            "not a valid",
		"https://127.0.0.1%20@host/":       "user name",
		"https://host%00.example/":         "not a valid URL",
		"https://host,other/":              "not a valid name",
	} {
		u, err := source.ParseURL(raw)
		if says == "" {
			require.NoError(t, err, raw)
			require.NotNil(t, u, raw)
			continue
		}
		require.ErrorContains(t, err, says, raw)
		require.NotContains(t, err.Error(), "secret", raw)
		require.True(t, failure.Is(err, failure.Refused), raw)
	}
}
