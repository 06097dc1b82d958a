package rollouts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/release/rollout"
)

// Temporal is asked for the pending activities first and the workflow second: what the workflow says may be the newer of the two.
func TestProgressIsShownOnlyWhileAnActivityIsWaitedFor(t *testing.T) {
	scheduled := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: rollout.ActivityMove},
		State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED}
	holding := &workflowpb.PendingActivityInfo{ActivityType: &commonpb.ActivityType{Name: rollout.ActivityHoldTraffic},
		LastFailure: &failurepb.Failure{Message: "shop/other holds it"}}
	for _, c := range []struct {
		why      string
		kind     rollout.WaitKind
		activity *workflowpb.PendingActivityInfo
		want     string
	}{
		{"the activity is what it waits for", rollout.WaitPods, scheduled, "waits for a worker of its party"},
		{"the activity ended before the workflow was asked", rollout.WaitApproval, scheduled, "as told"},
		{"so did that one, and a timer runs", rollout.WaitTimer, scheduled, "as told"},
		{"it has failed or is paused meanwhile", rollout.WaitResume, scheduled, "as told"},
		{"somebody's edit is waited for", rollout.WaitDrift, scheduled, "as told"},
		{"another release holds the traffic", rollout.WaitTraffic, holding, "shop/other holds it"},
		{"the hold ended before the workflow was asked", rollout.WaitApproval, holding, "as told"},
	} {
		status := rollout.Status{Reason: "as told", WaitingFor: &rollout.WaitingFor{Kind: c.kind, Since: time.Unix(1, 0), Message: "as told"}}
		showRolloutProgress(&status, []*workflowpb.PendingActivityInfo{c.activity})
		require.Equal(t, c.want, status.WaitingFor.Message, c.why)
		if c.want == "as told" {
			require.Equal(t, "as told", status.Reason, c.why)
		}
	}
	over := rollout.Status{Phase: rollout.PhaseCancelled, Reason: "stopped"}
	showRolloutProgress(&over, []*workflowpb.PendingActivityInfo{holding})
	require.Equal(t, rollout.Status{Phase: rollout.PhaseCancelled, Reason: "stopped"}, over, "it is over, and waits for nothing")
}
