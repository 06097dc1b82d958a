package backend

import (
	"context"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/execution"
)

// visibilityPage is how many open workflows are read from Temporal's lists at once.
const visibilityPage = 500

// OpenWorkflows are the open ones of the workflows that a query finds. Temporal is asked for them once, and only if they are needed.
type OpenWorkflows struct {
	*Backend
	Query string
	Found map[string]*workflowpb.WorkflowExecutionInfo
}

// Running is what Temporal's lists know of an open workflow; nil when it is closed or unknown. The lists lag behind: one that they do not
// have is asked for by its ID.
func (o *OpenWorkflows) Running(ctx context.Context, workflowID string) (*workflowpb.WorkflowExecutionInfo, error) {
	if o.Found == nil {
		if err := o.Find(ctx); err != nil {
			return nil, err
		}
	}
	if info := o.Found[workflowID]; info != nil {
		return info, nil
	}
	described, err := o.Describe(ctx, workflowID)
	if err != nil || !execution.IsOpen(described) {
		return nil, err
	}
	return described.GetWorkflowExecutionInfo(), nil
}

// Find asks Temporal's visibility which of the workflows are open, page by page, and fills Found.
func (o *OpenWorkflows) Find(ctx context.Context) error {
	found := map[string]*workflowpb.WorkflowExecutionInfo{}
	for token := []byte(nil); ; {
		page, err := o.page(ctx, token)
		if err != nil {
			return err
		}
		for _, info := range page.GetExecutions() {
			found[info.GetExecution().GetWorkflowId()] = info
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			o.Found = found
			return nil
		}
	}
}

func (o *OpenWorkflows) page(ctx context.Context, token []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := Briefly(ctx)
	defer cancel()
	return o.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.Namespace, Query: o.Query + " AND ExecutionStatus = 'Running'", PageSize: visibilityPage, NextPageToken: token})
}
