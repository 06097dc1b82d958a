package backend

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/v1alpha1"
)

// Reading defines how releases of one kind are read; S is the result.
type Reading[S any] struct {
	WorkflowID string
	// Record reads the complete record of the release.
	Record func() (*v1alpha1.ReleaseRecord, error)
	// Open reads a release whose workflow runs, Complete one that has ended.
	Open     func(*workflowservice.DescribeWorkflowExecutionResponse) (S, error)
	Complete func(*v1alpha1.ReleaseRecord) (S, error)
	// Lost reads a release without a recorded outcome whose workflow does not run. Its first argument is nil if
	// Temporal has no such workflow.
	Lost func(*workflowservice.DescribeWorkflowExecutionResponse, *v1alpha1.ReleaseRecord) (S, error)
}

// Read reads the current state of a release: from its workflow while that runs, afterwards from its record. While
// Temporal is unavailable it reads only releases with a recorded outcome.
func Read[S any](ctx context.Context, h *Backend, r Reading[S]) (S, error) {
	var nothing S
	described, unavailable := h.Describe(ctx, r.WorkflowID)
	if unavailable == nil && execution.IsOpen(described) {
		return r.Open(described)
	}
	record, err := r.Record()
	switch {
	case problem.IsNotFound(err):
		return nothing, err
	case unavailable != nil && (err != nil || record.Outcome == nil):
		return nothing, unavailable
	case err != nil:
		return nothing, err
	case record.Outcome != nil:
		return r.Complete(record)
	}
	return r.Lost(described, record)
}

// AbnormalEnd describes how a workflow ended that did not complete.
func AbnormalEnd(status enumspb.WorkflowExecutionStatus) string {
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return "was terminated"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return "ran out of time"
	default:
		return "ended without a result"
	}
}

// visibilityPage is the page size of Temporal's list calls.
const visibilityPage = 500

// listMaxAge and listMaxStale are the maximum ages of a cached list of open workflows: before it is read again, and
// while it is being read. Temporal's lists lag behind by about as much, and a Temporal server allows only 10 list calls
// a second per namespace by default (frontend.namespaceRPS.visibility).
const listMaxAge, listMaxStale = 700 * time.Millisecond, 800 * time.Millisecond

// OpenWorkflows are the open workflows that match a query. They are listed once, on first use.
type OpenWorkflows struct {
	*Backend
	Query string
	Found map[string]*workflowpb.WorkflowExecutionInfo
}

// Running returns the info of an open workflow; nil if it is closed or does not exist. Because the lists lag behind, a
// workflow missing from them is looked up by its ID.
func (o *OpenWorkflows) Running(ctx context.Context, workflowID string) (*workflowpb.WorkflowExecutionInfo, error) {
	if o.Found == nil {
		var err error
		if o.Found, err = recent.GetStale(ctx, o.Lists, o.Query, listMaxAge, listMaxStale, o.find); err != nil {
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

// Find lists the workflows without the cache, and fills Found.
func (o *OpenWorkflows) Find(ctx context.Context) (err error) {
	o.Found, err = o.find(ctx)
	return err
}

// find lists the open workflows, page by page.
func (o *OpenWorkflows) find(ctx context.Context) (map[string]*workflowpb.WorkflowExecutionInfo, error) {
	found := map[string]*workflowpb.WorkflowExecutionInfo{}
	for token := []byte(nil); ; {
		page, err := o.page(ctx, token)
		if err != nil {
			return nil, err
		}
		for _, info := range page.GetExecutions() {
			found[info.GetExecution().GetWorkflowId()] = info
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return found, nil
		}
	}
}

func (o *OpenWorkflows) page(ctx context.Context, token []byte) (*workflowservice.ListWorkflowExecutionsResponse,
	error) {
	ctx, cancel := WithCallTimeout(ctx)
	defer cancel()
	found, err := o.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.Namespace, Query: o.Query + " AND ExecutionStatus = 'Running'", PageSize: visibilityPage,
		NextPageToken: token})
	return found, preferRateLimit(ctx, err)
}
