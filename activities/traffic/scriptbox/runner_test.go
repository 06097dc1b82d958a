package scriptbox_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/traffic/scriptbox"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/rollout/traffic/sandbox"
	"slipway.io/slipway/test/race"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == scriptbox.Argument {
		os.Exit(scriptbox.Child(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// TestRunner_StopsMisbehavingScripts stops a script that exceeds a limit, and reports its line.
func TestRunner_StopsMisbehavingScripts(t *testing.T) {
	t.Parallel()
	runner, err := scriptbox.NewRunner(nil)
	require.NoError(t, err)
	cases := map[string]struct {
		reason, source, text string
		line                 int
	}{
		"loops": {"time is limited", "local i = 0\nwhile true do\n  i = i + 1\nend", "it ran longer than 1s", -1},
		"catches": {"a script cannot catch the abort", "while true do pcall(function() while true do end end) end",
			"it ran longer than 1s", 1},
		"allocates": {"memory is limited", "local t = {}\nwhile true do\n  t[#t+1] = {1, 2, 3}\nend",
			"it needed more than 64 MiB of memory", -2},
		// on a machine that allocates memory slowly, the time limit is reached first
		"doubles": {"memory is limited", "local s = 'x'\nwhile true do s = s .. s end", "it ", -2},
		"backtracks": {"a single long call is aborted as well",
			"local s = string.rep('a', 40000)\nreturn string.find(s, '(a*)*(a*)*(a*)*(a*)*b')", "it ran longer than 1s",
			-1},
		"big results": {"the result is limited", "local t = {}\nfor i = 1, 30 do t[i] = string.rep('x', 60000) " +
			"end\nreturn t", "the most is 1048576", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.reason == "memory is limited" {
				race.SkipBounds(t)
			}
			began := time.Now()
			answer, err := runner.Run(t.Context(),
				sandbox.Request{Script: "mine.lua", Source: tc.source, Input: []byte(`{}`)})
			require.NoError(t, err)
			require.NotNil(t, answer.Trouble, tc.reason)
			require.Contains(t, answer.Trouble.Reason, tc.text, tc.reason)
			require.Regexp(t, "^(it needed more than 64 MiB of memory|it ran longer than 1s|.* the most is 1048576.*)$",
				answer.Trouble.Reason)
			switch tc.line {
			case -2: // memory may grow faster than it is polled: then the child is killed, and the line is unknown
			case -1:
				require.Positive(t, answer.Trouble.Line, "%s", answer.Trouble.Reason)
			default:
				require.Equal(t, tc.line, answer.Trouble.Line)
			}
			require.Contains(t, answer.Trouble.Message("mine.lua"), "script mine.lua")
			require.Less(t, time.Since(began), 20*time.Second)
		})
	}
}

// TestRunner_CachesResponses runs the same script with the same input once.
func TestRunner_CachesResponses(t *testing.T) {
	t.Parallel()
	runner, err := scriptbox.NewRunner(nil)
	require.NoError(t, err)
	req := sandbox.Request{Script: "nginx.lua", Source: traffic.IngressScript("nginx").BuiltIn(),
		Input: []byte(`{"annotations":{},"weight":"20","class":"nginx","stableService":"a","canaryService":"b"}`)}
	began := time.Now()
	first, err := runner.Run(t.Context(), req)
	require.NoError(t, err)
	once := time.Since(began)
	began = time.Now()
	second, err := runner.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.JSONEq(t, `{"nginx.ingress.kubernetes.io/canary":"true","nginx.ingress.kubernetes.io/canary-weight":"20"}`,
		string(first.Output))
	t.Logf("one run %s, cached %s", once, time.Since(began))
	require.Less(t, time.Since(began), once)
}

// TestRunner_WhenSandboxIsMissing: a missing program is an error of the installation, not of the script.
func TestRunner_WhenSandboxIsMissing(t *testing.T) {
	t.Parallel()
	runner, err := scriptbox.NewRunner([]string{"/nonexistent/slipway"})
	require.NoError(t, err)
	_, err = runner.Run(t.Context(), sandbox.Request{Script: "s", Source: "return 1", Input: []byte(`{}`)})
	require.ErrorContains(t, err, "the script sandbox cannot be run")
}
