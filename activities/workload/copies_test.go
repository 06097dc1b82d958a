package workload

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// closedAs answers with the state in which the newest run of a workflow has closed.
type closedAs map[string]rollout.Phase

func (c closedAs) DescribeWorkflowExecution(_ context.Context, workflowID,
	_ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	state, known := c[workflowID]
	if !known {
		return nil, serviceerror.NewNotFound("workflow not found")
	}
	payload, err := converter.GetDefaultDataConverter().ToPayload(string(state))
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, Execution: &commonpb.WorkflowExecution{RunId: "1"},
		SearchAttributes: &commonpb.SearchAttributes{IndexedFields: map[string]*commonpb.Payload{
			workload.SearchAttributeState: payload}}}}, err
}

// What a release has left on a workload goes only if another client wrote it, and if every release that it is of has
// given everything back: the split of a frozen one is what its next release restores from.
func TestIsCopy_OnlyIfNothingIsOfAnUnfinishedRelease(t *testing.T) {
	t.Parallel()
	const web, old, frozen, foreign = "rollout/default/shop/web@1@a/uid-a", "rollout/default/shop/old@1@a/uid-a",
		"rollout/default/shop/frozen@1@a/uid-a", "rollout/default/shop/web@1@b/uid-b"
	temporal := closedAs{"rollout/default/shop/web": rollout.PhaseHealthy,
		"rollout/default/shop/old": rollout.PhaseRolledBack, "rollout/default/shop/frozen": rollout.PhaseCancelled}
	for _, c := range []struct {
		reason, claim, saved, splitBy string
		copied                        bool
	}{
		{"the claim is of an ended release", web, "", "", true},
		{"claim and split are of one ended release", web, web, "kubectl-replace", true},
		{"the split is one that its next release had adopted", web, old, "kubectl-replace", true},
		{"the split alone, of an ended release", "", web, "kubectl-replace", true},
		{"a claim that a client wrote beside a frozen split", web, frozen, "kubectl-replace", false},
		{"a frozen split", "", frozen, "kubectl-replace", false},
		{"the engine left the split", "", web, "slipway", false},
		{"only the other engine knows its releases", "", foreign, "kubectl-replace", false},
		{"nothing of a release", "", "", "", false},
	} {
		o := &metav1.ObjectMeta{UID: "u", Annotations: map[string]string{}, Labels: map[string]string{}}
		wrote := func(manager, name string) {
			o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager,
				FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + name + `":{}}}}`)})
		}
		if c.claim != "" {
			o.Annotations[workload.AnnotationClaimedBy] = c.claim
			wrote("kubectl-replace", workload.AnnotationClaimedBy)
		}
		if c.saved != "" {
			saved := rollout.Saved{UID: "u", Claim: c.saved}
			o.Annotations[workload.AnnotationRollout], o.Labels[workload.LabelRollout] = saved.String(), saved.Mark()
			wrote(c.splitBy, workload.AnnotationRollout)
		}
		copied, err := isCopy(t.Context(), temporal, o, "task/t1/1-web@9@a/uid-a")
		require.NoError(t, err, c.reason)
		require.Equal(t, c.copied, copied, c.reason)
	}
}
