package rollout

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func atStep(n int) Status {
	return Status{CurrentStepIndex: n, NextStepIndex: n + 1, CurrentStepState: StatePaused, Paused: true,
		Steps: []StepStatus{{Index: 1, State: string(StateCompleted)}, {Index: 2, State: StepSkipped},
			{Index: 3, State: string(StatePaused)}, {Index: 4, State: StepPending}}}
}

func TestPosition_IsShownAsItWas(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(atStep(3).Position())
	require.NoError(t, err)
	require.Less(t, len(raw), 150, "it is part of a memo")
	var p Position
	require.NoError(t, json.Unmarshal(raw, &p))
	outline := Status{CurrentStepIndex: 1, NextStepIndex: 2, CurrentStepState: StateBeforeUpgrade,
		Steps: make([]StepStatus, 4)}
	shared := outline.Steps
	for i := range shared {
		shared[i] = StepStatus{Index: i + 1, State: StepPending}
	}
	outline.PlaceAt(p)
	require.Equal(t, atStep(3), outline)
	require.Equal(t, StepPending, shared[0].State, "the steps of another view stay as they are")
}

// A memo of an earlier build has no position, and one of another strategy has other steps: neither says anything about
// these steps.
func TestPosition_OfOtherSteps_IsUnknown(t *testing.T) {
	t.Parallel()
	for reason, p := range map[string]Position{"none": {}, "of fewer steps": {Step: 1, Next: 2, State: StatePaused,
		Steps: ".P"}} {
		s := atStep(3)
		s.PlaceAt(p)
		require.Zero(t, s.CurrentStepIndex, reason)
		require.Equal(t, StateUnknown, s.CurrentStepState, reason)
		for _, step := range s.Steps {
			require.Equal(t, string(StateUnknown), step.State, reason)
		}
	}
}
