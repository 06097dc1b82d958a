package centre

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/v1alpha1"
)

// CheckOrigin reports whether the engine has started a workflow. While the home cluster or Temporal does not answer, it
// fails and is retried.
func (a *Activities) CheckOrigin(ctx context.Context, in origin.Request) (origin.Answer, error) {
	refusal, err := a.checkOrigin(ctx, in)
	return origin.Answer{Refusal: refusal}, attempt.RetriedError(err)
}

func (a *Activities) checkOrigin(ctx context.Context, in origin.Request) (refusal string, err error) {
	if in.FormerRun != "" {
		seen, err := a.seen(ctx, origin.Run{WorkflowID: in.WorkflowID, RunID: in.FormerRun})
		if err != nil {
			return "", err
		}
		return in.CheckFormer(seen, catalog.EngineQueue), nil
	}
	byParent := true
	if in.Kind != "" {
		record, err := a.record(ctx, in.Record)
		if err != nil {
			return "", err
		}
		refusal, byParent = in.CheckRecord(record)
	}
	if refusal == "" && byParent {
		refusal = in.CheckParent()
	}
	if refusal != "" || !byParent {
		return refusal, nil
	}
	seen, err := a.seen(ctx, *in.Parent)
	if err != nil {
		return "", err
	}
	return origin.CheckRun(*in.Parent, seen, in.ParentType, catalog.EngineQueue), nil
}

// record returns the record of that name; nil if there is none.
func (a *Activities) record(ctx context.Context, name string) (*v1alpha1.ReleaseRecord, error) {
	if name == "" || len(content.IsPathSegmentName(name)) > 0 { // no object can have it
		return nil, nil
	}
	record, err := a.store.GetRelease(ctx, name)
	return record, failure.Ignore(err, failure.NotFound)
}

// seen returns what Temporal has of a run; nil if it does not have it.
func (a *Activities) seen(ctx context.Context, run origin.Run) (*origin.Seen, error) {
	described, err := execution.Describe(ctx, a.temporal, run.WorkflowID, run.RunID)
	switch {
	case err != nil:
		return nil, failure.New(failure.Unreachable, "Temporal does not answer: %v", err)
	case described == nil:
		return nil, nil
	}
	info := described.GetWorkflowExecutionInfo()
	return &origin.Seen{Type: info.GetType().GetName(), Queue: described.GetExecutionConfig().GetTaskQueue().GetName(),
		Continued: info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW}, nil
}
