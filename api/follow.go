package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

const (
	// pollEvery is how often the pods of running services are looked at while somebody watches (design §8.1).
	pollEvery = 2 * time.Second
	// staleAfter is how long nothing may be learnt before the readers are told.
	staleAfter = 15 * time.Second
	// tailTimeout bounds one long poll; the server answers after 20 seconds at most.
	tailTimeout = 40 * time.Second
	// tailPause keeps a long poll that fails at once from turning in circles.
	tailPause = time.Second
)

// follow keeps the bulletin of a task up to date until the task is over or nobody watches. It waits on the history of the task's workflow, in
// which its services' begins and ends show, and asks for the state when that moved; and it looks at the running services' pods every 2 seconds.
func (h *handlers) follow(ctx context.Context, task string, news *bulletin) {
	f := &taskFollower{handlers: h, id: task, news: news, reader: newTaskReader(h), moved: make(chan struct{}, 1)}
	f.confirmed.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !f.refresh(ctx) {
		return
	}
	go f.watchSilence(ctx)
	go f.tail(ctx)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.moved:
		case <-ticker.C:
		}
		if !f.refresh(ctx) {
			return
		}
	}
}

type taskFollower struct {
	*handlers
	id     string
	news   *bulletin
	reader *taskReader
	// moved has a value when the history has grown since the last look.
	moved chan struct{}
	// confirmed is when the state was last known to be true, in nanoseconds; stale says that the readers were told of a silence.
	confirmed atomic.Int64
	stale     atomic.Bool
	trouble   atomic.Pointer[string]
	sequence  int64
	last      []byte
}

// refresh looks at the task and posts it when it changed. It answers false when there is nothing more to follow.
func (f *taskFollower) refresh(ctx context.Context) bool {
	seen, err := f.readTask(ctx, f.id, f.reader)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && (f.last == nil || isGone(err)):
		f.news.end(err)
		return false
	case err != nil:
		f.doubt(err.Error())
		return true
	}
	if seen.unanswered != "" && f.last != nil {
		f.doubt(seen.task.Reason) // what was posted before says more than what Temporal knows by itself
		return true
	}
	if err := f.post(seen); err != nil {
		f.news.end(err)
		return false
	}
	if !seen.open && !seen.starting {
		f.news.end(nil)
		return false
	}
	return true
}

// isGone says whether the task was deleted while it was watched.
func isGone(err error) bool {
	var answer *problemError
	return isFailure(err, failure.NotFound) || errors.As(err, &answer) && answer.Status == kindNotFound.status
}

func (f *taskFollower) doubt(why string) { f.trouble.Store(&why) }

// post confirms the state, and posts it when it is news, or when the readers were told that it may be old.
func (f *taskFollower) post(seen sight) error {
	data, err := json.Marshal(seen.task)
	if err != nil {
		return fmt.Errorf("encode task %s: %w", f.id, err)
	}
	f.confirmed.Store(time.Now().UnixNano())
	if recovered := f.stale.Swap(false); bytes.Equal(data, f.last) && !recovered {
		return nil
	}
	f.last = data
	// Milliseconds keep the order over restarts of the engine, too.
	f.sequence = max(f.sequence+1, time.Now().UnixMilli())
	f.news.post("state", fmt.Sprintf("%s.%d", runOf(seen.task), f.sequence), data)
	return nil
}

func runOf(task plan.Task) string {
	if task.Workflow == nil {
		return "none"
	}
	return cmp.Or(task.Workflow.RunID, "none")
}

// watchSilence tells the readers when nothing could be learnt for some time.
func (f *taskFollower) watchSilence(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		since := time.Unix(0, f.confirmed.Load())
		if time.Since(since) < staleAfter || f.stale.Swap(true) {
			continue
		}
		why := "the engine could not learn whether anything changed"
		if trouble := f.trouble.Load(); trouble != nil {
			why += ": " + *trouble
		}
		data, err := json.Marshal(map[string]any{"since": since.UTC().Truncate(time.Second), "reason": why})
		if err == nil {
			f.news.post("stale", "", data)
		}
	}
}

// tail waits on the history of the task's newest run, and begins anew when that run ends or cannot be reached.
func (f *taskFollower) tail(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.tailRun(ctx); err != nil && ctx.Err() == nil {
			f.Log.Debug("cannot follow the history", "task", f.id, "error", err)
		}
		f.nudge()
		select {
		case <-ctx.Done():
		case <-time.After(tailPause):
		}
	}
}

func (f *taskFollower) tailRun(ctx context.Context) error {
	request := &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: f.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: plan.WorkflowID(f.id)},
		WaitNewEvent: true, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
	}
	for {
		page, err := f.historyPage(ctx, request)
		var missing *serviceerror.NotFound
		if errors.As(err, &missing) {
			return nil // not started yet, or forgotten: the next look says which
		}
		if err != nil {
			return err
		}
		if len(page.GetHistory().GetEvents()) > 0 {
			f.nudge()
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return nil // the run is closed
		}
	}
}

func (f *taskFollower) historyPage(ctx context.Context, request *workflowservice.GetWorkflowExecutionHistoryRequest) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return f.Temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, request)
}

// nudge asks for a look at the task; one that is asked for already is enough.
func (f *taskFollower) nudge() {
	select {
	case f.moved <- struct{}{}:
	default:
	}
}
