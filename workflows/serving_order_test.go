package workflows

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// signalled expects the operation to send a signal to another workflow.
func (p *fakeParties) signalled(workflowID, runID, name string, err error, do func()) {
	p.OnSignalExternalWorkflow(mock.Anything, workflowID, runID, name,
		mock.Anything).Return(func(_, _, _, _ string, _ any) error {
		p.calls = append(p.calls, name+" "+workflowID)
		if do != nil {
			do()
		}
		return err
	})
}

func TestServingEnds_WhenSuperseded(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	p.at(time.Minute, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	r := p.run(servingOf(serving.KindUpdate))
	require.Equal(t, "superseded by serving/s1/4", r.Message)
	require.Equal(t, "gave-way serving/s1/4", p.calls[len(p.calls)-1],
		"the newer operation is signalled when nothing runs here any more")
	require.Len(t, p.notes, 1, "the status is the newer operation's: only this one's record is completed")
}

func TestServingWaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Predecessor: &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r2"}}
	p.signalled("serving/s1/2", "", serving.SignalSupersede, nil, nil)
	p.at(90*time.Second, func() {
		require.Contains(t, p.state().Message, "waits for serving/s1/2 to end")
		require.Equal(t, []string{"begin update", "supersede serving/s1/2", "supersede serving/s1/2"}, p.calls,
			"no step runs before, and the request is repeated")
		p.SignalWorkflow(serving.SignalGaveWay, nil)
	})
	p.run(servingOf(serving.KindUpdate))
	require.True(t, p.last().Served)
}

func TestServingStarts_WhenPredecessorHasClosed(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Predecessor: &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r2"}}
	p.signalled("serving/s1/2", "", serving.SignalSupersede, errors.New("not found"), nil)
	p.fail["prepare bob new"] = []error{refused("no permission")}
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs,
		"the predecessor's unfinished changes are rolled back")
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
}

func TestServingIsSuperseded_WhileWaitingForPredecessor(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.begun = serving.BeginResult{Predecessor: &kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r2"}}
	p.signalled("serving/s1/2", "", serving.SignalSupersede, nil, nil)
	p.signalled("serving/s1/4", "", serving.SignalGaveWay, nil, nil)
	p.at(10*time.Second, func() {
		p.SignalWorkflow(serving.SignalSupersede, serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	})
	p.at(20*time.Second, func() { p.SignalWorkflow(serving.SignalGaveWay, nil) })
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, []string{"begin update", "supersede serving/s1/2", "note new done=true", "gave-way serving/s1/4"},
		p.calls, "of three in a row the last one acts, after the other two")
}

func TestServingDeletionIsNotSuperseded(t *testing.T) {
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

func TestServingPartyHasNotFailed_WhenWorkerDiesDuringPrepare(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	// It is stopped because the party is unreachable, and times out because its worker is dead.
	p.OnActivity(serving.ActivityPrepare, mock.Anything, mock.MatchedBy(func(r serving.GroupRequest) bool {
		return r.Parties[0].Domain == "bob"
	})).
		After(time.Minute).Return(nil, temporal.NewHeartbeatTimeoutError())
	p.OnActivity(serving.ActivityPrepare, mock.Anything, mock.Anything).Return(allDone)
	p.at(30*time.Second, func() {
		p.SignalWorkflow(serving.SignalPresence, serving.PresenceSignal{Queue: "q-bob", Unreachable: "silent",
			Since: p.Now()})
	})
	r := p.run(servingOf(serving.KindCreate))
	require.Empty(t, r.Reason, r.Message)
}
