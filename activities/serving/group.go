package serving

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

const (
	// groupMaxWait is how long an attempt waits at most. groupTimeout is when the parties' work is cancelled, so that
	// results are returned before the activity's StartToCloseTimeout.
	groupMaxWait, groupTimeout = 50 * time.Second, 55 * time.Second
	// lateLimit is how long the others may continue after the first party has ended: then the workflow receives the
	// result of that one, and the others are unfinished.
	lateLimit = 10 * time.Second
)

// stepFunc executes a step in one party, and returns the resulting snapshot; nil if it is not known.
type stepFunc func(context.Context, *member) (*serving.DeploymentSnapshot, error)

// runStep executes a step in parties, concurrently. It fails, to be retried, if none of them has ended.
func (a *Activities) runStep(ctx context.Context, req serving.GroupRequest, one stepFunc) (_ *serving.GroupResult,
	err error) {
	t := newGroup(ctx, a.options, req)
	ctx, end := t.begin(ctx)
	defer func() { end(err == nil) }()
	return t.runAll(ctx, one)
}

// Create checks, without a write, whether the parties can run a version; if all can, it applies the version and waits
// until all their pods run it. The result reports how far that got, and how each party has ended. It has one attempt: a
// second one would not know what the first has written.
func (a *Activities) Create(ctx context.Context, req serving.GroupRequest) (*serving.GroupResult, error) {
	t := newGroup(ctx, a.options, req)
	t.once = true
	ctx, end := t.begin(ctx)
	defer end(true)
	result, _ := t.runAll(ctx, a.prepare)
	result.Through = serving.StepPrepare
	if slices.ContainsFunc(result.Parties, func(o serving.PartyOutcome) bool { return !o.Done }) ||
		!t.stillCurrent(ctx) {
		return result, nil
	}
	t.startPhase()
	result, _ = t.runAll(ctx, a.apply)
	result.Through = serving.StepApply
	return result, nil
}

// partyProgress is the progress of one party in the heartbeat.
type partyProgress struct {
	Domain string `json:"domain"`
	workload.Progress
}

// group is one attempt of a step in parties. They share a heartbeat and end soon after each other: when one party
// fails, the others end as soon as they only have to wait.
type group struct {
	*attempt.WorkerSlot
	*heartbeat.Details[[]partyProgress]
	options Options
	began   time.Time
	// once: there is no further attempt that could wait for an unreachable cluster.
	once bool
	// recorder records the heartbeat of stillCurrent; nil means the Temporal client of the activity's own worker.
	recorder heartbeat.Recorder
	members  []*member
}

// newGroup returns the group of the parties of a request, with the progress of the previous attempt.
func newGroup(ctx context.Context, options Options, req serving.GroupRequest) *group {
	t := &group{options: options, began: options.Now()}
	t.startPhase()
	first := make([]partyProgress, len(req.Parties))
	for i, party := range req.Parties {
		first[i] = partyProgress{party.Domain, workload.Progress{ElapsedSeconds: float64(party.SpentSeconds)}}
		t.members = append(t.members, &member{group: t, place: i, req: party})
	}
	t.Details = heartbeat.Take(ctx, first)
	return t
}

// begin starts the heartbeat; what the group does ends with the returned context. well says whether there is no further
// attempt.
func (t *group) begin(ctx context.Context) (within context.Context, end func(well bool)) {
	stop := t.Begin(ctx)
	within, cancel := context.WithTimeout(ctx, groupTimeout)
	return within, func(well bool) {
		cancel()
		stop(well)
	}
}

// stillCurrent reports whether no newer attempt exists: before the first write it asks Temporal once, if so much time
// has passed that another attempt may have been started. An attempt that was suspended or disconnected in the meantime
// would restore what has been deleted since.
func (t *group) stillCurrent(ctx context.Context) bool {
	if t.options.Now().Sub(t.began) < frozenAfter/2 {
		return ctx.Err() == nil
	}
	return t.Record(ctx, t.recorder) == nil && ctx.Err() == nil
}

// startPhase gives the work that begins now the whole remaining time of the step: the limit for late parties is reset.
func (t *group) startPhase() {
	t.WorkerSlot = attempt.NewWorkerSlot(t.options.Now, t.options.ListenFor, groupMaxWait-t.options.Now().Sub(t.began))
}

// runAll executes a step in each party, and returns how each has ended; if all are unfinished, err is why the first one
// is.
func (t *group) runAll(ctx context.Context, one stepFunc) (_ *serving.GroupResult, err error) {
	outcomes, errs := make([]serving.PartyOutcome, len(t.members)), make([]error, len(t.members))
	var ending sync.WaitGroup
	for i, m := range t.members {
		ending.Go(func() {
			var seen *serving.DeploymentSnapshot
			errs[i] = attempt.WithRecover(t.options.Logger, func() (err error) {
				seen, err = one(attempt.WithParent(ctx, m), m)
				return err
			})
			if outcomes[i] = m.outcome(seen, errs[i]); outcomes[i].Done {
				m.Note(func(p *workload.Progress) { p.Message = "" })
			}
			t.onEnd(errs[i])
		})
	}
	ending.Wait()
	if !slices.ContainsFunc(outcomes, func(o serving.PartyOutcome) bool { return !o.Unfinished }) {
		err = errs[0]
	}
	return &serving.GroupResult{Parties: outcomes}, err
}

// onEnd limits the time of the others after one party has ended with that error.
func (t *group) onEnd(err error) {
	if err != nil {
		t.EndBy(time.Time{})
	} else {
		t.EndBy(t.options.Now().Add(lateLimit))
	}
}

// member is one of the parties. It connects the attempt of that party with the group.
type member struct {
	*group
	// place is its index in the request.
	place int
	req   serving.PartyRequest
	// ready is the result of a check in this attempt.
	ready prepared
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
	return serving.PartyOutcome{Unfinished: true, SpentSeconds: int64(m.Progress().Elapsed() / time.Second)}
}

// BeginPart does nothing: the progress of a party covers all attempts of the group.
func (m *member) BeginPart(workload.Progress) {}

// Progress returns the progress of the party.
func (m *member) Progress() workload.Progress { return m.Details.Progress()[m.place].Progress }

// Note changes the progress of the party.
func (m *member) Note(change func(p *workload.Progress)) {
	m.Details.Note(func(all *[]partyProgress) {
		*all = slices.Clone(*all) // a heartbeat may be encoding the former list
		change(&(*all)[m.place].Progress)
	})
	if m.once && m.Progress().UnreachableSince != nil {
		m.EndBy(time.Time{})
	}
}

// Begin does nothing: the group reports the progress of its members.
func (m *member) Begin(context.Context) (stop func(well bool)) { return func(bool) {} }
