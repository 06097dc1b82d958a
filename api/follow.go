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

// follow keeps the bulletin of a release up to date until the release is over or nobody watches. It waits on the history of the release's
// workflow and asks for the state when that moved; and it looks at what running activities report of their pods every 2 seconds. A serving, whose
// state is in its KusciaDeployment, is looked at when that changed.
func (h *handlers) follow(ctx context.Context, workflowID string, news *bulletin) {
	f := &releaseFollower{handlers: h, workflowID: workflowID, news: news, moved: make(chan struct{}, 1)}
	every, tail := pollEvery, f.tail
	if id, ok := servingOfSubject(workflowID); ok {
		f.look, every, tail = h.lookAtServing(id), confirmServingEvery, func(ctx context.Context) { f.tailServing(ctx, id) }
	} else {
		f.look = h.looker(workflowID)
	}
	f.confirmed.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !f.refresh(ctx) {
		return
	}
	go f.watchSilence(ctx)
	go tail(ctx)
	ticker := time.NewTicker(every)
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

// glimpse is a release as its followers see it.
type glimpse struct {
	// value is the whole object, as it is answered.
	value    any
	workflow *plan.WorkflowRef
	// over says that nothing about it changes any more.
	over bool
	// unanswered says why its own workflow was not heard, so that parts of value may be old; "" when it was.
	unanswered string
}

// looker is how a release is looked at again and again.
func (h *handlers) looker(workflowID string) func(ctx context.Context) (glimpse, error) {
	if key, ok := rolloutOfWorkflow(workflowID); ok {
		reader := &rolloutReader{handlers: h}
		return func(ctx context.Context) (glimpse, error) {
			seen, err := reader.read(ctx, key)
			return glimpse{value: seen.status, workflow: seen.status.Workflow, over: !seen.open && !seen.starting, unanswered: seen.unanswered}, err
		}
	}
	task, _ := plan.TaskOfWorkflow(workflowID)
	reader := newTaskReader(h)
	return func(ctx context.Context) (glimpse, error) {
		seen, err := h.readTask(ctx, task, reader)
		unanswered := seen.unanswered
		if unanswered != "" {
			unanswered = seen.task.Reason
		}
		return glimpse{value: seen.task, workflow: seen.task.Workflow, over: !seen.open && !seen.starting, unanswered: unanswered}, err
	}
}

type releaseFollower struct {
	*handlers
	workflowID string
	news       *bulletin
	look       func(ctx context.Context) (glimpse, error)
	// moved has a value when the history has grown since the last look.
	moved chan struct{}
	// confirmed is when the state was last known to be true, in nanoseconds; stale says that the readers were told of a silence.
	confirmed atomic.Int64
	stale     atomic.Bool
	trouble   atomic.Pointer[string]
	sequence  int64
	last      []byte
}

// refresh looks at the release and posts it when it changed. It answers false when there is nothing more to follow.
func (f *releaseFollower) refresh(ctx context.Context) bool {
	seen, err := f.look(ctx)
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
		f.doubt(seen.unanswered) // what was posted before says more than what Temporal knows by itself
		return true
	}
	if err := f.post(seen); err != nil {
		f.news.end(err)
		return false
	}
	if seen.over {
		f.news.end(nil)
		return false
	}
	return true
}

// isGone says whether the release was deleted while it was watched.
func isGone(err error) bool {
	var answer *problemError
	return isFailure(err, failure.NotFound) || errors.As(err, &answer) && answer.Status == kindNotFound.status
}

func (f *releaseFollower) doubt(why string) { f.trouble.Store(&why) }

// post confirms the state, and posts it when it is news, or when the readers were told that it may be old.
func (f *releaseFollower) post(seen glimpse) error {
	data, err := json.Marshal(seen.value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.workflowID, err)
	}
	f.confirmed.Store(time.Now().UnixNano())
	if recovered := f.stale.Swap(false); bytes.Equal(data, f.last) && !recovered {
		return nil
	}
	f.last = data
	// Milliseconds keep the order over restarts of the engine, too.
	f.sequence = max(f.sequence+1, time.Now().UnixMilli())
	f.news.post("state", fmt.Sprintf("%s.%d", runOf(seen.workflow), f.sequence), data)
	return nil
}

func runOf(workflow *plan.WorkflowRef) string {
	if workflow == nil {
		return "none"
	}
	return cmp.Or(workflow.RunID, "none")
}

// watchSilence tells the readers when nothing could be learnt for some time.
func (f *releaseFollower) watchSilence(ctx context.Context) {
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

// tail waits on the history of the release's newest run, and begins anew when that run ends or cannot be reached.
func (f *releaseFollower) tail(ctx context.Context) {
	for ctx.Err() == nil {
		if err := f.tailRun(ctx); err != nil && ctx.Err() == nil {
			f.Log.Debug("cannot follow the history", "workflow", f.workflowID, "error", err)
		}
		f.nudge()
		select {
		case <-ctx.Done():
		case <-time.After(tailPause):
		}
	}
}

func (f *releaseFollower) tailRun(ctx context.Context) error {
	request := &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: f.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: f.workflowID},
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

func (f *releaseFollower) historyPage(ctx context.Context, request *workflowservice.GetWorkflowExecutionHistoryRequest) (*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return f.Temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, request)
}

// nudge asks for a look at the release; one that is asked for already is enough.
func (f *releaseFollower) nudge() {
	select {
	case f.moved <- struct{}{}:
	default:
	}
}
