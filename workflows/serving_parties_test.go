package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/serving"
)

// fakeParties plays the workers of the parties and the centre: it keeps the version that each party runs, and records
// the calls in order.
type fakeParties struct {
	*testsuite.TestWorkflowEnvironment
	origins
	t *testing.T
	// runs is the digest of the version that each domain runs; "" if it runs nothing.
	runs map[string]string
	// calls are the executed activities, as text.
	calls []string
	// notes are the writes into the status, the last one at its end; releases are those of a deletion.
	notes, releases []serving.NoteRequest
	// fail scripts failures of a call, by its text; each failure is used once.
	fail map[string][]error
	// away are the domains without a worker: their activities wait.
	away  map[string]bool
	begun serving.BeginResult
	// budgets are those of the calls, by their text; knownFailures are the known failures of the calls.
	budgets       map[string][]int64
	knownFailures map[string][]string
	// upserts are the written search attributes.
	upserts []temporal.SearchAttributes
	// present is called when an activity starts.
	present func(call string)
	// asked are the parties of each activity, with its verb. spent is what they have used of their deadlines, by verb and
	// parties.
	asked []string
	spent map[string][]int64
	// sees is what a reachable party is seen to run.
	sees map[string]*serving.DeploymentSnapshot
}

func newParties(t *testing.T) *fakeParties {
	var suite testsuite.WorkflowTestSuite
	return newPartiesOf(t, &suite)
}

func newPartiesOf(t *testing.T, suite *testsuite.WorkflowTestSuite) *fakeParties {
	p := &fakeParties{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, runs: map[string]string{},
		fail: map[string][]error{},
		away: map[string]bool{}, budgets: map[string][]int64{}, spent: map[string][]int64{},
		knownFailures: map[string][]string{}}
	p.SetWorkerOptions(worker.Options{Interceptors: interceptors()})
	p.RegisterWorkflowWithOptions(Serving, workflow.RegisterOptions{Name: TypeServing})
	p.SetStartTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	p.SetTestTimeout(30 * time.Second)
	register := func(name string, fn any) { p.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name}) }
	register(origin.ActivityCheck, p.checkOrigin)
	register(serving.ActivityPrepare, p.takes("prepare", func(serving.PartyRequest) {}))
	register(serving.ActivityApply, p.takes("apply", func(r serving.PartyRequest) { p.runs[r.Domain] = r.Version }))
	register(serving.ActivityCreate, p.creates)
	register(serving.ActivityRemove, p.takes("remove", func(r serving.PartyRequest) { p.runs[r.Domain] = "" }))
	register(serving.ActivityBegin, func(_ context.Context, r serving.NoteRequest) (serving.BeginResult, error) {
		return p.begun, p.called("begin " + r.Operation.Kind)
	})
	register(serving.ActivityNote, func(_ context.Context, r serving.NoteRequest) error {
		p.notes = append(p.notes, asStored(p.t, r))
		return p.called(fmt.Sprintf("note %s done=%t", r.Operation.Version, r.Operation.Done))
	})
	register(serving.ActivityRelease, func(_ context.Context, r serving.NoteRequest) error {
		p.releases = append(p.releases, r)
		return p.called("release")
	})
	p.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
		p.upserts = append(p.upserts, args.Get(0).(temporal.SearchAttributes))
	}).Return(nil).Maybe()
	return p
}

// errNoWorker plays a queue without a worker: the activity is retried until there is one. The pause is longer than for
// other failures: the test environment counts the heartbeat timeout in real seconds, within which it has to skip the
// days for which a party is unreachable.
var errNoWorker = temporal.NewApplicationErrorWithOptions("no worker polls the queue", "",
	temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute})

// takes returns the activity of a step, which takes place in each party.
func (p *fakeParties) takes(verb string, took func(serving.PartyRequest)) func(context.Context,
	serving.GroupRequest) (*serving.GroupResult, error) {
	return func(_ context.Context, r serving.GroupRequest) (*serving.GroupResult, error) {
		domains, spent := p.ask(verb, r), int64(0)
		for _, one := range r.Parties {
			spent += one.SpentSeconds
		}
		p.spent[domains] = append(p.spent[domains], spent)
		outcomes, err := p.each(verb, r, took)
		if err != nil {
			return nil, err
		}
		return &serving.GroupResult{Parties: outcomes}, nil
	}
}

// ask records an activity as text: its verb and its parties.
func (p *fakeParties) ask(verb string, r serving.GroupRequest) (domains string) {
	domains = verb
	for _, one := range r.Parties {
		domains += " " + one.Domain
	}
	p.asked = append(p.asked, domains)
	return domains
}

// seen is what a party is seen to run after it was brought to a version.
func (p *fakeParties) seen(verb string, r serving.PartyRequest) *serving.DeploymentSnapshot {
	if verb != "apply" {
		return nil
	}
	return p.sees[r.Domain]
}

// each executes the step for all parties and returns the outcome of each. Of several parties, one whose cluster is
// unreachable is unfinished: the results of the others don't wait for it. It fails while their queue has no worker.
func (p *fakeParties) each(verb string, r serving.GroupRequest,
	took func(serving.PartyRequest)) (outcomes []serving.PartyOutcome, err error) {
	for _, one := range r.Parties {
		var app *temporal.ApplicationError
		outcome := serving.PartyOutcome{Unfinished: true, SpentSeconds: 7}
		switch err := p.step(verb, one); {
		case errors.Is(err, errNoWorker):
			return nil, err
		case err == nil:
			took(one)
			outcome = serving.PartyOutcome{Done: true, Snapshot: p.seen(verb, one)}
		case errors.As(err, &app) && (failure.Kind(app.Type()) != failure.Unreachable || len(r.Parties) == 1):
			outcome = serving.PartyOutcome{Kind: failure.Kind(app.Type()), Message: app.Message()}
		}
		outcomes = append(outcomes, outcome)
	}
	return outcomes, nil
}

// allDone is the result of a step that is done in all parties.
func allDone(_ context.Context, r serving.GroupRequest) (*serving.GroupResult, error) {
	result := &serving.GroupResult{}
	for range r.Parties {
		result.Parties = append(result.Parties, serving.PartyOutcome{Done: true})
	}
	return result, nil
}

// creates checks the parties, and brings them to the version once all can run it.
func (p *fakeParties) creates(_ context.Context, r serving.GroupRequest) (*serving.GroupResult, error) {
	p.ask("create", r)
	result := &serving.GroupResult{Through: serving.StepPrepare}
	var err error
	if result.Parties, err = p.each("prepare", r, func(serving.PartyRequest) {}); err != nil ||
		slices.ContainsFunc(result.Parties, func(o serving.PartyOutcome) bool { return !o.Done }) {
		return result, err
	}
	result.Through = serving.StepApply
	result.Parties, err = p.each("apply", r, func(r serving.PartyRequest) { p.runs[r.Domain] = r.Version })
	return result, err
}

func (p *fakeParties) step(verb string, r serving.PartyRequest) error {
	if p.away[r.Domain] {
		return errNoWorker
	}
	call := verb + " " + r.Domain
	if r.Version != "" {
		call += " " + r.Version
	}
	require.Equal(p.t, r.Version == "old", r.Source.Previous, "the version is read from the right input")
	p.budgets[call], p.knownFailures[call] = append(p.budgets[call], r.UnreachableBudgetSeconds),
		append(p.knownFailures[call], r.KnownFailure)
	return p.called(call)
}

func (p *fakeParties) called(call string) error {
	p.calls = append(p.calls, call)
	if p.present != nil {
		p.present(call)
	}
	if queue := p.fail[call]; len(queue) > 0 {
		p.fail[call] = queue[1:]
		return queue[0]
	}
	return nil
}

func refused(message string) error {
	return temporal.NewNonRetryableApplicationError(message, string(failure.Refused), nil, failure.Details{})
}

func unreachable(message string) error {
	return temporal.NewNonRetryableApplicationError(message, string(failure.Unreachable), nil, failure.Details{})
}

func forbidden(message string) error {
	return temporal.NewNonRetryableApplicationError(message, string(failure.Forbidden), nil, failure.Details{})
}

func (p *fakeParties) at(after time.Duration, do func()) { p.RegisterDelayedCallback(do, after) }

// leave stops a party's worker and informs the operation.
func (p *fakeParties) leave(domain string) {
	p.away[domain] = true
	p.SignalWorkflow(serving.SignalPresence, serving.PresenceSignal{Queue: "q-" + domain, Unreachable: "no worker",
		Since: p.Now()})
}

// drainsSoon makes a run continue as new while its parties are at work.
func (p *fakeParties) drainsSoon() {
	p.at(time.Minute, func() {
		p.SetContinueAsNewSuggested(true)
		p.SetCurrentHistoryLength(drainAt)
		p.leave("nobody")
	})
}

func (p *fakeParties) come(domain string) {
	p.away[domain] = false
	p.SignalWorkflow(serving.SignalPresence, serving.PresenceSignal{Queue: "q-" + domain, Since: p.Now()})
}

func (p *fakeParties) state() ServingState {
	value, err := p.QueryWorkflow(QueryState)
	require.NoError(p.t, err)
	var s ServingState
	require.NoError(p.t, value.Get(&s))
	return s
}

func (p *fakeParties) run(in serving.Input) ServingResult {
	if in.Continued != nil {
		p.SetContinuedExecutionRunID("before")
	}
	p.ExecuteWorkflow(TypeServing, in)
	require.True(p.t, p.IsWorkflowCompleted(), "the operation ends")
	require.NoError(p.t, p.GetWorkflowError())
	var r ServingResult
	require.NoError(p.t, p.GetWorkflowResult(&r))
	return r
}

// last is the last note, which ends the operation.
func (p *fakeParties) last() serving.NoteRequest {
	require.NotEmpty(p.t, p.notes)
	last := p.notes[len(p.notes)-1]
	require.True(p.t, last.Operation.Done, "the end is written")
	return last
}

// after returns the calls from the first one of this text on.
func (p *fakeParties) after(call string) []string {
	i := slices.Index(p.calls, call)
	require.GreaterOrEqual(p.t, i, 0, "%s is missing in %v", call, p.calls)
	return p.calls[i+1:]
}

func servingOf(kind string) serving.Input {
	in := serving.Input{ID: "s1", UID: "u1", Generation: 3, Kind: kind, UnreachableBudgetSeconds: 120,
		Parties: []serving.PartyTarget{
			{Domain: "alice", Deployment: "s1", Queue: "q-alice"}, {Domain: "bob", Deployment: "s1", Queue: "q-bob"}}}
	if kind != serving.KindDelete {
		in.TargetDigest = "new"
	}
	if kind == serving.KindUpdate {
		in.PreviousDigest = "old"
	}
	return in
}

// asStored returns a note as a status stores it: a local activity gets the workflow's value without encoding.
func asStored(t *testing.T, r serving.NoteRequest) (stored serving.NoteRequest) {
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &stored))
	return stored
}
