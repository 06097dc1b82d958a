package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// carefully is the policy of an update that asks between parties, alice first.
func (u *union) carefully(id string) {
	u.t.Helper()
	answer := u.Call(http.MethodPut, "/api/v1/servings/"+id+"/policy", `{"order":"sequential","parties":["`+u.alice+`"],"approval":"betweenParties"}`)
	require.Contains(u.t, []int{http.StatusOK, http.StatusCreated}, answer.Status, "%s", answer.Body)
}

// waitAsked waits until an update asks for a party.
func (u *union) waitAsked(id, party string) *kuscia.WaitingFor {
	u.t.Helper()
	kd := u.WaitServing(id, "an approval that is waited for", func(kd *kuscia.KusciaDeployment) bool {
		op := kd.Status.Operation
		return op != nil && !op.Done && op.Reason == serving.ReasonWaitingForApproval
	})
	w := kd.Status.Operation.WaitingFor
	require.NotNil(u.t, w)
	require.Equal(u.t, party, w.Party)
	require.Equal(u.t, []string{"v2", "v1"}, []string{u.tag(u.alice, id), u.tag(u.bob, id)}, "bob is untouched until somebody says so")
	return w
}

// said sends a verb over HTTP and wants the answer to be of that status.
func (u *union) said(id, verb, body string, status int) {
	u.t.Helper()
	answer := u.Call(http.MethodPost, "/api/v1/servings/"+id+"/"+verb, body)
	require.Equal(u.t, status, answer.Status, "%s of serving %s: %s", verb, id, answer.Body)
}

// waitsFor is what Temporal's lists say that an operation waits for; "" when for nobody.
func (u *union) waitsFor(workflowID string) (kind string) {
	u.t.Helper()
	described, err := u.Workflows.DescribeWorkflowExecution(context.Background(), workflowID, "")
	require.NoError(u.t, err)
	if payload, there := described.GetWorkflowExecutionInfo().GetSearchAttributes().GetIndexedFields()[workflows.AttributeWaitingFor.GetName()]; there {
		_ = converter.GetDefaultDataConverter().FromPayload(payload, &kind)
	}
	return kind
}

// An update that asks between parties leaves the second one alone until a person approves it, and takes the first one back when somebody stops it.
func TestServingUpdateAsksBetweenParties(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	u.create("asked", serving.Policy{})
	u.WaitServing("asked", "Available", harness.ServingAvailable)
	u.carefully("asked")
	before := u.deployment(u.bob, "asked")

	u.update("asked", u.better, u.better)
	w := u.waitAsked("asked", u.bob)
	workflow := u.Serving(u.Home, "asked").Status.Operation.WorkflowID
	require.Eventually(t, func() bool { return u.waitsFor(workflow) == serving.WaitApproval }, harness.Patience, harness.Tick, "Temporal's lists say so too")
	u.said("asked", "approve", `{"gate":"older"}`, http.StatusConflict)
	u.said("asked", "pause", `{"actor":"ann","reason":"lunch"}`, http.StatusOK)
	u.said("asked", "approve", `{"gate":"`+w.Gate+`"}`, http.StatusConflict)
	u.said("asked", "resume", `{"actor":"ann"}`, http.StatusOK)
	require.Equal(t, before.Generation, u.deployment(u.bob, "asked").Generation)
	u.said("asked", "approve", `{"gate":"`+w.Gate+`","actor":"ann","reason":"looks good"}`, http.StatusOK)
	kd := u.WaitServing("asked", "Available", harness.ServingAvailable)
	require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, "asked"), u.tag(u.bob, "asked")})
	require.Len(t, kd.Status.Operation.History, 5, "every decision, and every refusal, is in the status: %+v", kd.Status.Operation.History)
	require.Equal(t, "ann", kd.Status.Operation.History[4].Actor)
	u.noneOpen("asked")
	require.Empty(t, u.waitsFor(workflow))
	u.Record(workflow, "serving-approval")
	u.said("asked", "stop", "", http.StatusNotFound)
}

func TestServingUpdateIsStoppedByAPerson(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	u.create("halted", serving.Policy{})
	u.WaitServing("halted", "Available", harness.ServingAvailable)
	u.carefully("halted")
	u.update("halted", u.better, u.better)
	u.waitAsked("halted", u.bob)
	u.said("halted", "stop", `{"actor":"ann","reason":"bad numbers"}`, http.StatusOK)
	kd := u.WaitServing("halted", "the version of before", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	})
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Equal(t, "stopped by ann: bad numbers; every party is on the version of before", kd.Status.Message)
	require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, "halted"), u.tag(u.bob, "halted")})
	u.noneOpen("halted")
	u.Record(kd.Status.Operation.WorkflowID, "serving-stopped")
}
