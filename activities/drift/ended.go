package drift

import (
	"context"
	"errors"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// Temporal is what the detectors need of it, as client.Client does it.
type Temporal interface {
	Signaller
	Describer
}

// Describer describes a workflow.
type Describer interface {
	DescribeWorkflowExecution(ctx context.Context, workflowID,
		runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error)
}

// Ended reports whether the release that made a claim has ended and given back all that it had borrowed, or the newest
// release of the same name has: what an object still has of it was brought back by another client. It is false for a
// release that runs, that was killed, that left a split in place, or that Temporal doesn't know.
func Ended(ctx context.Context, temporal Describer, claim string) (bool, error) {
	holder := workload.ParseHolder(claim)
	id, finished := holder.WorkflowID, GaveBack
	if task, of := plan.TaskOfWorkflow(id); of {
		id, finished = plan.WorkflowID(task), []string{string(plan.TaskSucceeded)}
	}
	described, err := execution.Describe(ctx, temporal, id, "")
	if run := holder.RunID; execution.IsOpen(described) && run != "" && !execution.HasRun(described, run) {
		described, err = execution.Describe(ctx, temporal, id, run)
	}
	var malformed *serviceerror.InvalidArgument // any client may have written the text of a claim
	switch {
	case errors.As(err, &malformed):
		return false, nil
	case err != nil || described == nil:
		return false, err
	}
	info := described.GetWorkflowExecutionInfo()
	return info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED && slices.Contains(finished,
		execution.Published[string](info, workload.SearchAttributeState)), nil
}

// GaveBack are the states in which a rollout has ended and given everything back.
var GaveBack = []string{string(rollout.PhaseHealthy), string(rollout.PhaseRolledBack)}

// Brought reports whether a client other than the engine wrote the annotation with a claim. While a release runs, the
// engine did; so only then Ended is worth a request.
func Brought(o metav1.Object, annotation string) bool {
	return fieldmanager.WrittenByOther(o, annotation)
}

// RemovalOf returns the operations that remove from an object what releases leave on objects until they end.
func RemovalOf(o metav1.Object) (ops []jsonpatch.Op) {
	for _, name := range rollout.LeftAnnotations {
		if _, has := o.GetAnnotations()[name]; has {
			ops = append(ops, jsonpatch.Remove(jsonpatch.Annotation(name)))
		}
	}
	for _, name := range rollout.LeftLabels {
		if _, has := o.GetLabels()[name]; has {
			ops = append(ops, jsonpatch.Remove(jsonpatch.Label(name)))
		}
	}
	return ops
}
