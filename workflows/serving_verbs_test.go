package workflows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/serving"
)

// asking is an update of alice, and then bob, with an approval in between.
func asking() serving.Input {
	in := servingOf(serving.KindUpdate)
	in.Policy = serving.Policy{Order: serving.OrderSequential, Approval: serving.ApprovalBetweenParties}
	return in
}

// updated plays parties that run the version of before.
func updated(t *testing.T) *fakeParties {
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	return p
}

// send sends a verb as an Update; the answer is there when the operation has given it.
func (p *fakeParties) send(verb serving.Verb, id string, request ServingVerbRequest) *VerbResponse {
	response := &VerbResponse{}
	p.UpdateWorkflow(string(verb), id, &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { p.t.Errorf("%s was rejected: %v", verb, err) },
		OnComplete: func(v any, err error) {
			require.NoError(p.t, err)
			*response = v.(VerbResponse)
		},
	}, request)
	return response
}

// shownWaits are the kinds of waits that lists were told of, in order; "-" is none any more.
func (p *fakeParties) shownWaits() (waits []string) {
	for _, u := range p.upserts {
		if kind, is := u.GetKeyword(AttributeWaitingFor); is {
			waits = append(waits, kind)
		} else if strings.Contains(fmt.Sprintf("%+v", u), AttributeWaitingFor.GetName()) { // what is unset has no value, and is seen in no other way
			waits = append(waits, "-")
		}
	}
	return waits
}

func TestApprovalAfterTwoDays(t *testing.T) {
	t.Parallel()
	p := updated(t)
	var calls, upserts int
	var answer *VerbResponse
	p.at(time.Minute, func() {
		require.Equal(t, map[string]string{"alice": "new", "bob": "old"}, p.runs)
		calls, upserts = len(p.calls), len(p.upserts)
		p.leave("bob") // as it may in two days; that is no reason to take anything back
	})
	p.at(48*time.Hour, func() {
		require.Len(t, p.calls, calls, "waiting for a person costs no activity")
		require.Len(t, p.upserts, upserts)
		w := p.state().WaitingFor
		require.Equal(t, []string{serving.WaitApproval, "bob"}, []string{w.Kind, w.Party})
		told := p.notes[len(p.notes)-1].Operation
		require.Equal(t, w, told.WaitingFor, "the status says who is waited for")
		require.Equal(t, serving.ReasonWaitingForApproval, told.Reason)
		require.False(t, told.Done)
		require.Equal(t, "new", told.Version)
		p.come("bob")
		answer = p.send(serving.VerbApprove, "k1", ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann", Reason: "the numbers are good", Key: "k1", Via: "http"}, Gate: w.Gate})
	})
	p.SetOnTimerScheduledListener(func(string, time.Duration) { t.Error("waiting for a person needs no timer") })
	p.run(asking())
	require.Equal(t, audit.Accepted, answer.Outcome)
	require.Equal(t, "party bob is approved: it begins", answer.Message)
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	require.Greater(t, p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)), 47*time.Hour)
	require.True(t, p.last().Served)
	require.Nil(t, p.last().Operation.WaitingFor)
	history := p.last().Operation.History
	require.Len(t, history, 1)
	require.Equal(t, []string{"ann", "http", "approve", "bob", "the numbers are good", "k1", "accepted"},
		[]string{history[0].Actor, history[0].Via, history[0].Verb, history[0].Party, history[0].Reason, history[0].Key, history[0].Outcome})
	require.Equal(t, []string{serving.WaitApproval, "-"}, p.shownWaits(), "lists say so too, and no longer than it lasts")
}

func TestApprovalBySignal(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.at(time.Minute, func() { p.SignalWorkflow("aprove", nil) })
	p.at(2*time.Minute, func() { p.SignalWorkflow(string(serving.VerbStop), "now") })
	p.at(3*time.Minute, func() {
		history := p.state().History
		require.Contains(t, history[0].Message, `there is no signal "aprove": send one of [approve pause resume stop]`)
		require.Contains(t, history[1].Message, "the payload cannot be read")
		require.Equal(t, history, p.notes[len(p.notes)-1].Operation.History, "who misspells something sees it in the status")
		p.SignalWorkflow(string(serving.VerbApprove), nil)
	})
	p.run(asking())
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	history := p.last().Operation.History
	require.Equal(t, []string{"unknown", "temporal", "approve", "accepted"}, []string{history[2].Actor, history[2].Via, history[2].Verb, history[2].Outcome}, "an empty payload is legal")
}

func TestStopWhileAnApprovalIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := updated(t)
	var answer *VerbResponse
	p.at(time.Hour, func() {
		answer = p.send(serving.VerbStop, "k1", ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann", Reason: "bad numbers"}})
	})
	r := p.run(asking())
	require.Equal(t, audit.Accepted, answer.Outcome)
	require.Equal(t, string(serving.StageBack), answer.State)
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs)
	require.NotContains(t, strings.Join(p.calls, ", "), "apply bob", "bob is left alone")
	require.Equal(t, ServingResult{Version: "old", Reason: serving.ReasonUpdateRolledBack, Message: "stopped by ann: bad numbers; every party is on the version of before"}, r)
	require.Equal(t, r.Message, p.last().Operation.Message)
	require.False(t, p.last().Served)
	require.Equal(t, []string{serving.WaitApproval, "-"}, p.shownWaits())
}

func TestCancelMeansStop(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.at(time.Hour, p.CancelWorkflow)
	p.run(asking())
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs)
	require.Equal(t, "stopped by somebody: the workflow was cancelled; every party is on the version of before", p.last().Operation.Message)
}

func TestStopWhileAPartyIsBroughtToIt(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.present = func(call string) { p.away["bob"] = p.away["bob"] || call == "apply alice new" }
	p.at(time.Minute, func() {
		require.Equal(t, "new", p.runs["alice"])
		p.send(serving.VerbStop, "k1", ServingVerbRequest{})
		p.away["bob"] = false
	})
	in := servingOf(serving.KindUpdate)
	in.Policy.Order = serving.OrderSequential
	p.run(in)
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs)
	require.Contains(t, p.calls, "apply bob old", "it was told to begin, so that it is looked after")
	require.Equal(t, "stopped by somebody; every party is on the version of before", p.last().Operation.Message)
}

func TestPauseAndResumeOfAServing(t *testing.T) {
	t.Parallel()
	p := updated(t)
	sent := false
	var resumed *VerbResponse
	p.present = func(call string) {
		if call == "apply alice new" && !sent {
			sent = true
			p.send(serving.VerbPause, "k1", ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann", Reason: "lunch"}})
		}
	}
	p.at(time.Hour, func() {
		require.Equal(t, map[string]string{"alice": "new", "bob": "old"}, p.runs, "what has begun goes on, and no other party begins")
		require.Equal(t, serving.WaitResume, p.state().WaitingFor.Kind)
		require.Contains(t, p.state().Message, "by ann: lunch")
		resumed = p.send(serving.VerbResume, "k2", ServingVerbRequest{})
	})
	in := servingOf(serving.KindUpdate)
	in.Policy.Order = serving.OrderSequential
	p.run(in)
	require.NotNil(t, resumed, "it goes on when somebody says so, and not before")
	require.Equal(t, audit.Accepted, resumed.Outcome)
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	require.Equal(t, []string{serving.WaitResume, "-"}, p.shownWaits())
}

func TestStaleAndRepeatedApprovals(t *testing.T) {
	t.Parallel()
	p := updated(t)
	in := asking()
	in.Parties = append(in.Parties, serving.PartyTarget{Domain: "carol", Deployment: "s1", Queue: "q-carol"})
	p.runs["carol"] = "old"
	var stale, first, again, other *VerbResponse
	var gate string
	p.at(time.Minute, func() {
		gate = p.state().WaitingFor.Gate
		first = p.send(serving.VerbApprove, "u1", ServingVerbRequest{VerbRequest: VerbRequest{Key: "k1"}, Gate: gate})
	})
	p.at(2*time.Minute, func() {
		stale = p.send(serving.VerbApprove, "u2", ServingVerbRequest{VerbRequest: VerbRequest{Key: "k2"}, Gate: gate})
		again = p.send(serving.VerbApprove, "u3", ServingVerbRequest{VerbRequest: VerbRequest{Key: "k1"}, Gate: gate})
		other = p.send(serving.VerbApprove, "u4", ServingVerbRequest{Party: "bob"})
	})
	p.at(3*time.Minute, func() {
		require.Equal(t, "old", p.runs["carol"], "none of these was for carol")
		p.send(serving.VerbApprove, "u5", ServingVerbRequest{Party: "carol"})
	})
	p.run(in)
	require.Equal(t, audit.Accepted, first.Outcome)
	require.Equal(t, audit.Refused, stale.Outcome)
	require.Equal(t, "the gate is of something else: party carol waits now: look at it again", stale.Message)
	require.Contains(t, stale.Message, "carol", "and says who waits")
	require.Equal(t, first.Message, again.Message, "a repeat gets the same answer")
	require.Equal(t, audit.Accepted, again.Outcome)
	require.Equal(t, "meant for party bob, but it is carol that waits: look at it again", other.Message)
	require.Len(t, p.last().Operation.History, 4)
}

func TestMalformedVerbsAreRejected(t *testing.T) {
	t.Parallel()
	p := updated(t)
	var rejected []string
	p.at(time.Minute, func() {
		for _, q := range []ServingVerbRequest{{Gate: "g"}, {Party: "bob"}, {VerbRequest: VerbRequest{Actor: strings.Repeat("a", MaxActor+1)}}} {
			p.UpdateWorkflow(string(serving.VerbStop), "", &testsuite.TestUpdateCallback{
				OnAccept: func() { t.Error("it was taken") }, OnReject: func(err error) { rejected = append(rejected, err.Error()) }, OnComplete: func(any, error) {}}, q)
		}
		p.SignalWorkflow(string(serving.VerbApprove), nil)
	})
	p.run(asking())
	require.Len(t, rejected, 3)
	require.Contains(t, rejected[0], "party and gate are for approve only: stop is about all parties")
	require.Len(t, p.last().Operation.History, 1, "what is malformed is no decision")
}

func TestServingThatIsSupersededWhileAPersonIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	p.at(time.Hour, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	p.run(asking())
	require.Equal(t, []string{serving.WaitApproval, "-"}, p.shownWaits(), "what is over waits for nobody")
	require.Equal(t, map[string]string{"alice": "new", "bob": "old"}, p.runs, "the newer one goes on from there")
}

func TestVerbsOnAnOperationThatHasNothingToDo(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Newer: true}
	var answer *VerbResponse
	p.present = func(string) { answer = p.send(serving.VerbStop, "k1", ServingVerbRequest{}) }
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, audit.Refused, answer.Outcome)
	require.Contains(t, answer.Message, "the operation has nothing to do: its spec has been changed again")
}

func TestVerbAtTheVeryEnd(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	var answer *VerbResponse
	p.present = func(call string) {
		if call == "note new done=true" && answer == nil {
			answer = p.send(serving.VerbStop, "k1", ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann"}})
		}
	}
	p.run(servingOf(serving.KindCreate))
	require.Equal(t, audit.Refused, answer.Outcome)
	require.Contains(t, answer.Message, "the operation is over")
	require.Len(t, p.last().Operation.History, 1, "a refusal belongs to the record, however late")
}

func TestPageOfAServingSaysWhatToSend(t *testing.T) {
	t.Parallel()
	in := asking()
	m := serving.NewMachine(in, time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	at := time.Date(2026, 3, 1, 9, 5, 0, 0, time.UTC)
	require.NotContains(t, servingDetails(in, m), "waits for you")
	for i := range in.Parties {
		m.Done(i, serving.StepPrepare, at)
	}
	m.Done(0, serving.StepApply, at)
	m.Command(serving.Command{Verb: serving.VerbApprove, Actor: "ann", Gate: "stale"}, at)
	page := servingDetails(in, m)
	for _, expected := range []string{
		"Waits for **approval** since 2026-03-01T09:05:00Z, before party bob begins.",
		"* `approve`: have the party begin (`slipway serving approve s1`)",
		"* `stop`: every party goes back to the version of before (`slipway serving stop s1`)",
		"* 2026-03-01T09:05:00Z `approve` by ann (temporal): **refused** — the gate is of something else",
	} {
		require.Contains(t, page, expected)
	}
	m.Command(serving.Command{Verb: serving.VerbPause, Actor: "ann"}, at)
	require.Contains(t, servingDetails(in, m), "* `resume`: go on (`slipway serving resume s1`)")
}
