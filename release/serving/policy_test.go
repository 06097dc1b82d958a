package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
)

func TestDecodePolicy(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, text string
		expected     serving.Policy
		errors       []string
	}{
		"absent": {reason: "no policy is the default"},
		"empty":  {reason: "{} is the default, too", text: "{}"},
		"JSON": {reason: "an annotation holds JSON",
			text: `{"progressDeadlineSeconds":60,"partyDeadlineSeconds":1,"order":"sequential","parties":["bob","alice"]}`,
			expected: serving.Policy{ProgressDeadlineSeconds: 60, PartyDeadlineSeconds: 1,
				Order: serving.OrderSequential, Parties: []string{"bob", "alice"}}},
		"YAML": {reason: "or YAML", text: "order: parallel\n",
			expected: serving.Policy{Order: serving.OrderParallel}},
		"longest": {reason: "a week is the most", text: "partyDeadlineSeconds: 604800",
			expected: serving.Policy{PartyDeadlineSeconds: 604800}},
		"too long": {reason: "more than a week is a mistake", text: "partyDeadlineSeconds: 604801",
			errors: []string{"partyDeadlineSeconds"}},
		"none": {reason: "0 would be read as the default, and is refused instead",
			text: "progressDeadlineSeconds: 0", errors: []string{"progressDeadlineSeconds"}},
		"all at once": {reason: "every error is reported, each with its field",
			text:   "order: random\nprogressDeadlineSeconds: soon\npartyDeadlineSeconds: -1\ncolour: red\n",
			errors: []string{"order", "progressDeadlineSeconds", "partyDeadlineSeconds", "colour"}},
		"order of a wrong type": {reason: "an unreadable value is reported once", text: "order: [sequential]",
			errors: []string{"order"}},
		"parties without order": {reason: "a field without effect is refused", text: `{"parties":["bob"]}`,
			errors: []string{"parties"}},
		"parties in parallel": {reason: "a parallel update has no first party",
			text: `{"order":"parallel","parties":["bob"]}`, errors: []string{"parties"}},
		"approval": {reason: "an approval between parties needs a sequential order",
			text:     `{"order":"sequential","approval":"betweenParties"}`,
			expected: serving.Policy{Order: serving.OrderSequential, Approval: serving.ApprovalBetweenParties}},
		"approval without order": {reason: "an approval needs a sequential order", text: "approval: betweenParties",
			errors: []string{"approval"}},
		"approval in parallel": {reason: "a parallel update has no approvals",
			text: "order: parallel\napproval: betweenParties", errors: []string{"approval"}},
		"no approval": {reason: "the default may be set with any order", text: "approval: none",
			expected: serving.Policy{Approval: serving.ApprovalNone}},
		"approval of others": {reason: "an unknown value is refused", text: "order: sequential\napproval: always",
			errors: []string{"approval"}},
		"no text": {reason: "a number is not a domain", text: `{"order":"sequential","parties":[1]}`,
			errors: []string{"parties[0]"}},
		"twice": {reason: "a repeated key is an error", text: "order: parallel\norder: sequential\n",
			errors: []string{"order"}},
		"no mapping": {reason: "a policy is a mapping", text: "- order", errors: []string{""}},
		"broken":     {reason: "an invalid document is an error", text: "{", errors: []string{""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, wrong := serving.DecodePolicy([]byte(tc.text))
			var fields []string
			for _, e := range wrong {
				fields = append(fields, e.Field)
				require.NotEmpty(t, e.Reason)
			}
			require.ElementsMatch(t, tc.errors, fields, "%s: %v", tc.reason, wrong)
			if wrong == nil {
				require.Equal(t, tc.expected, p, tc.reason)
			}
		})
	}
}

func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	require.Equal(t, 10*time.Minute, serving.Policy{}.ProgressDeadline())
	require.Equal(t, 10*time.Minute, serving.Policy{}.PartyDeadline())
	p := serving.Policy{ProgressDeadlineSeconds: 5, PartyDeadlineSeconds: 7}
	require.Equal(t, 5*time.Second, p.ProgressDeadline())
	require.Equal(t, 7*time.Second, p.PartyDeadline())
}

func FuzzDecodePolicy(f *testing.F) {
	f.Add([]byte(`{"progressDeadlineSeconds":60,"order":"sequential","parties":["bob"]}`))
	f.Add([]byte("order: parallel\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, wrong := serving.DecodePolicy(data)
		if wrong != nil {
			require.Error(t, wrong.Err(), "errors are never an empty list")
			return
		}
		require.Positive(t, p.ProgressDeadline())
		require.Positive(t, p.PartyDeadline())
		require.True(t, p.Order == serving.OrderSequential || len(p.Parties) == 0 &&
			p.Approval != serving.ApprovalBetweenParties)
	})
}
