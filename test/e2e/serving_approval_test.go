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

// requireApprovalBetweenParties sets a policy that updates alice first and waits for an approval before bob.
func (u *twoParties) requireApprovalBetweenParties(id string) {
	u.t.Helper()
	answer := u.Call(http.MethodPut, "/api/v1/servings/"+id+"/policy",
		`{"order":"sequential","parties":["`+u.alice+`"],"approval":"betweenParties"}`)
	require.Contains(u.t, []int{http.StatusOK, http.StatusCreated}, answer.Status, "%s", answer.Body)
}

// waitApproval waits until an update waits for the approval of a party.
func (u *twoParties) waitApproval(id, party string) *kuscia.WaitingFor {
	u.t.Helper()
	kd := u.WaitServing(id, "a wait for approval", func(kd *kuscia.KusciaDeployment) bool {
		op := kd.Status.Operation
		return op != nil && !op.Done && op.Reason == serving.ReasonWaitingForApproval
	})
	w := kd.Status.Operation.WaitingFor
	require.NotNil(u.t, w)
	require.Equal(u.t, party, w.Party)
	require.Equal(u.t, []string{"v2", "v1"}, []string{u.tag(u.alice, id), u.tag(u.bob, id)},
		"bob is unchanged until the approval")
	return w
}

// sendVerb sends a verb over HTTP and requires the HTTP status of the answer.
func (u *twoParties) sendVerb(id, verb, body string, status int) {
	u.t.Helper()
	answer := u.Call(http.MethodPost, "/api/v1/servings/"+id+"/"+verb, body)
	require.Equal(u.t, status, answer.Status, "%s of serving %s: %s", verb, id, answer.Body)
}

// waitKind returns what an operation waits for according to its search attribute; "" if it waits for nothing.
func (u *twoParties) waitKind(workflowID string) (kind string) {
	u.t.Helper()
	described, err := u.Workflows.DescribeWorkflowExecution(context.Background(), workflowID, "")
	require.NoError(u.t, err)
	attributes := described.GetWorkflowExecutionInfo().GetSearchAttributes().GetIndexedFields()
	if payload, there := attributes[workflows.AttributeWaitingFor.GetName()]; there {
		_ = converter.GetDefaultDataConverter().FromPayload(payload, &kind)
	}
	return kind
}

// An update with approval between parties changes the second party only after the approval.
func TestServingUpdate_ChangesSecondParty_AfterApproval(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("asked", serving.Policy{})
	u.WaitServing("asked", "Available", harness.ServingAvailable)
	u.requireApprovalBetweenParties("asked")
	before := u.deployment(u.bob, "asked")

	u.update("asked", u.better, u.better)
	w := u.waitApproval("asked", u.bob)
	workflow := u.Serving(u.Home, "asked").Status.Operation.WorkflowID
	require.Eventually(t, func() bool {
		return u.waitKind(workflow) == serving.WaitApproval
	}, harness.Patience, harness.Tick, "the search attribute reports it too")
	u.sendVerb("asked", "approve", `{"gate":"older"}`, http.StatusConflict)
	u.sendVerb("asked", "pause", `{"actor":"ann","reason":"lunch"}`, http.StatusOK)
	u.sendVerb("asked", "approve", `{"gate":"`+w.Gate+`"}`, http.StatusConflict)
	u.sendVerb("asked", "resume", `{"actor":"ann"}`, http.StatusOK)
	require.Equal(t, before.Generation, u.deployment(u.bob, "asked").Generation)
	u.sendVerb("asked", "approve", `{"gate":"`+w.Gate+`","actor":"ann","reason":"looks good"}`, http.StatusOK)
	kd := u.WaitServing("asked", "Available", harness.ServingAvailable)
	require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, "asked"), u.tag(u.bob, "asked")})
	require.Len(t, kd.Status.Operation.History, 5, "every decision, and every refusal, is in the status: %+v",
		kd.Status.Operation.History)
	require.Equal(t, "ann", kd.Status.Operation.History[4].Actor)
	u.waitNoOpenOperation("asked")
	require.Empty(t, u.waitKind(workflow))
	u.sendVerb("asked", "stop", "", http.StatusNotFound)
}

// A stop at the approval between parties rolls back the first party.
func TestServingUpdate_IsRolledBack_WhenStoppedAtApproval(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("halted", serving.Policy{})
	u.WaitServing("halted", "Available", harness.ServingAvailable)
	u.requireApprovalBetweenParties("halted")
	u.update("halted", u.better, u.better)
	u.waitApproval("halted", u.bob)
	u.sendVerb("halted", "stop", `{"actor":"ann","reason":"bad numbers"}`, http.StatusOK)
	kd := u.WaitServing("halted", "the previous version", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	})
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Equal(t, "stopped by ann: bad numbers; every party runs the previous version", kd.Status.Message)
	require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, "halted"), u.tag(u.bob, "halted")})
	u.waitNoOpenOperation("halted")
}
