package rollouts

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
)

// A release whose record is old and that no workflow knows is being started for as long as the one before goes back because of it.
func TestWhichReleaseALiveOneMakesWayFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entry audit.Entry
		want  bool
	}{
		"Accepted":       {audit.Entry{Verb: rollout.VerbSupersede, Outcome: audit.Accepted, Key: supersedeKey("newer")}, true},
		"Refused":        {audit.Entry{Verb: rollout.VerbSupersede, Outcome: audit.Refused, Key: supersedeKey("newer")}, false},
		"AnothersRecord": {audit.Entry{Verb: rollout.VerbSupersede, Outcome: audit.Accepted, Key: supersedeKey("other")}, false},
		"AnotherVerb":    {audit.Entry{Verb: rollout.VerbRollback, Outcome: audit.Accepted, Key: supersedeKey("newer")}, false},
	} {
		require.Equal(t, c.want, makesWayFor(rollout.Status{History: []audit.Entry{{Verb: rollout.VerbStart}, c.entry}}, "newer"), name)
	}
	require.False(t, makesWayFor(rollout.Status{}, "newer"))
}
