package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

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
