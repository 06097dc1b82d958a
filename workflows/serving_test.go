package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// fakeParties play the workers of the parties and the centre: they keep which version each party runs, and write down what was asked, in order.
type fakeParties struct {
	*testsuite.TestWorkflowEnvironment
	t *testing.T
	// runs is the digest of the version that each domain runs; "" when it runs nothing.
	runs map[string]string
	// calls are the activities that were carried out, in words.
	calls []string
	// notes are what the status was told, at its end the last one; releases what a deletion was.
	notes, releases []serving.NoteRequest
	// fail plays the failures of a call, by its words; each is used up in turn.
	fail map[string][]error
	// away are the domains without a worker: what is asked of them waits.
	away  map[string]bool
	begun serving.BeginResult
	// budgets are those of the calls, by their words.
	budgets map[string][]int64
	// upserts are what lists were told.
	upserts []temporal.SearchAttributes
	// present is called when an activity runs.
	present func(call string)
}

func newParties(t *testing.T) *fakeParties {
	var suite testsuite.WorkflowTestSuite
	p := &fakeParties{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t, runs: map[string]string{}, fail: map[string][]error{},
		away: map[string]bool{}, budgets: map[string][]int64{}}
	p.SetWorkerOptions(worker.Options{Interceptors: []interceptor.WorkerInterceptor{NewInterceptor()}})
	p.RegisterWorkflowWithOptions(Serving, workflow.RegisterOptions{Name: TypeServing})
	p.SetStartTime(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	p.SetTestTimeout(30 * time.Second)
	register := func(name string, fn any) { p.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name}) }
	register(serving.ActivityPrepare, func(_ context.Context, r serving.PartyRequest) error { return p.step("prepare", r) })
	register(serving.ActivityApply, func(_ context.Context, r serving.PartyRequest) error {
		err := p.step("apply", r)
		if err == nil {
			p.runs[r.Domain] = r.Version
		}
		return err
	})
	register(serving.ActivityRemove, func(_ context.Context, r serving.PartyRequest) error {
		err := p.step("remove", r)
		if err == nil {
			p.runs[r.Domain] = ""
		}
		return err
	})
	register(serving.ActivityBegin, func(_ context.Context, r serving.NoteRequest) (serving.BeginResult, error) {
		return p.begun, p.called("begin " + r.Operation.Kind)
	})
	register(serving.ActivityNote, func(_ context.Context, r serving.NoteRequest) error {
		p.notes = append(p.notes, r)
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

// errNoWorker stands for a queue that nobody polls: the activity is tried again until somebody does.
var errNoWorker = errors.New("nobody polls the queue")

func (p *fakeParties) step(verb string, r serving.PartyRequest) error {
	if p.away[r.Domain] {
		return errNoWorker
	}
	call := verb + " " + r.Domain
	if r.Version != "" {
		call += " " + r.Version
	}
	require.Equal(p.t, r.Version == "old", r.Source.Previous, "a version is read where it stands")
	p.budgets[call] = append(p.budgets[call], r.UnreachableBudgetSeconds)
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

func (p *fakeParties) at(after time.Duration, do func()) { p.RegisterDelayedCallback(do, after) }

// leave has a party's worker go, and the operation told so.
func (p *fakeParties) leave(domain string) {
	p.away[domain] = true
	p.SignalWorkflow(serving.SignalPresence, serving.PresenceSignal{Queue: "q-" + domain, Away: "no worker", Since: p.Now()})
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
	p.ExecuteWorkflow(TypeServing, in)
	require.True(p.t, p.IsWorkflowCompleted(), "the operation ends")
	require.NoError(p.t, p.GetWorkflowError())
	var r ServingResult
	require.NoError(p.t, p.GetWorkflowResult(&r))
	return r
}

// last is what the status was told at the end.
func (p *fakeParties) last() serving.NoteRequest {
	require.NotEmpty(p.t, p.notes)
	last := p.notes[len(p.notes)-1]
	require.True(p.t, last.Operation.Done, "the end is written")
	return last
}

// after are the calls from the first of its kind on.
func (p *fakeParties) after(call string) []string {
	i := slices.Index(p.calls, call)
	require.GreaterOrEqual(p.t, i, 0, "%s is not among %v", call, p.calls)
	return p.calls[i+1:]
}

func servingOf(kind string) serving.Input {
	in := serving.Input{ID: "s1", UID: "u1", Generation: 3, Kind: kind, UnreachableBudgetSeconds: 120, Parties: []serving.PartyTarget{
		{Domain: "alice", Deployment: "s1", Queue: "q-alice"}, {Domain: "bob", Deployment: "s1", Queue: "q-bob"}}}
	if kind != serving.KindDelete {
		in.TargetDigest = "new"
	}
	if kind == serving.KindUpdate {
		in.PreviousDigest = "old"
	}
	return in
}

func TestServingIsCreatedInAllParties(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	r := p.run(servingOf(serving.KindCreate))
	require.Equal(t, "begin create", p.calls[0])
	require.ElementsMatch(t, []string{"prepare alice new", "prepare bob new"}, p.calls[1:3], "everybody is asked before anybody is changed")
	require.ElementsMatch(t, []string{"apply alice new", "apply bob new"}, p.calls[3:5])
	require.Equal(t, []string{"note new done=true"}, p.calls[5:])
	require.Equal(t, ServingResult{Version: "new", Message: "it is done"}, r)
	require.True(t, p.last().Served, "it is the version to go back to from now on")
	require.Len(t, p.last().Complete, 2)
	require.False(t, p.last().Source.Previous)
}

func TestServingIsCreatedWhoeverIsAway(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.at(time.Minute, func() { p.leave("bob") })
	waiting := ServingState{}
	p.at(47*time.Hour, func() {
		require.Equal(t, map[string]string{"alice": "new"}, p.runs, "who is there does not wait for who is not")
		waiting = p.state()
	})
	p.at(48*time.Hour, func() { p.come("bob") })
	p.run(servingOf(serving.KindCreate))
	require.Equal(t, serving.StageCommit, waiting.Stage)
	require.Contains(t, waiting.Message, "bob is waited for (no worker)")
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	require.True(t, p.last().Served)
	require.NotContains(t, p.calls, "prepare bob new", "who was away when it was asked is not asked when it returns")
}

func TestServingWithAPartyThatFailsIsNotServed(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["apply bob new"] = []error{refused("no such image")}
	r := p.run(servingOf(serving.KindCreate))
	require.Equal(t, serving.ReasonPartyFailed, r.Reason)
	require.False(t, p.last().Served)
	require.Equal(t, map[int]string{1: "no such image"}, p.last().Failures)
}

func TestServingIsUpdatedInAllParties(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	require.True(t, p.last().Served)
}

func TestUpdateOfAPartyThatFailsGoesBackEverywhere(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.fail["apply bob new"] = []error{refused("no such image")}
	p.fail["apply alice old"] = []error{refused("quota"), refused("quota")}
	r := p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs, "all or nothing, also when the way back fails at first")
	require.Equal(t, "old", r.Version)
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
	require.Equal(t, "party bob: no such image; every party is on the version of before", p.last().Operation.Message)
	require.False(t, p.last().Served)
	require.Empty(t, p.last().Failures, "who is back has not failed")
	require.Equal(t, "old", p.notes[0].Operation.Version, "the status says at once which version is brought about")
	require.False(t, p.notes[0].Operation.Done)
	require.Equal(t, map[int]string{0: "quota"}, p.notes[1].Failures, "a way back that fails is told")
	require.GreaterOrEqual(t, p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)), 45*time.Second, "it is tried again after a pause")
}

func TestUpdateThatAPartyRefusesChangesNothing(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["prepare bob new"] = []error{refused("no permission")}
	p.run(servingOf(serving.KindUpdate))
	require.NotContains(t, fmt.Sprint(p.calls), "apply")
	require.Equal(t, "party bob: no permission; nothing was changed in any party", p.last().Operation.Message)
	require.Equal(t, "old", p.last().Operation.Version)
	require.Empty(t, p.last().Complete, "nobody has looked whether everything is in its place")
}

func TestUpdateOfAnAbsentPartyChangesNothing(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.at(time.Second, func() { p.leave("bob") })
	p.run(servingOf(serving.KindUpdate))
	require.NotContains(t, fmt.Sprint(p.calls), "apply", "absent before the commit nothing changes")
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
	require.InDelta(t, 600, p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)).Seconds(), 5)
}

func TestUpdateIsNotCommittedWhileAPreparedPartyIsAway(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.away["bob"] = true
	p.at(30*time.Second, func() { p.leave("alice") }) // it was asked, and has said yes
	p.at(40*time.Second, func() { p.come("bob") })
	p.at(5*time.Minute, func() {
		require.NotContains(t, fmt.Sprint(p.calls), "apply")
		require.Equal(t, serving.StagePrepare, p.state().Stage)
		require.Contains(t, p.state().Message, "alice is waited for until 2026-03-01T09:10:30Z (no worker)")
		p.come("alice")
	})
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
}

func TestUpdateThatLosesAPartyGoesBack(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.present = func(call string) {
		if call == "apply alice new" {
			p.away["bob"] = true
			p.leave("bob")
		}
	}
	in := servingOf(serving.KindUpdate)
	in.Policy.Order = serving.OrderSequential
	p.at(9*time.Minute, func() { require.Equal(t, "new", p.runs["alice"], "it is waited for") })
	p.at(time.Hour, func() {
		require.Equal(t, "old", p.runs["alice"], "who is there goes back")
		require.Equal(t, serving.StageBack, p.state().Stage, "the absent one owes its step")
		require.False(t, p.notes[len(p.notes)-1].Operation.Done)
	})
	p.at(2*time.Hour, func() { p.come("bob") })
	p.run(in)
	require.Equal(t, []string{"apply bob old", "note old done=true"}, p.calls[len(p.calls)-2:], "it goes back first thing on its return")
	require.Contains(t, p.last().Operation.Message, "party bob: it has been away for longer than 10m0s: no worker")
	require.NotContains(t, p.calls, "apply bob new")
}

func TestClusterOutOfReachIsNobodysFailure(t *testing.T) {
	t.Parallel()
	gone := func(n int) []error { return slices.Repeat([]error{unreachable("its cluster is out of reach")}, n) }
	t.Run("a creation waits", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["prepare bob new"], p.fail["apply bob new"] = gone(1), gone(1)
		p.run(servingOf(serving.KindCreate))
		require.Equal(t, serving.ReasonPartyUnreachable, p.notes[0].Operation.Reason, "the status names who is waited for")
		require.Equal(t, "party bob: its cluster is out of reach; it is tried again", p.notes[0].Operation.Message)
		require.True(t, p.last().Served)
		require.Equal(t, []int64{0, 0}, p.budgets["apply bob new"], "what was told once need not be told again")
	})
	t.Run("an update goes on when it is back in time", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["apply bob new"] = gone(3)
		p.run(servingOf(serving.KindUpdate))
		require.True(t, p.last().Served)
		require.Equal(t, []int64{120, 120, 120, 120}, p.budgets["apply bob new"], "an update has to hear of it each time")
	})
	t.Run("an update goes back when it stays away", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["apply bob new"] = gone(1000)
		p.fail["apply bob old"] = gone(2)
		p.run(servingOf(serving.KindUpdate))
		require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
		require.Contains(t, p.last().Operation.Message, "party bob: it has been out of reach for longer than 10m0s: its cluster is out of reach")
		require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs, "the way back is never given up")
	})
	t.Run("a deletion cleans up later", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["remove bob"] = append(gone(1), refused("no permission"), refused("no permission"))
		p.run(servingOf(serving.KindDelete))
		require.Less(t, slices.Index(p.calls, "release"), len(p.calls)-1, "the serving goes before the party is back")
		require.Equal(t, []string{"remove bob", "release"}, p.calls[len(p.calls)-2:])
		require.Equal(t, []int64{120, 0, 120, 120}, p.budgets["remove bob"])
	})
}

func TestDeletionReleasesBeforeTheAbsentAreCleanedUp(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "new", "bob": "new"}
	p.away["bob"] = true
	p.at(21*time.Second, func() { p.leave("bob") })
	p.at(time.Hour, func() { require.Equal(t, []string{"begin delete", "remove alice", "release"}, p.calls) })
	p.at(72*time.Hour, func() { p.come("bob") })
	p.run(servingOf(serving.KindDelete))
	require.Equal(t, []string{"remove bob", "release"}, p.after("release"), "at the end its record is completed")
	require.Empty(t, p.notes, "what is gone has no status")
}

func TestDeletionOfNobodyEnds(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	in := servingOf(serving.KindDelete)
	in.Parties = nil
	p.run(in)
	require.Equal(t, []string{"begin delete", "release"}, p.calls)
}

func TestServingThatFindsNothingToDo(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]serving.BeginResult{"the serving is gone": {Gone: true}, "a newer operation does it": {Newer: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.begun = begun
			require.NotEmpty(t, p.run(servingOf(serving.KindUpdate)).Message)
			require.Equal(t, []string{"begin update"}, p.calls)
		})
	}
}

// signalled expects the operation to send a signal to another workflow.
func (p *fakeParties) signalled(workflowID, runID, name string, err error, do func()) {
	p.OnSignalExternalWorkflow(mock.Anything, workflowID, runID, name, mock.Anything).Return(func(_, _, _, _ string, _ any) error {
		p.calls = append(p.calls, name+" "+workflowID)
		if do != nil {
			do()
		}
		return err
	})
}

func TestServingGivesWay(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	p.at(time.Minute, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	r := p.run(servingOf(serving.KindUpdate))
	require.Equal(t, "it gave way to serving/s1/4", r.Message)
	require.Equal(t, "gave-way serving/s1/4", p.calls[len(p.calls)-1], "the newer one is told when nothing runs here any more")
	require.Len(t, p.notes, 1, "the status is the newer one's: this one's record is completed, and no more")
}

func TestServingWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Predecessor: &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r2"}}
	p.signalled("serving/s1/2", "r2", serving.SignalSupersede, nil, nil)
	p.at(90*time.Second, func() {
		require.Contains(t, p.state().Message, "waits for serving/s1/2 to give way")
		require.Equal(t, []string{"begin update", "supersede serving/s1/2", "supersede serving/s1/2"}, p.calls, "nothing is done before, and it is asked again")
		p.SignalWorkflow(serving.SignalGaveWay, nil)
	})
	p.run(servingOf(serving.KindUpdate))
	require.True(t, p.last().Served)
}

func TestServingDoesNotWaitForAPredecessorThatIsGone(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Predecessor: &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r2"}}
	p.signalled("serving/s1/2", "r2", serving.SignalSupersede, errors.New("not found"), nil)
	p.fail["prepare bob new"] = []error{refused("no permission")}
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs, "what the one before has left half done is taken back")
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
}

func TestServingThatIsSupersededWhileItWaits(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Predecessor: &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r2"}}
	p.signalled("serving/s1/2", "r2", serving.SignalSupersede, nil, nil)
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	p.at(10*time.Second, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	p.at(20*time.Second, func() { p.SignalWorkflow(serving.SignalGaveWay, nil) })
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, []string{"begin update", "supersede serving/s1/2", "note new done=true", "gave-way serving/s1/4"}, p.calls, "of three in a row the last one acts, after both")
}

func TestDeletionDoesNotGiveWay(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	p.at(time.Minute, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	p.at(time.Hour, func() { p.come("bob") })
	p.run(servingOf(serving.KindDelete))
	require.Equal(t, []string{"remove bob", "release", "gave-way serving/s1/4"}, p.calls[len(p.calls)-3:])
}

func TestWorkerThatDiesWhileItIsAskedHasNotFailed(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	// It is stopped since it is away, and runs into its timeout as its worker is gone.
	p.OnActivity(serving.ActivityPrepare, mock.Anything, mock.MatchedBy(func(r serving.PartyRequest) bool { return r.Domain == "bob" })).
		After(time.Minute).Return(temporal.NewHeartbeatTimeoutError())
	p.OnActivity(serving.ActivityPrepare, mock.Anything, mock.Anything).Return(nil)
	p.at(30*time.Second, func() {
		p.SignalWorkflow(serving.SignalPresence, serving.PresenceSignal{Queue: "q-bob", Away: "silent", Since: p.Now()})
	})
	r := p.run(servingOf(serving.KindCreate))
	require.Empty(t, r.Reason, r.Message)
}

// statusOf runs the status workflow of a serving; observed is called with each write.
func statusOf(t *testing.T, send func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)), observed func(env *testsuite.TestWorkflowEnvironment, n int)) (writes []serving.ObserveRequest) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflowWithOptions(ServingStatus, workflow.RegisterOptions{Name: TypeServingStatus})
	env.RegisterActivityWithOptions(func(_ context.Context, r serving.ObserveRequest) error {
		writes = append(writes, r)
		observed(env, len(writes))
		return nil
	}, activity.RegisterOptions{Name: serving.ActivityObserve})
	send(env, func(o serving.Observation) { env.SignalWorkflow(serving.SignalObserved, o) })
	env.ExecuteWorkflow(TypeServingStatus, "s1")
	require.True(t, env.IsWorkflowCompleted(), "a quiet serving has no open workflow")
	require.NoError(t, env.GetWorkflowError())
	return writes
}

func seen(domain string, available int32) serving.Observation {
	return serving.Observation{ID: "s1", UID: "u1", Domain: domain, Deployment: "s1", Seen: serving.Seen{AvailableReplicas: available}}
}

func TestServingStatusCoalesces(t *testing.T) {
	t.Parallel()
	writes := statusOf(t, func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)) {
		for i, o := range []serving.Observation{seen("alice", 1), seen("bob", 1), seen("alice", 2)} {
			env.RegisterDelayedCallback(func() { tell(o) }, time.Duration(i)*900*time.Millisecond)
		}
	}, func(*testsuite.TestWorkflowEnvironment, int) {})
	require.Len(t, writes, 1)
	require.Equal(t, []serving.Observation{seen("alice", 2), seen("bob", 1)}, writes[0].Observations, "of each Deployment the last, in one write")
	require.False(t, writes[0].At.IsZero())
}

func TestServingStatusThatIsNeverQuietEndsAllTheSame(t *testing.T) {
	t.Parallel()
	var start, end time.Time
	writes := statusOf(t, func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)) {
		start = env.Now()
		for i := range 60 {
			env.RegisterDelayedCallback(func() {
				if !env.IsWorkflowCompleted() {
					tell(seen("alice", int32(i)))
				}
			}, time.Duration(i)*time.Second)
		}
		env.RegisterDelayedCallback(func() { env.SetContinueAsNewSuggested(true) }, 20500*time.Millisecond)
	}, func(env *testsuite.TestWorkflowEnvironment, _ int) { end = env.Now() })
	require.Greater(t, len(writes), 5)
	require.Less(t, end.Sub(start), 30*time.Second, "before its history is full it ends, and the next observation begins anew")
}

func TestServingStatusLosesNothingThatComesWhileItWrites(t *testing.T) {
	t.Parallel()
	writes := statusOf(t, func(env *testsuite.TestWorkflowEnvironment, tell func(o serving.Observation)) {
		env.RegisterDelayedCallback(func() { tell(seen("alice", 1)) }, 0)
	}, func(env *testsuite.TestWorkflowEnvironment, n int) {
		if n == 1 {
			env.SignalWorkflow(serving.SignalObserved, seen("alice", 2))
		}
	})
	require.Len(t, writes, 2)
	require.Equal(t, []serving.Observation{seen("alice", 2)}, writes[1].Observations)
}
