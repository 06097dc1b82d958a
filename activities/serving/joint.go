package serving

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

const (
	// groupMaxWait is how long a step of several parties waits at most. groupTimeout is when the parties' work is
	// cancelled, so that the results of the others are returned before the activity's StartToCloseTimeout.
	groupMaxWait, groupTimeout = 50 * time.Second, 55 * time.Second
	// lateLimit is how long the others may continue after the first party has ended: then the workflow receives the
	// result of that one, and executes the others separately.
	lateLimit = 10 * time.Second
)

// stepFunc executes a step in one party, and returns the resulting snapshot; nil if it is not known.
type stepFunc func(context.Context, serving.PartyRequest) (*serving.DeploymentSnapshot, error)

// runStep executes a step: in the party that a request names, whose failure is that of the activity; or in several
// parties at once, and the result reports how each has ended.
func (a *Activities) runStep(ctx context.Context, req serving.PartyRequest, one stepFunc) (*serving.GroupResult,
	error) {
	if len(req.Others) == 0 {
		seen, err := one(ctx, req)
		if err != nil {
			return nil, err
		}
		return &serving.GroupResult{Parties: []serving.PartyOutcome{{Done: true, Snapshot: seen}}}, nil
	}
	t := newGroup(ctx, a.options, req)
	ctx, end := t.begin(ctx)
	defer end()
	return &serving.GroupResult{Parties: t.runAll(ctx,
		func(ctx context.Context, m *member) (*serving.DeploymentSnapshot, error) { return one(ctx, m.req) })}, nil
}

// Create checks, without a write, whether the parties can run a version; if all can, it applies the version and waits
// until all their pods run it. The result reports how far that got, and how each party has ended.
func (a *Activities) Create(ctx context.Context, req serving.PartyRequest) (*serving.GroupResult, error) {
	t := newGroup(ctx, a.options, req)
	ctx, end := t.begin(ctx)
	defer end()
	checked := t.runAll(ctx, func(ctx context.Context, m *member) (_ *serving.DeploymentSnapshot, err error) {
		m.ready, err = a.checkReady(ctx, m.req)
		return nil, err
	})
	if slices.ContainsFunc(checked, func(o serving.PartyOutcome) bool { return !o.Done }) || !t.stillCurrent(ctx) {
		return &serving.GroupResult{Parties: checked, CreatePhase: serving.CreateChecked}, nil
	}
	t.startPhase()
	applied := t.runAll(ctx, func(ctx context.Context, m *member) (*serving.DeploymentSnapshot, error) {
		return a.applyVersion(ctx, m.req, m.ready)
	})
	return &serving.GroupResult{Parties: applied, CreatePhase: serving.CreateApplied}, nil
}

// group is one attempt of a step in several parties. They share a heartbeat and end soon after each other: when one
// party fails or is blocked, the others end as soon as they only have to wait.
type group struct {
	*attempt.WorkerSlot
	details *heartbeat.Details[workloadops.Progress]
	options Options
	began   time.Time
	// recorder records the heartbeat of stillCurrent; nil means the Temporal client of the activity's own worker.
	recorder heartbeat.Recorder
	members  []*member
}

// newGroup returns the group of the party that a request names, and of its Others.
func newGroup(ctx context.Context, options Options, req serving.PartyRequest) *group {
	t := &group{details: heartbeat.Take(ctx, workloadops.Progress{}), options: options, began: options.Now()}
	t.startPhase()
	for _, of := range append([]serving.PartyRequest{req}, req.Others...) {
		of.Others = nil
		t.members = append(t.members, &member{group: t, req: of})
	}
	return t
}

// begin starts the heartbeat; what the group does ends with the returned context.
func (t *group) begin(ctx context.Context) (within context.Context, end func()) {
	stop := t.details.Begin(ctx)
	within, cancel := context.WithTimeout(ctx, groupTimeout)
	return within, func() {
		cancel()
		stop(true) // there is no further attempt
	}
}

// stillCurrent reports whether no newer attempt exists: before the first write it asks Temporal once, if so much time
// has passed that another attempt may have been started. An attempt that was suspended or disconnected in the meantime
// would restore what has been deleted since.
func (t *group) stillCurrent(ctx context.Context) bool {
	if t.options.Now().Sub(t.began) < frozenAfter/2 {
		return ctx.Err() == nil
	}
	return t.details.Record(ctx, t.recorder) == nil && ctx.Err() == nil
}

// startPhase gives the work that begins now the whole remaining time of the step: the limit for late parties is reset.
func (t *group) startPhase() {
	t.WorkerSlot = attempt.NewWorkerSlot(t.options.Now, t.options.ListenFor, groupMaxWait-t.options.Now().Sub(t.began))
}

// runAll executes a function for each party, and returns how each has ended.
func (t *group) runAll(ctx context.Context, one func(context.Context, *member) (*serving.DeploymentSnapshot,
	error)) []serving.PartyOutcome {
	outcomes := make([]serving.PartyOutcome, len(t.members))
	var ending sync.WaitGroup
	for i, m := range t.members {
		ending.Go(func() {
			var seen *serving.DeploymentSnapshot
			err := attempt.WithRecover(t.options.Logger, func() (err error) {
				seen, err = one(attempt.WithParent(ctx, m), m)
				return err
			})
			outcomes[i] = m.outcome(seen, err)
			m.Note(func(p *workloadops.Progress) { p.Message = "" })
			t.onEnd(err)
		})
	}
	ending.Wait()
	return outcomes
}

// onEnd limits the time of the others after one party has ended with that error.
func (t *group) onEnd(err error) {
	if err != nil {
		t.EndBy(time.Time{})
	} else {
		t.EndBy(t.options.Now().Add(lateLimit))
	}
}

// updateMessage makes the heartbeat report what each party waits for.
func (t *group) updateMessage() {
	t.details.Note(func(p *workloadops.Progress) {
		var texts []string
		for _, m := range t.members {
			if text := m.Progress().Message; text != "" {
				texts = append(texts, m.req.Domain+": "+text)
			}
		}
		p.Message = strings.Join(texts, "; ")
	})
}

// member is one of the parties. It connects the attempt of that party with the group.
type member struct {
	*group
	req serving.PartyRequest
	// ready is the result of the check before anything is written.
	ready prepared

	mu       sync.Mutex
	progress workloadops.Progress
}

// outcome returns how the party's attempt has ended: a failure is reported only if it is final.
func (m *member) outcome(seen *serving.DeploymentSnapshot, err error) serving.PartyOutcome {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return serving.PartyOutcome{Done: true, Snapshot: seen}
	case errors.As(err, &app) && app.NonRetryable():
		return serving.PartyOutcome{Kind: failure.Kind(app.Type()), Message: app.Message()}
	}
	return serving.PartyOutcome{SpentSeconds: int64(m.Progress().Elapsed() / time.Second)}
}

// Begins sets the initial progress of the party's attempt.
func (m *member) BeginPart(first workloadops.Progress) {
	m.change(func(p *workloadops.Progress) { *p = first })
}

// Now returns the progress of the party's attempt.
func (m *member) Progress() workloadops.Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress
}

// Note changes the progress. If the cluster is unreachable, the party's work in the group ends: an activity of its own
// can wait for the cluster, and reports that to the workflow.
func (m *member) Note(change func(p *workloadops.Progress)) {
	before, after := m.change(change)
	if after.UnreachableSince != nil {
		m.EndBy(time.Time{})
	}
	if after.Message != before.Message {
		m.updateMessage()
	}
}

func (m *member) change(change func(p *workloadops.Progress)) (before, after workloadops.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.progress
	change(&m.progress)
	return before, m.progress
}

// Begin does nothing: the group reports the progress of its members.
func (m *member) Begin(context.Context) (stop func(well bool)) { return func(bool) {} }

// Record records a heartbeat of the group.
func (m *member) Record(ctx context.Context, recorder heartbeat.Recorder) error {
	return m.details.Record(ctx, recorder)
}
