package api

import (
	"context"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// visibilityPage is how many open workflows are read from Temporal's lists at once.
const visibilityPage = 500

// openWorkflows are the open ones of the workflows that a query finds. Temporal is asked for them once, and only if they are needed.
type openWorkflows struct {
	*handlers
	query string
	found map[string]*workflowpb.WorkflowExecutionInfo
}

// running is what Temporal's lists know of an open workflow; nil when it is closed or unknown. The lists lag behind: one that they do not have
// is asked for by its ID.
func (o *openWorkflows) running(ctx context.Context, workflowID string) (*workflowpb.WorkflowExecutionInfo, error) {
	if o.found == nil {
		if err := o.find(ctx); err != nil {
			return nil, err
		}
	}
	if info := o.found[workflowID]; info != nil {
		return info, nil
	}
	described, err := o.describe(ctx, workflowID)
	if err != nil || described == nil || !isOpen(described) {
		return nil, err
	}
	return described.GetWorkflowExecutionInfo(), nil
}

func (o *openWorkflows) find(ctx context.Context) error {
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
			o.found = found
			return nil
		}
	}
}

func (o *openWorkflows) page(ctx context.Context, token []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	return o.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.Namespace, Query: o.query + " AND ExecutionStatus = 'Running'", PageSize: visibilityPage, NextPageToken: token})
}
