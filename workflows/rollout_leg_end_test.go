package workflows

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
)

// A worker that dies while its leg is being cancelled gets no further attempt: the completed actions are in the last
// heartbeat.
func TestLegEnd_KeepsHeartbeatParts_WhenWorkerDiesWhileCancelled(t *testing.T) {
	t.Parallel()
	parts := []machine.Part{{}, {}}
	for version, want := range map[workflow.Version]int{versionBriefRests: 0, versionKeepsParts: len(parts)} {
		r := &rolloutRun{loop: &loop[rollout.Command]{version: version}}
		end := r.legEnd(&runningAction{stopped: true,
			err: temporal.NewHeartbeatTimeoutError(machine.LegProgress{Parts: parts})})
		require.Len(t, end.Parts, want, "a rollout that started with version %d", version)
		require.NotNil(t, end.Failure)
	}
}

// An older build supports fewer versions of each type: a new workflow uses its type's newest version that the older
// build supports.
func TestRecordingPrefersNewestSupportedVersion(t *testing.T) {
	t.Parallel()
	level := HistoryLevel
	record := Recording(func() int { return level })
	for _, c := range []struct {
		kind  string
		level int
		want  workflow.Version
	}{
		{TypePreflight, HistoryLevel, versionChecksTogether}, {TypePreflight, 6, workflow.DefaultVersion},
		{TypeRollout, HistoryLevel, versionOneWrite}, {TypeRollout, 5, versionKeepsParts},
		{TypeRollout, 4, versionBriefRests}, {TypeRollout, 2, versionLegs}, {TypeRollout, 0, workflow.DefaultVersion},
		{TypeServing, HistoryLevel, versionCreatesAtOnce}, {TypeServing, 8, versionPartiesTogether},
		{TypeServing, 7, versionAtOnce}, {TypeServing, 3, versionSettlesFirst},
		{TypeDeployPlan, HistoryLevel, versionSettlesFirst},
	} {
		level = c.level
		in := worker.PreferredVersionProviderInput{ChangeID: changeLoop,
			WorkflowInfo: &workflow.Info{WorkflowType: workflow.Type{Name: c.kind}}}
		require.Equal(t, c.want, record(in).Version, "%s at level %d", c.kind, c.level)
	}
	require.Nil(t, record(worker.PreferredVersionProviderInput{ChangeID: "another"}))
}
