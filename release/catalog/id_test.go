package catalog

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidID(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, id, refusal string
	}{
		"Number":     {"the source document's IDs", "0111", ""},
		"Word":       {"letters of both cases, digits, dot and dash", "Order-1.b", ""},
		"Longest":    {"63 characters", strings.Repeat("a", 63), ""},
		"Empty":      {"nothing", "", "is empty"},
		"TooLong":    {"64 characters", strings.Repeat("a", 64), "at most 63"},
		"Slash":      {"it would be another path", "a/b", "is not a legal ID"},
		"Blank":      {"a blank", "a b", "is not a legal ID"},
		"Underscore": {"not among the legal characters", "a_b", "is not a legal ID"},
		"Foreign":    {"letters are ASCII", "订单", "is not a legal ID"},
		"Dots":       {"a path would normalise it away", "..", "is not a legal ID"},
		"Dash":       {"a command would read it as a flag", "-a", "begin and end"},
		"TrailDot":   {"no object has such a name", "a.", "begin and end"},
		"DotDash":    {"no object has such a name", "a.-b", "begin and end"},
		"LineBreak":  {"a line break at the end", "a\n", "is not a legal ID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireProblem(t, ValidID(test.id), test.refusal, test.reason)
		})
	}
}

func TestValidLabel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, label, refusal string }{
		"Word":    {"the source document's label", "label1", ""},
		"All":     {"every legal character", "A_b-c.1", ""},
		"Empty":   {"nothing", "", "is empty"},
		"Comma":   {"commas separate labels", "a,b", "is not a legal label"},
		"Dash":    {"begins with a dash", "-a", "begin and end"},
		"TooLong": {"64 characters", strings.Repeat("a", 64), "at most 63"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireProblem(t, ValidLabel(test.label), test.refusal, test.reason)
		})
	}
}

func TestValidParty(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, party, refusal string }{
		"Word":    {"a party is named after its organisation", "alice", ""},
		"Dots":    {"it may be a domain", "alice.example-1.com", ""},
		"Longest": {"63 characters", strings.Repeat("a", 63), ""},
		"TooLong": {"64 characters, which an object could have but no namespace", strings.Repeat("a", 64),
			"at most 63"},
		"Empty":   {"nothing", "", "is not a legal name"},
		"Capital": {"no object has such a name", "Alice", "is not a legal name"},
		"Slash":   {"it would be another path", "a/b", "is not a legal name"},
		"Quote":   {"it is used in queries to Temporal", "a'b", "is not a legal name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireProblem(t, ValidParty(test.party), test.refusal, test.reason)
		})
	}
}

func TestValidURL(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, url, refusal string }{
		"Plain":    {"the source document's address", "http://exapmle.zip", ""},
		"Whole":    {"everything a URL has", "https://files.local:8443/a%20b/app.zip?v=1&w=2#x", ""},
		"Case":     {"schemes are case-insensitive", "HTTP://files/app.zip", ""},
		"Address":  {"an IPv6 address", "http://[::1]:8080/app.zip", ""},
		"Relative": {"no host", "/app.zip", "is not an absolute URL"},
		"NoHost":   {"no host", "http:///app.zip", "is not an absolute URL"},
		"PortOnly": {"no host", "http://:80/app.zip", "is not an absolute URL"},
		"File":     {"a file of the worker's", "file:///etc/passwd", "must begin with http:// or https://"},
		"Blank":    {"a blank", "http://files/a b.zip", "has a blank"},
		"Broken":   {"a broken escape", "http://files/%zz", "is not a URL"},
		"Password": {"every reader would see it", "https://user:secret@files/app.zip", "contains a user or a password"},
		"User":     {"a user may be a token", "https://token@files/app.zip", "contains a user or a password"},
		"TooLong":  {"longer than servers accept", "http://files/" + strings.Repeat("a", 2048), "at most 2048"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := ValidURL(test.url, "http", "https")
			requireProblem(t, err, test.refusal, test.reason)
			if err != nil {
				require.NotContains(t, err.Error(), "secret", "an error does not quote a password")
			}
		})
	}
	require.NotContains(t, ValidURL("ftp://user:secret@files/a", "http").Error(), "secret")
	require.NotContains(t, ValidURL("http://user:secret@fi les/a", "http").Error(), "secret")
	require.NotContains(t, ValidURL("http://user:secret@files/%zz", "http").Error(), "secret")
}

func requireProblem(t *testing.T, err error, want, reason string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err, reason)
		return
	}
	require.ErrorContains(t, err, want, reason)
}
