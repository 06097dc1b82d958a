package kruise

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
)

// A status can carry several commands of one state. What the release has answered is restored, and what came later
// stays until it is answered, too.
func TestReleaseStatus_KeepsUnansweredCommands(t *testing.T) {
	t.Parallel()
	jump := func(to int) rollout.AnsweredCommand {
		return rollout.AnsweredCommand{Verb: rollout.VerbJump, ToStep: to}
	}
	approve := rollout.AnsweredCommand{Verb: rollout.VerbApprove}
	for _, c := range []struct {
		reason   string
		next     int32
		state    string
		answered []rollout.AnsweredCommand
		verb     rollout.Verb
		to       int
	}{
		{"an approval after a refused jump", 9, "StepReady", []rollout.AnsweredCommand{jump(9)}, rollout.VerbApprove,
			0},
		{"a jump after a refused approval", 3, "StepReady", []rollout.AnsweredCommand{approve}, rollout.VerbJump, 3},
		{"a jump after a refused jump", 3, "StepPaused", []rollout.AnsweredCommand{jump(9)}, rollout.VerbJump, 3},
		{"both are answered", 9, "StepReady", []rollout.AnsweredCommand{jump(9), approve}, "", 0},
		{"the answered one alone", 9, "StepPaused", []rollout.AnsweredCommand{jump(9)}, "", 0},
		{"a release that an earlier version of Slipway runs", 9, "StepReady", nil, "", 0},
	} {
		r := object(open(rollout.StatePaused))
		r.Status.CanaryStatus.NextStepIndex, r.Status.CanaryStatus.CurrentStepState = c.next, c.state
		r.Status.Slipway.By, r.Status.Slipway.Gate = "ann", "seen"
		v := rollout.View{Template: "new", Generation: 1, Gate: "gate", AnsweredState: 7, AnsweredCommands: c.answered,
			Status: rollout.Status{Phase: rollout.PhaseProgressing, LastUpdateTime: noon, CurrentStepIndex: 1,
				NextStepIndex: 2, CurrentStepState: rollout.StatePaused,
				WaitingFor: &rollout.WaitingFor{Kind: rollout.WaitApproval}, Steps: make([]rollout.StepStatus, 2)}}
		require.True(t, MayWrite(v, r.Status), c.reason)
		r.Status = ReleaseStatus(v, r, noon)
		r.Status.Slipway.Seq = 8
		next := pending(r.Status)
		if c.verb == "" {
			require.Nil(t, next, c.reason)
			continue
		}
		require.NotNil(t, next, c.reason)
		require.Equal(t, rollout.Command{Verb: c.verb, ToStep: c.to, Actor: "ann", Gate: "seen", State: 8}, *next,
			c.reason)
		require.False(t, MayWrite(v, r.Status), "%s: it is answered first", c.reason)
	}
}

// Two jumps from one state are two commands.
func TestJumpKey_NamesStep(t *testing.T) {
	t.Parallel()
	keyOf := func(next int32) string {
		r := object(both(open(rollout.StatePaused), func(r *v1beta1.Rollout) {
			r.Status.CanaryStatus.NextStepIndex = next
		}))
		return Decide(Snapshot{Object: r, Workload: deployment(claimed("new")), Now: noon}).Key
	}
	require.NotEqual(t, keyOf(9), keyOf(1))
}
