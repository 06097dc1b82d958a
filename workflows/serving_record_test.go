package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
)

// endings are the endings written into the record, in order.
func (p *fakeParties) endings() (all []serving.Ending) {
	for _, n := range append(p.notes, p.releases...) {
		if n.Ending != nil {
			all = append(all, *n.Ending)
		}
	}
	return all
}

// ended is the single ending written into the record.
func (p *fakeParties) ended() serving.Ending {
	require.Len(p.t, p.endings(), 1)
	return p.endings()[0]
}

func TestServingRecordContainsTheEnding(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.run(servingOf(serving.KindCreate))
	require.Equal(t, serving.Ending{State: serving.StateSucceeded, Message: "it is done", At: p.ended().At}, p.ended())
	require.Equal(t, time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), p.notes[0].Started.UTC(),
		"the record has the start time")
	require.Equal(t, p.ended(), *p.state().Ending, "the query returns it too")
	require.Equal(t, []string{"note new done=true"}, p.calls[5:], "the status and the record cost one activity")
}

func TestServingRecord_OfRolledBackUpdate(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.fail["apply bob new"] = []error{refused("bad image")}
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, []string{"RolledBack", serving.ReasonUpdateRolledBack},
		[]string{string(p.ended().State), p.ended().Reason})
	require.Contains(t, p.ended().Message, "bad image")
}

func TestServingRecord_OfStoppedUpdate(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.at(time.Hour, func() {
		require.Empty(t, p.endings(), "it has not ended while it waits for a user")
		p.send(serving.VerbStop, "k1", ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann",
			Reason: "bad numbers"}})
	})
	p.run(asking())
	require.Equal(t, serving.StateRolledBack, p.ended().State)
	require.Len(t, p.ended().History, 1)
	require.Equal(t, []string{"ann", "stop", "bad numbers"},
		[]string{p.ended().History[0].Actor, p.ended().History[0].Verb, p.ended().History[0].Reason})
}

func TestServingRecord_OfSupersededOperation(t *testing.T) {
	t.Parallel()
	p := updated(t)
	recorded := 0
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, func() { recorded = len(p.endings()) })
	p.at(time.Hour, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	p.run(asking())
	require.Equal(t, []string{"Superseded", "", "superseded by serving/s1/4"},
		[]string{string(p.ended().State), p.ended().Reason, p.ended().Message})
	require.False(t, p.last().Served)
	require.Equal(t, 1, recorded, "the newer operation begins when this one has ended")
}

func TestServingRecord_OfDeletion_IsCompletedAtTheEnd(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "new", "bob": "new"}
	p.away["bob"] = true
	p.at(time.Minute, func() { p.leave("bob") })
	p.at(time.Hour, func() {
		require.Contains(t, p.calls, "release", "the serving does not wait for an unreachable party")
		require.Empty(t, p.endings(), "but something of it is left")
		require.Nil(t, p.state().Ending)
		p.come("bob")
	})
	p.run(servingOf(serving.KindDelete))
	require.Equal(t, []string{"remove bob", "release"}, p.calls[len(p.calls)-2:])
	require.Equal(t, serving.StateSucceeded, p.ended().State)
	require.GreaterOrEqual(t, p.ended().At.Sub(p.releases[0].Started), time.Hour)
}

func TestServingRecordContainsLateCommand(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	sent := false
	p.present = func(call string) {
		if call == "release" && !sent {
			sent = true
			p.send(serving.VerbStop, "k1", ServingVerbRequest{VerbRequest: VerbRequest{Actor: "ann"}})
		}
	}
	p.run(servingOf(serving.KindDelete))
	require.Len(t, p.endings(), 2)
	require.Empty(t, p.endings()[0].History)
	require.Len(t, p.endings()[1].History, 1, "a late refusal is recorded too")
}

func TestServingContinues_WhenRecordCannotBeWritten(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Unrecorded: "the home cluster does not permit it"}
	p.fail["note new done=true"] = []error{refused("the record is refused")}
	p.run(servingOf(serving.KindCreate))
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
}
