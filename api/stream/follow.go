package stream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/release/plan"
)

// staleAfter is how long nothing may be learnt before the readers are told.
const staleAfter = 15 * time.Second

// Source is how one release is followed.
type Source struct {
	// Look reads the release as it is now. Only one goroutine at a time calls it.
	Look func(ctx context.Context) (Snapshot, error)
	// Tail calls nudge whenever the release may have changed, until the context ends.
	Tail func(ctx context.Context, nudge func())
	// Every is how often the release is looked at although nobody has told of a change: for what changes unseen, and so that readers know that
	// the silence is none of the stream's own.
	Every time.Duration
}

// Snapshot is a release as its followers see it.
type Snapshot struct {
	// Value is the whole object, as it is answered.
	Value    any
	Workflow *plan.WorkflowRef
	// Over says that nothing about it changes any more.
	Over bool
	// Unanswered says why its own workflow was not heard, so that parts of Value may be old; "" when it was.
	Unanswered string
}

// follow keeps the broadcast of a release up to date until the release is over or nobody watches.
func follow(ctx context.Context, subject string, source Source, events *broadcast) {
	f := &releaseFollower{subject: subject, source: source, events: events, moved: make(chan struct{}, 1)}
	f.confirmed.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !f.refresh(ctx) {
		return
	}
	go f.watchSilence(ctx)
	go source.Tail(ctx, f.nudge)
	ticker := time.NewTicker(source.Every)
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

type releaseFollower struct {
	subject string
	source  Source
	events  *broadcast
	// moved has a value when the release may have changed since the last look.
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
	seen, err := f.source.Look(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil && (f.last == nil || problem.IsGone(err)):
		f.events.end(err)
		return false
	case err != nil:
		f.doubt(err.Error())
		return true
	}
	if seen.Unanswered != "" && f.last != nil {
		f.doubt(seen.Unanswered) // what was posted before says more than what Temporal knows by itself
		return true
	}
	if err := f.post(seen); err != nil {
		f.events.end(err)
		return false
	}
	if seen.Over {
		f.events.end(nil)
		return false
	}
	return true
}

func (f *releaseFollower) doubt(why string) { f.trouble.Store(&why) }

// post confirms the state, and posts it when it is news, or when the readers were told that it may be old.
func (f *releaseFollower) post(seen Snapshot) error {
	data, err := json.Marshal(seen.Value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.subject, err)
	}
	f.confirmed.Store(time.Now().UnixNano())
	if recovered := f.stale.Swap(false); bytes.Equal(data, f.last) && !recovered {
		return nil
	}
	f.last = data
	// Milliseconds keep the order over restarts of the engine, too.
	f.sequence = max(f.sequence+1, time.Now().UnixMilli())
	f.events.post("state", fmt.Sprintf("%s.%d", runOf(seen.Workflow), f.sequence), data)
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
			f.events.post("stale", "", data)
		}
	}
}

// nudge asks for a look at the release; one that is asked for already is enough.
func (f *releaseFollower) nudge() {
	select {
	case f.moved <- struct{}{}:
	default:
	}
}
