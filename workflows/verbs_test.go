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
		in.Arg = &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(payload)}}}
	}
	return in
}

// TestSignalsWithUnknownKeysAreRefused: a misspelt step is not "the step that waits now".
func TestSignalsWithUnknownKeysAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, payload, malformed string }{
		{"the UI sends nothing at all for an empty editor", "", ""},
		{"an empty object says no more than nothing", "{}", ""},
		{"null neither", "null", ""},
		{"the step that it is meant for", `{"actor":"ann","step":2}`, ""},
		{"a misspelt step", `{"stp":2}`, `unknown field "stp"`},
		{"a misspelt gate beside a step", `{"step":1,"gaet":"x"}`, `unknown field "gaet"`},
		{"no JSON", `{step:2}`, "invalid character"},
		{"quotes as word processors and web pages show them", `{“step”:2}`, "typographic"},
		{"a second object behind the first, which nobody would hear", `{"step":1}{"step":2}`, "more than one value"},
		{"a brace too many", `{"step":1}}`, "more than one value"},
		{"white space ends many a pasted line", "{\"step\":2} \n", ""},
		{"such quotes in a text are none of its quotes", `{"stp":2,"reason":"“good”"}`, `unknown field "stp"`},
	} {
		read := rolloutMenu.open(signalOf("approve", c.payload))
		if c.malformed == "" {
			require.Empty(t, read.unreadable, c.reason)
		} else {
			require.Contains(t, read.unreadable, c.malformed, c.reason)
			require.Equal(t, rollout.Command{Verb: rollout.VerbApprove}, read.command, "%s: nothing of it is kept", c.reason)
		}
	}
	long := rolloutMenu.open(signalOf("approve", `{"reason":"`+strings.Repeat("x", MaxReason+1)+`"}`)).unreadable
	require.Equal(t, "reason has 2001 characters: at most 2000 are kept", long, "it was read well, and sending it empty would say less")
	require.Contains(t, planMenu.open(signalOf("pause", `{"reasn":"x"}`)).unreadable, "reasn", "a task's signals are read the same way")
	require.Contains(t, servingMenu.open(signalOf("approve", `{"partie":"bob"}`)).unreadable, "partie", "a serving's too")
}
