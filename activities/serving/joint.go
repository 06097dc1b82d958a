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
	// jointLongest is how long a step of several parties waits at most, and jointCut when what a party is about is broken off, so that the others' answers are
	// heard: before the activity's StartToCloseTimeout.
	jointLongest, jointCut = 50 * time.Second, 55 * time.Second
	// lateBy is by how much the others may be later than the first that has ended: then the workflow hears of that one, and asks the others alone.
	lateBy = 10 * time.Second
)

// take is how a party takes a step, and what it is seen to run then; nil when that is not known.
type take func(context.Context, serving.PartyRequest) (*serving.Seen, error)

// step takes a step of the party that a request names, whose failure is the activity's, or of several at once, of which the answer says how each has ended.
func (a *Activities) step(ctx context.Context, req serving.PartyRequest, one take) (*serving.TogetherResult, error) {
	if len(req.Others) == 0 {
		seen, err := one(ctx, req)
		if err != nil {
			return nil, err
		}
		return &serving.TogetherResult{Parties: []serving.PartyOutcome{{Done: true, Seen: seen}}}, nil
	}
	t := newJoint(ctx, a.options, req)
	ctx, end := t.begin(ctx)
	defer end()
	return &serving.TogetherResult{Parties: t.all(ctx, func(ctx context.Context, m *member) (*serving.Seen, error) { return one(ctx, m.req) })}, nil
}

// Create says, without a write, whether the parties can run a version, and once all can it brings them there and waits until all their pods run it. The answer says
// how far that has come, and how each party has ended.
func (a *Activities) Create(ctx context.Context, req serving.PartyRequest) (*serving.TogetherResult, error) {
	t := newJoint(ctx, a.options, req)
	ctx, end := t.begin(ctx)
	defer end()
	asked := t.all(ctx, func(ctx context.Context, m *member) (_ *serving.Seen, err error) {
		m.ready, err = a.ready(ctx, m.req)
		return nil, err
	})
	if slices.ContainsFunc(asked, func(o serving.PartyOutcome) bool { return !o.Done }) || !t.isWanted(ctx) {
		return &serving.TogetherResult{Parties: asked, Through: serving.ThroughAsked}, nil
	}
	t.goOn()
	brought := t.all(ctx, func(ctx context.Context, m *member) (*serving.Seen, error) { return a.bring(ctx, m.req, m.ready) })
	return &serving.TogetherResult{Parties: brought, Through: serving.ThroughBegun}, nil
}

// joint is one attempt at a step of several parties. They share a heartbeat, and end soon after each other: when something keeps one of them from its work,
// or has it fail, the others end as soon as they have nothing to do but wait.
type joint struct {
	*attempt.Place
	details *heartbeat.Details[workloadops.Progress]
	options Options
	began   time.Time
	// recorder takes the heartbeat that asks; nil: the Temporal client of the activity's own worker.
	recorder heartbeat.Recorder
	members  []*member
}

// newJoint is one of the party that a request names, and of its others.
func newJoint(ctx context.Context, options Options, req serving.PartyRequest) *joint {
	t := &joint{details: heartbeat.Take(ctx, workloadops.Progress{}), options: options, began: options.Now()}
	t.goOn()
	for _, of := range append([]serving.PartyRequest{req}, req.Others...) {
		of.Others = nil
		t.members = append(t.members, &member{joint: t, req: of})
	}
	return t
}

// begin begins to tell how it stands; what it does ends with its context.
func (t *joint) begin(ctx context.Context) (within context.Context, end func()) {
	stop := t.details.Begin(ctx)
	within, cancel := context.WithTimeout(ctx, jointCut)
	return within, func() {
		cancel()
		stop(true) // there is no other attempt
	}
}

// isWanted says that nobody has taken its place: before it writes for the first time it asks Temporal, if so long has passed that another attempt may have been made. One
// that was frozen, or cut off, since it began would bring back what has been deleted meanwhile.
func (t *joint) isWanted(ctx context.Context) bool {
	if t.options.Now().Sub(t.began) < frozenFor/2 {
		return ctx.Err() == nil
	}
	return t.details.Record(ctx, t.recorder) == nil && ctx.Err() == nil
}

// goOn has what is begun now take as long as it needs, within the time of the whole: nobody is late any more.
func (t *joint) goOn() {
	t.Place = attempt.NewPlace(t.options.Now, t.options.ListenFor, jointLongest-t.options.Now().Sub(t.began))
}

// all has each party do something, and says how it has ended.
func (t *joint) all(ctx context.Context, one func(context.Context, *member) (*serving.Seen, error)) []serving.PartyOutcome {
	outcomes := make([]serving.PartyOutcome, len(t.members))
	var ending sync.WaitGroup
	for i, m := range t.members {
		ending.Go(func() {
			var seen *serving.Seen
			err := attempt.Recovered(t.options.Logger, func() (err error) {
				seen, err = one(attempt.Within(ctx, m), m)
				return err
			})
			outcomes[i] = m.outcome(seen, err)
			m.Note(func(p *workloadops.Progress) { p.Message = "" })
			t.ended(err)
		})
	}
	ending.Wait()
	return outcomes
}

// ended says that one has ended, with that error.
func (t *joint) ended(err error) {
	if err != nil {
		t.EndBy(time.Time{})
	} else {
		t.EndBy(t.options.Now().Add(lateBy))
	}
}

// tell has the heartbeat say what each waits for.
func (t *joint) tell() {
	t.details.Note(func(p *workloadops.Progress) {
		var texts []string
		for _, m := range t.members {
			if text := m.Now().Message; text != "" {
				texts = append(texts, m.req.Domain+": "+text)
			}
		}
		p.Message = strings.Join(texts, "; ")
	})
}

// member is one of the parties: the whole that its own attempt is a part of.
type member struct {
	*joint
	req serving.PartyRequest
	// ready is what has been looked at for it before anything is written.
	ready ready

	mu       sync.Mutex
	progress workloadops.Progress
}

// outcome is how its attempt has ended: a failure is told if it is final.
func (m *member) outcome(seen *serving.Seen, err error) serving.PartyOutcome {
	var app *temporal.ApplicationError
	switch {
	case err == nil:
		return serving.PartyOutcome{Done: true, Seen: seen}
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
