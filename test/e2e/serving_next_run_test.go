package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// runOf returns the ID of the newest run of a workflow.
func (u *twoParties) runOf(workflowID string) string {
	described, err := u.Workflows.DescribeWorkflowExecution(context.Background(), workflowID, "")
	require.NoError(u.t, err)
	return described.GetWorkflowExecutionInfo().GetExecution().GetRunId()
}

// An update that waits for approval while its history grows continues as a new run. A gate read before is valid in the
// new run, and clients see one operation.
func TestServingUpdate_ContinuesAsNew_WhileWaitingForApproval(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("long", serving.Policy{})
	u.WaitServing("long", "Available", harness.ServingAvailable)
	u.requireApprovalBetweenParties("long")
	u.update("long", u.better, u.better)
	w := u.waitApproval("long", u.bob)
	op := u.Serving(u.Home, "long").Status.Operation
	require.Equal(t, op.RunID, u.runOf(op.WorkflowID))
	// The server suggests a new run at 4 MiB.
	noise := serving.PresenceSignal{Queue: "of nobody", Unreachable: strings.Repeat("x", 256<<10)}
	signal := func() {
		require.NoError(t, u.Workflows.SignalWorkflow(context.Background(), op.WorkflowID, "", serving.SignalPresence,
			noise))
	}
	for range 18 {
		signal()
	}
	noise.Unreachable = ""
	// Signals that arrive while a workflow task runs are not counted yet in the task that follows: it takes one more.
	require.Eventually(t, func() bool {
		signal()
		return u.runOf(op.WorkflowID) != op.RunID
	}, harness.Patience, harness.Tick, "the workflow continues as a new run")
	require.Equal(t, serving.WaitApproval, u.waitKind(op.WorkflowID), "the search attribute of the new run is set")
	releases := u.waitHistory("long", 2, serving.StateProgressing)
	require.NotNil(t, releases[0].WaitingFor, "the history queries the new run: %+v", releases[0])
	require.Equal(t, w.Gate, releases[0].WaitingFor.Gate)
	u.sendVerb("long", "approve", `{"gate":"`+w.Gate+`","actor":"ann"}`, http.StatusOK)
	kd := u.WaitServing("long", "Available", harness.ServingAvailable)
	require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, "long"), u.tag(u.bob, "long")})
	require.Equal(t, op.RunID, kd.Status.Operation.RunID, "the operation keeps the ID of its first run")
	require.Len(t, kd.Status.Operation.History, 1)
	u.waitHistory("long", 2, serving.StateSucceeded)
	u.waitNoOpenOperation("long")
}
