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

// onward runs an operation that is to go on in a new run: next is the input of that, after the parties as they are then.
func (p *fakeParties) onward(t *testing.T, in serving.Input) (next serving.Input, after *fakeParties) {
	p.ExecuteWorkflow(TypeServing, in)
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, p.GetWorkflowError(), &again)
	after = newParties(t)
	after.runs = p.runs
	after.SetStartTime(p.Now())
	return nextInput[serving.Input](t, again).(serving.Input), after
}

// A run goes on where the one before was: it begins nothing anew, claims and writes by the name of the operation, and has the versions in its own first event,
// since the one before is forgotten one day.
func TestServingGoesOnInANewRun(t *testing.T) {
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
		require.Empty(t, after.calls, "what waits for a person costs nothing")
		require.Empty(t, after.upserts)
		state := after.state()
		require.Equal(t, gate, state.WaitingFor.Gate, "who looked at it in the run before may approve it")
		require.Len(t, state.History, 1)
		answer = after.send(serving.VerbApprove, "k1", ServingVerbRequest{Gate: gate})
	})
	r := after.run(next)
	require.Equal(t, audit.Accepted, answer.Outcome, answer.Message)
	require.Equal(t, "new", r.Version)
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, after.runs)
	require.ElementsMatch(t, []string{"note new done=false", "apply bob new", "note new done=true"}, after.calls, "nothing is begun or asked twice")
	require.Equal(t, p.notes[0].Operation.RunID, after.last().Operation.RunID, "it is still that operation")
	require.True(t, p.notes[0].Started.Equal(after.last().Started), "and its record that of its begin")
	require.Len(t, after.last().Complete, 2, "also of whom the run before has seen complete")
}

// What a party does reports to one run alone: a run that is long begins nothing more, and goes on when nothing runs; much later it stops what never ends.
func TestServingDrains(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.at(time.Minute, func() { p.leave("bob") })
	p.at(time.Hour, func() {
		p.SetContinueAsNewSuggested(true)
		p.leave("bob")
	})
	p.at(2*time.Hour, func() {
		require.False(t, p.IsWorkflowCompleted(), "what bob is asked is not abandoned")
		p.SetCurrentHistoryLength(drainAt)
		p.leave("bob")
	})
	next, after := p.onward(t, servingOf(serving.KindCreate))
	require.Equal(t, map[string]string{"alice": "new"}, p.runs)
	after.run(next)
	require.Equal(t, []string{"apply bob new", "note new done=true"}, after.calls, "the next run asks again")
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, after.runs)
}

// Who waits for an operation that does not give way is told by whichever run ends it.
func TestServingKeepsWhoWaits(t *testing.T) {
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
	require.Equal(t, []string{"remove bob", "release", "gave-way serving/s1/4"}, after.calls, "it was let go before: this is its record")
}

// To wait for a predecessor that does not give way fills a history too: the next run asks on, and what people have sent meanwhile is not lost.
func TestServingThatWaitsLongForItsPredecessor(t *testing.T) {
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
		require.Equal(t, serving.ReasonPaused, after.notes[0].Operation.Reason, "the status is told of it")
		after.SignalWorkflow(string(serving.VerbResume), nil)
	})
	after.run(next)
	require.Equal(t, []string{"begin update", "supersede serving/s1/2", "supersede serving/s1/2"}, after.calls[:3])
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, after.runs)
}

// An operation that was started on another version than serves by now begins anew on that: what people have sent until then counts.
func TestServingThatBeginsAnewLosesNoCommand(t *testing.T) {
	t.Parallel()
	packed, err := serving.Version{Spec: kuscia.KusciaDeploymentSpec{Parties: []kuscia.Party{{DomainID: "alice"}, {DomainID: "bob"}}}}.Pack()
	require.NoError(t, err)
	for reason, tc := range map[string]struct {
		send  func(p *fakeParties)
		calls []string
		runs  map[string]string
	}{
		"stopped before it has begun, it changes nothing": {func(p *fakeParties) { p.SignalWorkflow(string(serving.VerbStop), nil) },
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
