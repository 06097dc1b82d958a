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
)

const (
	// pollEvery is how often what running activities report of their pods is looked at while somebody watches.
	pollEvery = 2 * time.Second
	// tailTimeout bounds one long poll; the server answers after 20 seconds at most.
	tailTimeout = 40 * time.Second
	// tailPause keeps a long poll that fails at once from turning in circles.
	tailPause = time.Second
)

// OfWorkflow follows a release that is one workflow: it waits on the history of the workflow, and looks every 2 seconds at what running
// activities report.
func OfWorkflow(b *backend.Backend, workflowID string, look func(ctx context.Context) (Snapshot, error)) Source {
	history := workflowHistory{Backend: b, workflowID: workflowID}
	return Source{Look: look, Tail: history.tail, Every: pollEvery}
}

// workflowHistory is the history of a workflow's newest run.
type workflowHistory struct {
	*backend.Backend
	workflowID string
}

// tail waits on the history of the release's newest run, and begins anew when that run ends or cannot be reached.
func (h workflowHistory) tail(ctx context.Context, nudge func()) {
	for ctx.Err() == nil {
		if err := h.tailRun(ctx, nudge); err != nil && ctx.Err() == nil {
			h.Log.Debug("cannot follow the history", "workflow", h.workflowID, "error", err)
		}
		nudge()
		select {
		case <-ctx.Done():
		case <-time.After(tailPause):
		}
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
			return nil // not started yet, or forgotten: the next look says which
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
	request *workflowservice.GetWorkflowExecutionHistoryRequest) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return h.Temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, request)
}
