package centre

import (
	"context"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/origin"
)

// CheckOrigin reports whether the engine has started a workflow. While the home cluster or Temporal does not answer, it
// fails and is retried.
func (a *Activities) CheckOrigin(ctx context.Context, in origin.Request) (origin.Answer, error) {
	refusal, err := a.checkOrigin(ctx, in)
	return origin.Answer{Refusal: refusal}, attempt.RetriedError(err)
}

func (a *Activities) checkOrigin(ctx context.Context, in origin.Request) (refusal string, err error) {
	if before, continues := in.Continued(); continues {
		return a.checkRun(ctx, before, in.Type)
	}
	byParent := true
	if in.Record != "" {
		record, err := a.store.GetRelease(ctx, in.Record)
		if err = failure.Ignore(err, failure.NotFound); err != nil {
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
	return a.checkRun(ctx, *in.Parent, in.ParentType)
}

// checkRun asks Temporal whether a run is one of the engine's, of that type.
func (a *Activities) checkRun(ctx context.Context, run origin.Run, wanted string) (refusal string, err error) {
	described, err := execution.Describe(ctx, a.temporal, run.WorkflowID, run.RunID)
	if err != nil {
		return "", failure.New(failure.Unreachable, "Temporal does not answer: %v", err)
	}
	var seen *origin.Seen
	if described != nil {
		seen = &origin.Seen{Type: described.GetWorkflowExecutionInfo().GetType().GetName(),
			Queue: described.GetExecutionConfig().GetTaskQueue().GetName()}
	}
	return origin.CheckRun(run, seen, wanted, catalog.EngineQueue), nil
}
