package serving

import (
	"context"
	"errors"
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
	// jointLongest is how long a step of several parties waits at most, and jointCut when what a party is about is broken off, so that the others' answers are
	// heard: before the activity's StartToCloseTimeout.
	jointLongest, jointCut = 50 * time.Second, 55 * time.Second
	// lateBy is by how much the others may be later than the first that has ended: then the workflow hears of that one, and asks the others alone.
	lateBy = 10 * time.Second
)

// step takes a step of the party that a request names, whose failure is the activity's, or of several at once, of which the answer says how each has ended.
func (a *Activities) step(ctx context.Context, req serving.PartyRequest, one func(context.Context, serving.PartyRequest) error) (*serving.TogetherResult, error) {
	if len(req.Others) == 0 {
		return nil, one(ctx, req)
	}
	all := append([]serving.PartyRequest{req}, req.Others...)
	all[0].Others = nil
	t := newJoint(ctx, a.options, all)
	stop := t.details.Begin(ctx)
	defer stop(true) // there is no other attempt
	ctx, cancel := context.WithTimeout(ctx, jointCut)
	defer cancel()
	result := &serving.TogetherResult{Parties: make([]serving.PartyOutcome, len(all))}
	var ending sync.WaitGroup
	for i, m := range t.members {
		ending.Go(func() {
			err := attempt.Recovered(a.options.Logger, func() error { return one(attempt.Within(ctx, m), all[i]) })
			result.Parties[i] = m.outcome(err)
			m.Note(func(p *workloadops.Progress) { p.Message = "" })
			t.ended(err)
		})
	}
	ending.Wait()
	return result, nil
}

// joint is one attempt at a step of several parties. They share a heartbeat, and end soon after each other: when something keeps one of them from its work,
// or has it fail, the others end as soon as they have nothing to do but wait.
type joint struct {
	*attempt.Place
	details *heartbeat.Details[workloadops.Progress]
	now     func() time.Time
	members []*member
}

func newJoint(ctx context.Context, options Options, all []serving.PartyRequest) *joint {
	t := &joint{Place: attempt.NewPlace(options.Now, options.ListenFor, jointLongest), details: heartbeat.Take(ctx, workloadops.Progress{}), now: options.Now}
	for _, req := range all {
		t.members = append(t.members, &member{joint: t, of: req.Domain})
	}
	return t
}

// ended says that one has ended, with that error.
func (t *joint) ended(err error) {
	if err != nil {
		t.EndBy(time.Time{})
	} else {
		t.EndBy(t.now().Add(lateBy))
	}
}

// tell has the heartbeat say what each waits for.
func (t *joint) tell() {
	t.details.Note(func(p *workloadops.Progress) {
		var texts []string
		for _, m := range t.members {
			if text := m.Now().Message; text != "" {
				texts = append(texts, m.of+": "+text)
			}
		}
		p.Message = strings.Join(texts, "; ")
	})
}

// member is one of the parties: the whole that its own attempt is a part of.
type member struct {
	*joint
	of string

	mu       sync.Mutex
	progress workloadops.Progress
}

// outcome is how its attempt has ended: a failure is told if it is final.
func (m *member) outcome(err error) serving.PartyOutcome {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return serving.PartyOutcome{Done: true}
	case errors.As(err, &app) && app.NonRetryable():
		return serving.PartyOutcome{Kind: failure.Kind(app.Type()), Message: app.Message()}
	}
	return serving.PartyOutcome{SpentSeconds: int64(m.Now().Elapsed() / time.Second)}
}

// Begins implements attempt.Whole.
func (m *member) Begins(first workloadops.Progress) {
	m.change(func(p *workloadops.Progress) { *p = first })
}

// Now implements attempt.Details.
func (m *member) Now() workloadops.Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.progress
}

// Note implements attempt.Details. Alone it can wait for a cluster that does not answer, and the workflow hears of it.
func (m *member) Note(change func(p *workloadops.Progress)) {
	before, after := m.change(change)
	if after.UnreachableSince != nil {
		m.EndBy(time.Time{})
	}
	if after.Message != before.Message {
		m.tell()
	}
}

func (m *member) change(change func(p *workloadops.Progress)) (before, after workloadops.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.progress
	change(&m.progress)
	return before, m.progress
}

// Begin implements attempt.Details: the whole tells of its members.
func (m *member) Begin(context.Context) (stop func(well bool)) { return func(bool) {} }

// Record implements attempt.Details.
func (m *member) Record(ctx context.Context, recorder heartbeat.Recorder) error {
	return m.details.Record(ctx, recorder)
}
