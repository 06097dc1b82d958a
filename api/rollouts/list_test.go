package rollouts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// A release with an old record and no workflow is being started while the previous release is rolled back because of
// it.
func TestIsSupersededBy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry audit.Entry
		want  bool
	}{
		"Accepted": {audit.Entry{Verb: rollout.VerbSupersede, Outcome: audit.Accepted, Key: supersedeKey("newer")},
			true},
		"Refused": {audit.Entry{Verb: rollout.VerbSupersede, Outcome: audit.Refused, Key: supersedeKey("newer")},
			false},
		"OtherRecord": {audit.Entry{Verb: rollout.VerbSupersede, Outcome: audit.Accepted, Key: supersedeKey("other")},
			false},
		"OtherVerb": {audit.Entry{Verb: rollout.VerbRollback, Outcome: audit.Accepted, Key: supersedeKey("newer")},
			false},
	} {
		require.Equal(t, c.want, isSupersededBy(rollout.Status{History: []audit.Entry{{Verb: rollout.VerbStart},
			c.entry}}, "newer"), name)
	}
	require.False(t, isSupersededBy(rollout.Status{}, "newer"))
}
