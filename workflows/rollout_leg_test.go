package workflows

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/machine"
)

// A worker that dies while its leg is being cancelled gets no further attempt: the completed actions are in the last
// heartbeat.
func TestLegEnd_KeepsHeartbeatParts_WhenWorkerDiesWhileCancelled(t *testing.T) {
	t.Parallel()
	parts := []machine.Part{{}, {}}
	end := new(rolloutRun).legEnd(&runningAction{stopped: true,
		err: temporal.NewHeartbeatTimeoutError(machine.LegProgress{Parts: parts})})
	require.Len(t, end.Parts, len(parts))
	require.NotNil(t, end.Failure)
}

// The server doesn't repeat an attempt of an activity that is to stop: an attempt that only waits then ends it.
func TestLegEnd_IsStopped_WhenWaitingAttemptIsNotRepeated(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal([]machine.Part{{}, {}})
	require.NoError(t, err)
	waits := temporal.NewApplicationErrorWithOptions("3 of 5 pods are ready", string(failure.NotReady),
		temporal.ApplicationErrorOptions{Details: []any{failure.Details{Leg: raw, SpentSeconds: 70}}})
	end := new(rolloutRun).legEnd(&runningAction{stopped: true, err: waits})
	require.True(t, end.Stopped)
	require.Nil(t, end.Failure)
	require.Len(t, end.Parts, 2)
	require.EqualValues(t, 70, end.SpentSeconds)

	failed := temporal.NewNonRetryableApplicationError("no pod became ready", string(failure.WorkloadFailed), nil)
	end = new(rolloutRun).legEnd(&runningAction{stopped: true, err: failed})
	require.False(t, end.Stopped, "a failure of the release counts, also if it comes during a stop")
	require.NotNil(t, end.Failure)
}
