package api

import (
	"context"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/v1alpha1"
)

// releaseReading is how releases of one kind are read; S is what is found.
type releaseReading[S any] struct {
	workflowID string
	// record is the release's record, whole.
	record func() (*v1alpha1.ReleaseRecord, error)
	// open reads a release whose workflow runs, complete one that is over.
	open     func(*workflowservice.DescribeWorkflowExecutionResponse) (S, error)
	complete func(*v1alpha1.ReleaseRecord) (S, error)
	// lost reads one that was never recorded as over and whose workflow does not run; nil: it is not known.
	lost func(*workflowservice.DescribeWorkflowExecutionResponse, *v1alpha1.ReleaseRecord) (S, error)
}

// read reads a release as it is now: from its workflow while that runs, and from its record when it is over. While Temporal is away it answers what
// the records know: releases that are over.
func read[S any](ctx context.Context, h *handlers, r releaseReading[S]) (S, error) {
	var nothing S
	described, away := h.describe(ctx, r.workflowID)
	if away == nil && described != nil && isOpen(described) {
		return r.open(described)
	}
	record, err := r.record()
	switch {
	case isGone(err):
		return nothing, err
	case away != nil && (err != nil || record.Outcome == nil):
		return nothing, away
	case err != nil:
		return nothing, err
	case record.Outcome != nil:
		return r.complete(record)
	}
	return r.lost(described, record)
}

// howLost says how a workflow ended that did not end by itself.
func howLost(status enumspb.WorkflowExecutionStatus) string {
	switch status {
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return "was terminated"
	case enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:
		return "ran out of time"
	default:
		return "ended without a result"
	}
}
