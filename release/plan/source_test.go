package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidRepository_AcceptsOrRefusesAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, address, refusal string }{
		"Source":      {"the source document's address", "http://git...", ""},
		"HTTPS":       {"over HTTPS", "https://git.local/shop/order.git", ""},
		"SSH":         {"over SSH", "ssh://git@git.local:2222/shop/order.git", ""},
		"Git":         {"Git's own protocol", "git://git.local/shop/order.git", ""},
		"Short":       {"Git's short form", "git@git.local:shop/order.git", ""},
		"ShortNoUser": {"the short form without a user", "git.local:shop/order.git", ""},
		"ShortHome":   {"a path in the user's home", "git@git.local:~git/order.git", ""},
		"File": {"a local path of the worker", "file:///srv/order.git",
			"must begin with http:// or https:// or ssh:// or git://"},
		"Path":        {"a local path of the worker", "/srv/order.git", "is not the address of a Git repository"},
		"Helper":      {"Git would run a command", "ext::sh -c id", "is not the address"},
		"HelperShort": {"Git would run a command", "ext::id", "is not the address"},
		"Option":      {"Git would take it for an option", "-oProxyCommand=id:x", "is not the address"},
		"OptionUser":  {"SSH would take it for an option", "-o@git.local:x", "is not the address"},
		"NoPath":      {"the path is required", "git@git.local:", "is not the address"},
		"Word":        {"the host is required", "order", "is not the address"},
		"Backslash":   {"a local path of the worker", `C:\order`, "backslash"},
		"Blank":       {"blanks are illegal", "git@git.local:a b", "blank"},
		"Password": {"a plan must not contain secrets", "https://git:secret@git.local/a.git",
			"contains a user or a password"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireProblem(t, validRepository(test.address), test.refusal, test.reason)
		})
	}
}

func TestValidBranch_AcceptsOrRefusesName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ reason, branch, refusal string }{
		"Master":      {"the source document's branch", "master", ""},
		"Parts":       {"parts and dots within", "feature/a.b-c_1", ""},
		"Foreign":     {"letters of any language", "功能", ""},
		"At":          {"an @ within", "a@b", ""},
		"Ref":         {"the long form is for Git itself", "refs/heads/master", "leave out refs/heads/"},
		"Dash":        {"Git would take it for an option", "-f", `begins with "-"`},
		"Head":        {"HEAD is not a branch", "HEAD", "Git reserves it"},
		"OnlyAt":      {"a synonym of HEAD", "@", "Git reserves it"},
		"TrailingDot": {"a rule of Git", "a.", `ends with "."`},
		"Dots":        {"a range of commits", "a..b", `".."`},
		"Blank":       {"a rule of Git", "a b", "contains a blank"},
		"Colon":       {"a pair of refs", "a:b", "one of ~ ^ :"},
		"Wildcard":    {"a pattern of several branches", "a*", "one of ~ ^ :"},
		"Reflog":      {"an entry of the reflog", "a@{1}", `"@{"`},
		"LeadSlash":   {"a part is empty", "/a", `with "/"`},
		"DoubleSlash": {"a part is empty", "a//b", `with "/"`},
		"HiddenPart":  {"a rule of Git", "a/.b", `begins with "."`},
		"LockPart":    {"a rule of Git", "a.lock/b", `ends with ".lock"`},
		"Control":     {"an invisible character", "a\x7fb", "a control character"},
		"TooLong":     {"the limit of a file name", strings.Repeat("a", 251), "at most 250"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireProblem(t, validBranch(test.branch), test.refusal, test.reason)
		})
	}
}

func requireProblem(t *testing.T, err error, want, reason string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err, reason)
		return
	}
	require.ErrorContains(t, err, want, reason)
}
