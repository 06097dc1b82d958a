package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// A command that its sender does not let through changes nothing. It is recorded and answered, so that the object stops
// showing it.
func TestRefusedCommand_IsRecordedAndAnswered(t *testing.T) {
	t.Parallel()
	for _, verb := range []rollout.Verb{rollout.VerbApprove, rollout.VerbJump} {
		w := atApproval(t, strategy.StylePartition)
		before := w.m.Status()
		const why = "nothing verifies who sends commands"
		outcome, text := w.send(rollout.Command{Verb: verb, Actor: "unverified: cfo", Via: "kubectl", Key: "k", ToStep: 2,
			State: 7, Refuse: why}, w.now)
		require.Equal(t, audit.Refused, outcome, verb)
		require.Equal(t, why, text)
		after := w.m.Status()
		require.Equal(t, before.CurrentStepIndex, after.CurrentStepIndex)
		require.Equal(t, rollout.StatePaused, after.CurrentStepState)
		require.EqualValues(t, 7, w.m.View().AnsweredState)
		last := w.m.Audit().Entries[len(w.m.Audit().Entries)-1]
		require.Equal(t, []any{verb, "unverified: cfo", audit.Refused, why},
			[]any{last.Verb, last.Actor, last.Outcome, last.Message})
	}
}
