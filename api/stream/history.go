package stream

import (
	"context"
	"errors"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/pause"
)

const (
	// pollInterval is how often the progress of running activities is read while a release is watched.
	pollInterval = 2 * time.Second
	// tailTimeout is the time limit of one long poll; the server answers after at most 20 seconds.
	tailTimeout = 40 * time.Second
	// tailPause is the pause between long polls, so that a failing one is not repeated in a tight loop.
	tailPause = time.Second
)

// FromWorkflow follows a release that is one workflow: it long-polls the workflow's history, and reads the progress of
// its activities every 2 seconds.
func FromWorkflow(b *backend.Backend, workflowID string, look func(ctx context.Context) (Snapshot, error)) Source {
	history := workflowHistory{Backend: b, workflowID: workflowID}
	return Source{Read: look, Watch: history.tail, Interval: pollInterval}
}

// workflowHistory is the history of a workflow's newest run.
type workflowHistory struct {
	*backend.Backend
	workflowID string
}

// tail long-polls the history of the newest run, and starts again when that run ends or cannot be reached.
func (h workflowHistory) tail(ctx context.Context, nudge func()) {
	for ctx.Err() == nil {
		if err := h.tailRun(ctx, nudge); err != nil && ctx.Err() == nil {
			h.Log.Debug("cannot follow the history", "workflow", h.workflowID, "error", err)
		}
		nudge()
		_ = pause.For(ctx, tailPause)
	}
}

func (h workflowHistory) tailRun(ctx context.Context, nudge func()) error {
	request := &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: h.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: h.workflowID},
		WaitNewEvent: true, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
	}
	for {
		page, err := h.historyPage(ctx, request)
		var missing *serviceerror.NotFound
		if errors.As(err, &missing) {
			return nil // not started yet, or deleted: the next read distinguishes the two
		}
		if err != nil {
			return err
		}
		if len(page.GetHistory().GetEvents()) > 0 {
			nudge()
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return nil // the run is closed
		}
	}
}

func (h workflowHistory) historyPage(ctx context.Context,
	request *workflowservice.GetWorkflowExecutionHistoryRequest) (*workflowservice.GetWorkflowExecutionHistoryResponse,
	error) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return h.Temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, request)
}
