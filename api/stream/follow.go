package stream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/audit"
)

// staleAfter is how long reads may fail before the readers get a "stale" event.
const staleAfter = 15 * time.Second

// Source defines how one release is followed.
type Source struct {
	// Read reads the current release. Only one goroutine at a time calls it.
	Read func(ctx context.Context) (Snapshot, error)
	// Watch calls nudge whenever the release may have changed, until the context ends.
	Watch func(ctx context.Context, nudge func())
	// Interval is how often the release is read without a notification: for changes without one, and to confirm that
	// the stream works.
	Interval time.Duration
}

// Snapshot is a release as sent to the readers.
type Snapshot struct {
	// Value is the complete object, as in a GET response.
	Value    any
	Workflow *audit.WorkflowRef
	// Ended means that the release no longer changes.
	Ended bool
	// Unanswered is the reason why the release's workflow did not answer, so that parts of Value may be outdated; "" if
	// it answered.
	Unanswered string
}

// Of returns the stream's snapshot of a release that runs in one workflow.
func Of[V any](seen backend.Snapshot[V], workflow *audit.WorkflowRef) Snapshot {
	return Snapshot{Value: seen.Value, Workflow: workflow, Ended: !seen.Open && !seen.Starting,
		Unanswered: seen.Unanswered}
}

// follow keeps the broadcast of a release up to date until the release has ended or the last reader has left.
func follow(ctx context.Context, subject string, source Source, events *broadcast) {
	f := &releaseFollower{subject: subject, source: source, events: events, changed: make(chan struct{}, 1)}
	f.confirmed.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !f.refresh(ctx) {
		return
	}
	go f.watchStaleness(ctx)
	go source.Watch(ctx, f.nudge)
	ticker := time.NewTicker(source.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		case <-ticker.C:
		}
		if !f.refresh(ctx) {
			return
		}
	}
}

type releaseFollower struct {
	subject string
	source  Source
	events  *broadcast
	// changed has a value when the release may have changed since the last read.
	changed chan struct{}
	// confirmed is the time of the last successful read, in nanoseconds; stale is true after a "stale" event was sent.
	confirmed   atomic.Int64
	stale       atomic.Bool
	staleReason atomic.Pointer[string]
	sequence    int64
	last        []byte
}

// refresh reads the release and publishes it if it has changed. It returns false when there is nothing more to follow.
func (f *releaseFollower) refresh(ctx context.Context) bool {
	seen, err := f.source.Read(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && (f.last == nil || problem.IsNotFound(err)):
		f.events.end(err)
		return false
	case err != nil:
		f.noteFailure(err.Error())
		return true
	}
	if seen.Unanswered != "" && f.last != nil {
		// the last published state is more detailed than what Temporal has without the worker
		f.noteFailure(seen.Unanswered)
		return true
	}
	if err := f.publish(seen); err != nil {
		f.events.end(err)
		return false
	}
	if seen.Ended {
		f.events.end(nil)
		return false
	}
	return true
}

func (f *releaseFollower) noteFailure(why string) { f.staleReason.Store(&why) }

// publish confirms the state, and publishes it if it has changed or a "stale" event was sent.
func (f *releaseFollower) publish(seen Snapshot) error {
	data, err := json.Marshal(seen.Value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.subject, err)
	}
	f.confirmed.Store(time.Now().UnixNano())
	if recovered := f.stale.Swap(false); bytes.Equal(data, f.last) && !recovered {
		return nil
	}
	f.last = data
	// Milliseconds keep event IDs ascending across restarts of the engine.
	f.sequence = max(f.sequence+1, time.Now().UnixMilli())
	f.events.publish("state", fmt.Sprintf("%s.%d", runOf(seen.Workflow), f.sequence), data)
	return nil
}

func runOf(workflow *audit.WorkflowRef) string {
	if workflow == nil {
		return "none"
	}
	return cmp.Or(workflow.RunID, "none")
}

// watchStaleness sends a "stale" event when no read has succeeded for staleAfter.
func (f *releaseFollower) watchStaleness(ctx context.Context) {
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
		why := "the engine cannot read the current state"
		if trouble := f.staleReason.Load(); trouble != nil {
			why += ": " + *trouble
		}
		data, err := json.Marshal(map[string]any{"since": since.UTC().Truncate(time.Second), "reason": why})
		if err == nil {
			f.events.publish("stale", "", data)
		}
	}
}

// nudge requests a read of the release; requests are coalesced.
func (f *releaseFollower) nudge() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

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
	watch := func(ctx context.Context, nudge func()) { tail(ctx, b, workflowID, nudge) }
	return Source{Read: look, Watch: watch, Interval: pollInterval}
}

// tail long-polls the history of the newest run, and starts again when that run ends or cannot be reached.
func tail(ctx context.Context, b *backend.Backend, workflowID string, nudge func()) {
	for ctx.Err() == nil {
		if err := tailRun(ctx, b, workflowID, nudge); err != nil && ctx.Err() == nil {
			b.Log.Debug("cannot follow the history", "workflow", workflowID, "error", err)
		}
		nudge()
		_ = pause.For(ctx, tailPause)
	}
}

func tailRun(ctx context.Context, b *backend.Backend, workflowID string, nudge func()) error {
	request := &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: b.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID},
		WaitNewEvent: true, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
	}
	for {
		page, err := historyPage(ctx, b, request)
		if problem.Has[*serviceerror.NotFound](err) {
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

func historyPage(ctx context.Context, b *backend.Backend, request *workflowservice.GetWorkflowExecutionHistoryRequest) (
	*workflowservice.GetWorkflowExecutionHistoryResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	return b.Temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, request)
}
