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

// The release remembers which commands of a state it has answered: a state may carry several.
func TestView_NamesAnsweredCommands(t *testing.T) {
	t.Parallel()
	w := atApproval(t, strategy.StylePartition)
	jump := rollout.Command{Verb: rollout.VerbJump, ToStep: 9, State: 7, Key: "a"}
	outcome, _ := w.send(jump, w.now)
	require.Equal(t, audit.Refused, outcome)
	w.send(jump, w.now)
	require.Equal(t, []rollout.AnsweredCommand{{Verb: rollout.VerbJump, ToStep: 9}}, w.m.View().AnsweredCommands,
		"once, however often it was sent")
	w.send(rollout.Command{Verb: rollout.VerbApprove, State: 7, Key: "b"}, w.now)
	require.Len(t, w.m.View().AnsweredCommands, 2)
	w.send(rollout.Command{Verb: rollout.VerbPause}, w.now)
	require.Len(t, w.m.View().AnsweredCommands, 2, "a command that came another way answers no state")
	w.send(rollout.Command{Verb: rollout.VerbResume, State: 8, Key: "c"}, w.now)
	require.Equal(t, []rollout.AnsweredCommand{{Verb: rollout.VerbResume}}, w.m.View().AnsweredCommands)
}
