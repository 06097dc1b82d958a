package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// onward runs an operation that continues as new; next is the input of the next run, after the parties in their current
// state.
func (p *fakeParties) onward(t *testing.T, in serving.Input) (next serving.Input, after *fakeParties) {
	p.ExecuteWorkflow(TypeServing, in)
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, p.GetWorkflowError(), &again)
	after = newParties(t)
	after.runs = p.runs
	after.SetStartTime(p.Now())
	return nextInput[serving.Input](t, again).(serving.Input), after
}

// A run continues where the previous one stopped: it repeats nothing, uses the operation's name for claims and writes,
// and has the versions in its own first event, because the history of the previous run is deleted some day.
func TestServingContinuesAsNew(t *testing.T) {
	t.Parallel()
	p := updated(t)
	in := asking()
	in.Target, in.Previous = []byte("packed new"), []byte("packed old")
	var gate string
	p.at(time.Hour, func() {
		gate = p.state().WaitingFor.Gate
		p.SetContinueAsNewSuggested(true)
		p.SignalWorkflow(string(serving.VerbPause), ServingVerbRequest{Party: "malformed"})
	})
	next, after := p.onward(t, in)
	require.Equal(t, in.Target, next.Target)
	require.Equal(t, in.Previous, next.Previous)
	require.True(t, next.Continued.Begun)
	noted := len(p.notes)
	require.NotZero(t, noted)
	var answer *VerbResponse
	after.at(24*time.Hour, func() {
		require.Empty(t, after.calls, "waiting for a user costs nothing")
		require.Empty(t, after.upserts)
		state := after.state()
		require.Equal(t, gate, state.WaitingFor.Gate, "a gate seen in the previous run is still valid")
		require.Len(t, state.History, 1)
		answer = after.send(serving.VerbApprove, "k1", ServingVerbRequest{Gate: gate})
	})
	r := after.run(next)
	require.Equal(t, audit.Accepted, answer.Outcome, answer.Message)
	require.Equal(t, "new", r.Version)
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, after.runs)
	require.ElementsMatch(t, []string{"note new done=false", "apply bob new", "note new done=true"}, after.calls,
		"no step is repeated")
	require.Equal(t, p.notes[0].Operation.RunID, after.last().Operation.RunID, "it is still the same operation")
	require.True(t, p.notes[0].Started.Equal(after.last().Started), "and its record has the original start")
	require.Len(t, after.last().Complete, 2, "including the party completed in the previous run")
}

// A party's step reports to one run only: a run with a long history starts nothing more and continues as new when
// nothing runs. At drainAt events it also stops steps that do not end.
func TestServingContinuesAsNew_WhenNoStepRuns(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.at(time.Minute, func() { p.leave("bob") })
	p.at(time.Hour, func() {
		p.SetContinueAsNewSuggested(true)
		p.leave("bob")
	})
	p.at(2*time.Hour, func() {
		require.False(t, p.IsWorkflowCompleted(), "bob's step is not abandoned")
		p.SetCurrentHistoryLength(drainAt)
		p.leave("bob")
	})
	next, after := p.onward(t, servingOf(serving.KindCreate))
	require.Equal(t, map[string]string{"alice": "new"}, p.runs)
	after.run(next)
	require.Equal(t, []string{"apply bob new", "note new done=true"}, after.calls, "the next run repeats the step")
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, after.runs)
}

// An operation that waits for this one is informed by the run that ends it.
func TestServingSignalsWaitingOperation_AfterContinueAsNew(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.at(time.Minute, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
		p.leave("bob")
	})
	p.at(time.Hour, func() {
		p.SetContinueAsNewSuggested(true)
		p.SetCurrentHistoryLength(drainAt)
		p.leave("bob")
	})
	next, after := p.onward(t, servingOf(serving.KindDelete))
	require.Contains(t, p.calls, "release")
	after.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	after.run(next)
	require.Equal(t, []string{"remove bob", "release", "gave-way serving/s1/4"}, after.calls,
		"released earlier: this writes the record")
}

// Waiting for a predecessor that does not end fills the history too: the next run continues to ask, and commands sent
// meanwhile are kept.
func TestServingWaitsForPredecessor_AcrossContinueAsNew(t *testing.T) {
	t.Parallel()
	former := serving.BeginResult{Predecessor: &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r2"}}
	p := updated(t)
	p.begun = former
	p.signalled("serving/s1/2", "", serving.SignalSupersede, nil, nil)
	p.at(30*time.Second, func() {
		p.SignalWorkflow(string(serving.VerbPause), VerbRequest{Actor: "ann"})
		p.SetContinueAsNewSuggested(true)
	})
	next, after := p.onward(t, servingOf(serving.KindUpdate))
	require.False(t, next.Continued.Begun)
	after.begun = former
	after.signalled("serving/s1/2", "", serving.SignalSupersede, nil, nil)
	after.at(90*time.Second, func() { after.SignalWorkflow(serving.SignalGaveWay, nil) })
	after.at(time.Hour, func() {
		require.Equal(t, serving.WaitResume, after.state().WaitingFor.Kind)
		require.Equal(t, serving.ReasonPaused, after.notes[0].Operation.Reason, "the status shows it")
		after.SignalWorkflow(string(serving.VerbResume), nil)
	})
	after.run(next)
	require.Equal(t, []string{"begin update", "supersede serving/s1/2", "supersede serving/s1/2"}, after.calls[:3])
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, after.runs)
}

// An operation that was started on another version than the one that serves now restarts on that: commands sent until
// then are kept.
func TestServingKeepsCommands_WhenRestartedOnNewServedVersion(t *testing.T) {
	t.Parallel()
	packed, err := serving.Version{Spec: kuscia.KusciaDeploymentSpec{Parties: []kuscia.Party{{DomainID: "alice"},
		{DomainID: "bob"}}}}.Pack()
	require.NoError(t, err)
	for reason, tc := range map[string]struct {
		send  func(p *fakeParties)
		calls []string
		runs  map[string]string
	}{
		"stopped before it began, it changes nothing": {func(p *fakeParties) {
			p.SignalWorkflow(string(serving.VerbStop), nil)
		},
			[]string{"begin update", "note served done=true"}, map[string]string{"alice": "old", "bob": "old"}},
		"a Cancel is a stop": {func(p *fakeParties) { p.CancelWorkflow() },
			[]string{"begin update", "note served done=true"}, map[string]string{"alice": "old", "bob": "old"}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			p := updated(t)
			p.begun.Served = &kuscia.Served{Digest: "served", Version: packed}
			p.present = func(string) { tc.send(p) }
			next, after := p.onward(t, servingOf(serving.KindUpdate))
			require.Equal(t, []string{"begin update"}, p.calls)
			require.Equal(t, "served", next.PreviousDigest)
			require.Equal(t, packed, next.Previous)
			after.run(next)
			require.Equal(t, tc.calls, after.calls)
			require.Equal(t, tc.runs, after.runs)
		})
	}
}
