package start

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/v1alpha1"
)

// The reason of a start can't add links, images or lines to the page of its workflow in Temporal's UI.
func TestDetails_EscapeTextOfUsers(t *testing.T) {
	t.Parallel()
	const evil = "![x](https://evil.example/x.png)\n\n# Approved\n[go on](https://evil.example)"
	s := &Start{Written: &v1alpha1.ReleaseRecord{Spec: v1alpha1.ReleaseRecordSpec{Actor: evil, Reason: evil}}}
	for name, text := range map[string]string{"details": s.Details("", nil, "steps", "Send a signal"),
		"summary": Summary(evil)} {
		for _, mark := range []string{"![", "\n[go", " [go", "://", "\n# Approved"} {
			require.NotContains(t, text, mark, name)
		}
		require.Contains(t, text, "evil.example", name)
	}
}
