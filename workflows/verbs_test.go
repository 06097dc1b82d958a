package workflows

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/interceptor"

	"slipway.io/slipway/release/rollout"
)

func signalOf(name, payload string) *interceptor.HandleSignalInput {
	in := &interceptor.HandleSignalInput{SignalName: name}
	if payload != "" {
		in.Arg = &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte(
			"json/plain")}, Data: []byte(payload)}}}
	}
	return in
}

// A misspelt step must not mean "the step that waits now".
func TestSignalsWithUnknownKeysAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, payload, malformed string }{
		{"the UI sends nothing at all for an empty editor", "", ""},
		{"an empty object equals an empty payload", "{}", ""},
		{"so does null", "null", ""},
		{"the step that it is meant for", `{"actor":"ann","step":2}`, ""},
		{"a misspelt step", `{"stp":2}`, `unknown field "stp"`},
		{"a misspelt gate next to a step", `{"step":1,"gaet":"x"}`, `unknown field "gaet"`},
		{"no JSON", `{step:2}`, "invalid character"},
		{"quotes as word processors and web pages show them", `{“step”:2}`, "typographic"},
		{"a second object, which would be ignored", `{"step":1}{"step":2}`, "more than one value"},
		{"an extra brace", `{"step":1}}`, "more than one value"},
		{"pasted lines often end with white space", "{\"step\":2} \n", ""},
		{"typographic quotes within a string are valid", `{"stp":2,"reason":"“good”"}`, `unknown field "stp"`},
	} {
		read := rolloutMenu.readSignal(signalOf("approve", c.payload))
		if c.malformed == "" {
			require.Empty(t, read.unreadable, c.reason)
		} else {
			require.Contains(t, read.unreadable, c.malformed, c.reason)
			require.Equal(t, rollout.Command{Verb: rollout.VerbApprove}, read.command, "%s: nothing of it is kept",
				c.reason)
		}
	}
	long := rolloutMenu.readSignal(signalOf("approve", `{"reason":"`+strings.Repeat("x", MaxReason+1)+`"}`)).unreadable
	require.Equal(t, "reason has 2001 characters: at most 2000 are kept", long,
		"the payload is readable: no hint to send it empty")
	require.Contains(t, planMenu.readSignal(signalOf("pause", `{"reasn":"x"}`)).unreadable, "reasn",
		"a task's signals are read the same way")
	require.Contains(t, servingMenu.readSignal(signalOf("approve", `{"partie":"bob"}`)).unreadable, "partie",
		"a serving's too")
}
