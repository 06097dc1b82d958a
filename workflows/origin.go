package workflows

import (
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/origin"
)

// checkOrigin returns why the workflow must do nothing: the engine has not started it. "": it has. asked is what the
// type knows of its start; continues is true for a run that has the state of the one before. It waits until the home
// cluster and Temporal answer.
func checkOrigin(ctx workflow.Context, asked origin.Request, continues bool) (refusal string) {
	info := workflow.GetInfo(ctx)
	asked.WorkflowID, asked.Type = info.WorkflowExecution.ID, info.WorkflowType.Name
	switch {
	case info.CronSchedule != "" || info.RetryPolicy != nil:
		// the server would run the same input again, and that run would continue one of the engine's
		return "the engine has not started this workflow: it starts none with a cron schedule or a retry policy"
	case continues && info.ContinuedExecutionRunID == "":
		return "the engine has not started this workflow: it has the state of a run before, and there was none"
	case continues:
		asked = origin.Request{WorkflowID: asked.WorkflowID, Type: asked.Type, FormerRun: info.ContinuedExecutionRunID}
	case info.ParentWorkflowExecution != nil:
		asked.Parent = &origin.Run{WorkflowID: info.ParentWorkflowExecution.ID,
			RunID: info.ParentWorkflowExecution.RunID}
	}
	var answer origin.Answer
	if tryLocally(ctx, origin.ActivityCheck, asked, &answer) {
		return answer.Refusal
	}
	if err := perform(withActivity(ctx, centreForever, "check that the engine has started this workflow"),
		origin.ActivityCheck, asked, &answer); err != nil {
		return "it cannot be checked that the engine has started this workflow: " + message(err)
	}
	return answer.Refusal
}

// errOrigin is the error of a workflow that the engine has not started.
func errOrigin(refusal string) error { return newFailure(TypeNotStarted, refusal) }
