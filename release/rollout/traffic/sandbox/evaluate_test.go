package sandbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/traffic/sandbox"
)

func run(source, input string) sandbox.Response {
	return sandbox.Prepare(context.Background(), sandbox.Request{Script: "s", Source: source,
		Input: []byte(input)}).Evaluate()
}

// TestEvaluate covers results, and errors with their line.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, source, input, output string
		line                          int
		trouble                       string
	}{
		"identity": {reason: "the output equals the input, empty lists and objects too", source: "return obj",
			input: `{"a":[],"b":{},"c":[1,2.5,"x"],"d":true}`, output: `{"a":[],"b":{},"c":[1,2.5,"x"],"d":true}`},
		"order": {reason: "members are iterated by name, in any order of the input",
			source: "local s = '' for k in pairs(obj) do s = s .. k end return s", input: `{"c":1,"a":1,"b":1}`,
			output: `"abc"`},
		"codec": {reason: "json is available", source: `return json.decode(json.encode({x = {1, 2}}))`, input: `{}`,
			output: `{"x":[1,2]}`},
		"tostring": {reason: "no addresses", source: `return tostring({}) .. tostring(print)`, input: `{}`,
			output: `"tablenil"`},
		"nothing": {reason: "forbidden functions are absent",
			source: `return {os == nil, io == nil, load == nil, loadstring == nil, dofile == nil, require == nil, print == nil, debug == nil, math.random == nil, string.dump == nil, coroutine == nil, collectgarbage == nil}`, input: `{}`, output: `[true,true,true,true,true,true,true,true,true,true,true,true]`},
		"breaks": {reason: "the line of the mistake", source: "local a\n\nreturn a.b", input: `{}`, line: 3,
			trouble: "attempt to index"},
		"syntax": {reason: "the line of the mistake", source: "local a = 1\nlocal = 2", input: `{}`, line: 2,
			trouble: "it is not valid Lua"},
		"error": {reason: "the script's own message", source: "error('no such thing')", input: `{}`, line: 1,
			trouble: "no such thing"},
		"holes": {reason: "JSON has no holes", source: "return {a = {[1] = 1, [3] = 3}}", input: `{}`,
			trouble: "result.a has holes: there is no [2]"},
		"mixed": {reason: "a list or an object", source: "return {1, x = 2}", input: `{}`,
			trouble: "both numbers and names"},
		"itself": {reason: "a table that contains itself", source: "local a = {} a.a = a return a", input: `{}`,
			trouble: "deeper than 64"},
		"function": {reason: "no JSON", source: "return {f = tostring}", input: `{}`,
			trouble: "result.f is a function"},
		"repeat": {reason: "bounded", source: "return string.rep('x', 1e9)", input: `{}`, line: 1,
			trouble: "string.rep would make more"},
		"recursion": {reason: "bounded", source: "local function f() return 1 + f() end\nreturn f()", input: `{}`,
			line: 1, trouble: "stack overflow"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(tc.source, tc.input)
			if tc.trouble != "" {
				require.NotNil(t, got.Trouble, tc.reason)
				require.Contains(t, got.Trouble.Reason, tc.trouble, tc.reason)
				require.Equal(t, tc.line, got.Trouble.Line, got.Trouble.Reason)
				return
			}
			require.Nil(t, got.Trouble, "%s: %+v", tc.reason, got.Trouble)
			require.JSONEq(t, tc.output, string(got.Output), tc.reason)
		})
	}
}

func TestEvaluate_ReturnsRefusal_WhenScriptRefuses(t *testing.T) {
	t.Parallel()
	got := run(`refuse("matches[0].path", "not by path")`, `{}`)
	require.Equal(t, &sandbox.Refusal{Field: "matches[0].path", Reason: "not by path"}, got.Refusal)
}
