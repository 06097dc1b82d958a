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

// asking is an update of alice and then bob, with an approval in between.
func asking() serving.Input {
	in := servingOf(serving.KindUpdate)
	in.Policy = serving.Policy{Order: serving.OrderSequential, Approval: serving.ApprovalBetweenParties}
	return in
}

// updated plays parties that run the previous version.
func updated(t *testing.T) *fakeParties {
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	return p
}

// send sends a verb as an Update; the answer is set when the operation has responded.
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

// shownWaits are the waits that were written into search attributes, in order; "-" means unset.
func (p *fakeParties) shownWaits() (waits []string) {
	for _, u := range p.upserts {
		if kind, is := u.GetKeyword(AttributeWaitingFor); is {
			waits = append(waits, kind)
			// an unset attribute has no value: this is the only way to see it
		} else if strings.Contains(fmt.Sprintf("%+v", u), AttributeWaitingFor.GetName()) {
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
		p.leave("bob") // this may happen within two days, and is no reason for a rollback
	})
	p.at(48*time.Hour, func() {
		require.Len(t, p.calls, calls, "waiting for a user costs no activity")
		require.Len(t, p.upserts, upserts)
		w := p.state().WaitingFor
		require.Equal(t, []string{serving.WaitApproval, "bob"}, []string{w.Kind, w.Party})
		told := p.notes[len(p.notes)-1].Operation
		require.Equal(t, w, told.WaitingFor, "the status shows which party waits")
		require.Equal(t, serving.ReasonWaitingForApproval, told.Reason)
		require.False(t, told.Done)
		require.Equal(t, "new", told.Version)
		p.come("bob")
		answer = p.send(serving.VerbApprove, "k1",
			ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann", Reason: "the numbers are good", Key: "k1",
				Via: "http"}, Gate: w.Gate})
	})
	p.SetOnTimerScheduledListener(func(string, time.Duration) { t.Error("waiting for a user needs no timer") })
	p.run(asking())
	require.Equal(t, audit.Accepted, answer.Outcome)
	require.Equal(t, "party bob is approved and starts", answer.Message)
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	require.Greater(t, p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)), 47*time.Hour)
	require.True(t, p.last().Served)
	require.Nil(t, p.last().Operation.WaitingFor)
	history := p.last().Operation.History
	require.Len(t, history, 1)
	require.Equal(t, []string{"ann", "http", "approve", "bob", "the numbers are good", "k1", "accepted"},
		[]string{history[0].Actor, history[0].Via, history[0].Verb, history[0].Party, history[0].Reason, history[0].Key,
			history[0].Outcome})
	require.Equal(t, []string{serving.WaitApproval, "-"}, p.shownWaits(), "lists show the wait as long as it lasts")
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
		require.Equal(t, history, p.notes[len(p.notes)-1].Operation.History, "a misspelt verb is visible in the status")
		p.SignalWorkflow(string(serving.VerbApprove), nil)
	})
	p.run(asking())
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	history := p.last().Operation.History
	require.Equal(t, []string{"unknown", "temporal", "approve", "accepted"},
		[]string{history[2].Actor, history[2].Via, history[2].Verb, history[2].Outcome}, "an empty payload is valid")
}

func TestServingStop_WhileWaitingForApproval(t *testing.T) {
	t.Parallel()
	p := updated(t)
	var answer *VerbResponse
	p.at(time.Hour, func() {
		answer = p.send(serving.VerbStop, "k1", ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann",
			Reason: "bad numbers"}})
	})
	r := p.run(asking())
	require.Equal(t, audit.Accepted, answer.Outcome)
	require.Equal(t, string(serving.StageRollback), answer.State)
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs)
	require.NotContains(t, strings.Join(p.calls, ", "), "apply bob", "bob is not changed")
	require.Equal(t, ServingResult{Version: "old", Reason: serving.ReasonUpdateRolledBack,
		Message: "stopped by ann: bad numbers; every party runs the previous version"}, r)
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
	require.Equal(t, "stopped by an unnamed user: the workflow was cancelled; every party runs the previous version",
		p.last().Operation.Message)
}

func TestServingStop_DuringApply(t *testing.T) {
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
	require.Contains(t, p.calls, "apply bob old", "bob's step had been started, so bob is rolled back too")
	require.Equal(t, "stopped by an unnamed user; every party runs the previous version", p.last().Operation.Message)
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
		require.Equal(t, map[string]string{"alice": "new", "bob": "old"}, p.runs,
			"running steps continue, and no other party begins")
		require.Equal(t, serving.WaitResume, p.state().WaitingFor.Kind)
		require.Contains(t, p.state().Message, "by ann: lunch")
		resumed = p.send(serving.VerbResume, "k2", ServingVerbRequest{})
	})
	in := servingOf(serving.KindUpdate)
	in.Policy.Order = serving.OrderSequential
	p.run(in)
	require.NotNil(t, resumed, "it continues only after the resume")
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
		require.Equal(t, "old", p.runs["carol"], "none of these approved carol")
		p.send(serving.VerbApprove, "u5", ServingVerbRequest{Party: "carol"})
	})
	p.run(in)
	require.Equal(t, audit.Accepted, first.Outcome)
	require.Equal(t, audit.Refused, stale.Outcome)
	require.Equal(t, "stale approval: party carol is waiting now. Review and retry", stale.Message)
	require.Contains(t, stale.Message, "carol", "with the party that waits")
	require.Equal(t, first.Message, again.Message, "a repeated request gets the same answer")
	require.Equal(t, audit.Accepted, again.Outcome)
	require.Equal(t, "the approval is for party bob, but party carol is waiting. Review and retry", other.Message)
	require.Len(t, p.last().Operation.History, 4)
}

func TestMalformedVerbsAreRejected(t *testing.T) {
	t.Parallel()
	p := updated(t)
	var rejected []string
	p.at(time.Minute, func() {
		for _, q := range []ServingVerbRequest{{Gate: "g"}, {Party: "bob"},
			{VerbRequest: VerbRequest{Actor: strings.Repeat("a", MaxActor+1)}}} {
			p.UpdateWorkflow(string(serving.VerbStop), "", &testsuite.TestUpdateCallback{
				OnAccept: func() {
					t.Error("it was accepted")
				}, OnReject: func(err error) {
					rejected = append(rejected, err.Error())
				}, OnComplete: func(any, error) {}}, q)
		}
		p.SignalWorkflow(string(serving.VerbApprove), nil)
	})
	p.run(asking())
	require.Len(t, rejected, 3)
	require.Contains(t, rejected[0], "party and gate are for approve only: stop applies to all parties")
	require.Len(t, p.last().Operation.History, 1, "a malformed verb is not recorded")
}

func TestServingIsSuperseded_WhileWaitingForApproval(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	p.at(time.Hour, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	p.run(asking())
	require.Equal(t, []string{serving.WaitApproval, "-"}, p.shownWaits(), "an ended operation waits for nothing")
	require.Equal(t, map[string]string{"alice": "new", "bob": "old"}, p.runs,
		"the newer operation continues from there")
}

func TestServingVerbIsRefused_WhenNothingToDo(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Outdated: true}
	var answer *VerbResponse
	p.present = func(string) { answer = p.send(serving.VerbStop, "k1", ServingVerbRequest{}) }
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, audit.Refused, answer.Outcome)
	require.Contains(t, answer.Message, "the operation has nothing to do: its spec has changed again")
}

func TestServingVerbIsRefused_AfterTheEnd(t *testing.T) {
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
	require.Contains(t, answer.Message, "the operation has ended")
	require.Len(t, p.last().Operation.History, 1, "a late refusal is recorded too")
}

func TestServingPageShowsVerbs(t *testing.T) {
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
		"* `approve`: let the party begin (`slipway serving approve s1`)",
		"* `stop`: every party goes back to the previous version (`slipway serving stop s1`)",
		"* 2026-03-01T09:05:00Z `approve` by ann (temporal): **refused** — stale approval",
	} {
		require.Contains(t, page, expected)
	}
	m.Command(serving.Command{Verb: serving.VerbPause, Actor: "ann"}, at)
	require.Contains(t, servingDetails(in, m), "* `resume`: go on (`slipway serving resume s1`)")
}
