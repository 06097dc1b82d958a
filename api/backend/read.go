package backend

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store/recent"
)

// Reading is how releases of one kind are read; S is what is found.
type Reading[S any] struct {
	WorkflowID string
	// Record is the release's record, whole.
	Record func() (*v1alpha1.ReleaseRecord, error)
	// Open reads a release whose workflow runs, complete one that is over.
	Open     func(*workflowservice.DescribeWorkflowExecutionResponse) (S, error)
	Complete func(*v1alpha1.ReleaseRecord) (S, error)
	// Lost reads one that was never recorded as over and whose workflow does not run; nil: it is not known.
	Lost func(*workflowservice.DescribeWorkflowExecutionResponse, *v1alpha1.ReleaseRecord) (S, error)
}

// Read reads a release as it is now: from its workflow while that runs, and from its record when it is over. While Temporal is away it
// answers what the records know: releases that are over.
func Read[S any](ctx context.Context, h *Backend, r Reading[S]) (S, error) {
	var nothing S
	described, away := h.Describe(ctx, r.WorkflowID)
	if away == nil && execution.IsOpen(described) {
		return r.Open(described)
	}
	record, err := r.Record()
	switch {
	case problem.IsGone(err):
		return nothing, err
	case away != nil && (err != nil || record.Outcome == nil):
		return nothing, away
	case err != nil:
		return nothing, err
	case record.Outcome != nil:
		return r.Complete(record)
	}
	return r.Lost(described, record)
}

// HowLost says how a workflow ended that did not end by itself.
func HowLost(status enumspb.WorkflowExecutionStatus) string {
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return "was terminated"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return "ran out of time"
	default:
		return "ended without a result"
	}
}

// visibilityPage is how many open workflows are read from Temporal's lists at once.
const visibilityPage = 500

// freshLists and spareLists are how old what Temporal's lists say may be, before they are asked anew and while they are: they lag behind by about as much,
// and a server of Temporal answers 10 such questions a second for each namespace, unless it is told otherwise (frontend.namespaceRPS.visibility).
const freshLists, spareLists = 700 * time.Millisecond, 800 * time.Millisecond

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
		var err error
		if o.Found, err = recent.GetLately(ctx, o.Lists, o.Query, freshLists, spareLists, o.find); err != nil {
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

// Find asks Temporal's visibility now, and fills Found.
func (o *OpenWorkflows) Find(ctx context.Context) (err error) {
	o.Found, err = o.find(ctx)
	return err
}

// find asks Temporal's visibility which of the workflows are open, page by page.
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

func (o *OpenWorkflows) page(ctx context.Context, token []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := Briefly(ctx)
	defer cancel()
	found, err := o.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: o.Namespace, Query: o.Query + " AND ExecutionStatus = 'Running'", PageSize: visibilityPage, NextPageToken: token})
	return found, ofLimit(ctx, err)
}
