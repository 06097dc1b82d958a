package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// shownObject is the Rollout object of a test: the writes to it, and their times.
type shownObject struct {
	views []rollout.View
	at    []time.Time
	// fail is how many writes fail first, pending how many find a command that has not arrived at the workflow.
	fail, pending int
	// written is called after each successful write.
	written func(v rollout.View)
}

// shows makes the rollout belong to a Rollout object, and returns the object.
func (p *fakeParty) shows(in *RolloutInput) *shownObject {
	o := &shownObject{}
	in.Object = &rollout.ObjectRef{Namespace: "shop", Name: "order", UID: "uid"}
	p.RegisterActivityWithOptions(func(_ context.Context, q rollout.PublishRequest) (rollout.PublishResult, error) {
		switch {
		case o.fail > 0:
			o.fail--
			return rollout.PublishResult{}, errors.New("the home cluster does not answer")
		case o.pending > 0 && q.View.AnsweredState == 0:
			o.pending--
			return rollout.PublishResult{Pending: true}, nil
		}
		o.views, o.at = append(o.views, q.View), append(o.at, p.Now())
		if o.written != nil {
			o.written(q.View)
		}
		return rollout.PublishResult{}, nil
	}, activity.RegisterOptions{Name: rollout.ActivityPublishRollout})
	return o
}

func (o *shownObject) last() rollout.View { return o.views[len(o.views)-1] }

func TestRolloutPublishesNothing_WithoutRolloutObject(t *testing.T) {
	t.Parallel()
	p := newParty(t, 4)
	in := rolloutOf(strategy.StylePartition, false, stepOf("50%", -1, 0), stepOf("100%", -1, 0))
	o := p.shows(&in)
	in.Object = nil
	p.run(in)
	require.NoError(t, p.GetWorkflowError())
	require.Empty(t, o.views)
}

func TestRolloutObjectShowsEachWaitAndTheRecordedEnd(t *testing.T) {
	t.Parallel()
	p := newParty(t, 4)
	in := rolloutOf(strategy.StylePartition, false, stepOf("25%", -1, -1), stepOf("50%", -1, -1), stepOf("100%", -1, 0))
	o := p.shows(&in)
	recorded := 0
	o.written = func(v rollout.View) {
		if v.Status.FinishedAt != nil {
			recorded = len(p.calls)
		}
	}
	for i := range 2 {
		p.send(time.Duration(i+1)*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
	}
	p.run(in)
	require.NoError(t, p.GetWorkflowError())
	waited := 0
	for _, v := range o.views {
		if w := v.Status.WaitingFor; w != nil && w.Kind == rollout.WaitApproval {
			waited++
		}
	}
	require.Equal(t, 2, waited, "each pause is shown once")
	require.Equal(t, rollout.PhaseHealthy, o.last().Status.Phase)
	require.Equal(t, "record", p.calls[recorded-1], "the record is written before the end is shown")
}

// A client repeats its approval every second until it sees another state, so the next step's pause must not be the next
// state it sees. The pods and routes in between may be shown later; the next pause does not wait for that.
func TestRolloutObjectShowsAnswer_BeforeNextStepWaits(t *testing.T) {
	t.Parallel()
	p := newParty(t, 4)
	in := rolloutOf(strategy.StylePartition, true, stepOf("25%", 20, -1), stepOf("50%", 50, -1), stepOf("100%", -1, 0))
	o := p.shows(&in)
	p.takes(500 * time.Millisecond)
	p.send(time.Hour, rollout.VerbApprove, RolloutVerbRequest{ObjectState: 7,
		VerbRequest: VerbRequest{Actor: "bob", Via: "kubectl", Key: "k"}})
	p.send(2*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
	p.run(in)
	require.NoError(t, p.GetWorkflowError())
	answered := -1
	for i, v := range o.views {
		if v.AnsweredState == 7 && answered < 0 {
			answered = i
		}
	}
	require.Positive(t, answered, "the answer is shown")
	require.NotEqual(t, rollout.StatePaused, o.views[answered].Status.CurrentStepState, "as another state")
	require.Equal(t, rollout.StatePaused, o.views[answered+1].Status.CurrentStepState, "the pause is next")
	require.GreaterOrEqual(t, o.at[answered+1].Sub(o.at[answered]), minShown, "long enough for clients to see it")
	require.Less(t, o.at[answered+1].Sub(o.at[answered]), minShown+time.Second,
		"not longer: only minor writes are paced")
}

func TestRolloutContinues_WhenObjectCannotBeWritten(t *testing.T) {
	t.Parallel()
	p := newParty(t, 4)
	in := rolloutOf(strategy.StylePartition, false, stepOf("50%", -1, 0), stepOf("100%", -1, 0))
	o := p.shows(&in)
	o.fail = 3
	s := p.run(in)
	require.NoError(t, p.GetWorkflowError())
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, rollout.PhaseHealthy, o.last().Status.Phase,
		"the end is shown when the object can be written again")
}

// A pause ends on time, not at the next attempt to write the object.
func TestRolloutPauseEndsOnTime_WhenStatusUpdateFails(t *testing.T) {
	t.Parallel()
	p := newParty(t, 4)
	in := rolloutOf(strategy.StylePartition, false, stepOf("50%", -1, 50), stepOf("100%", -1, 0))
	o := p.shows(&in)
	o.fail = 1000 // every write: the publisher gives up on the end
	at := map[string]time.Time{}
	p.before = func(call string) { at[call] = p.Now() }
	s := p.run(in)
	require.NoError(t, p.GetWorkflowError())
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	require.Equal(t, 50*time.Second, at["move 100%"].Sub(at["move 50%"]),
		"no attempt is due then: by now they are 15 s apart")
}

func TestRolloutObjectIsNotWritten_WhileCommandPending(t *testing.T) {
	t.Parallel()
	p := newParty(t, 4)
	in := rolloutOf(strategy.StylePartition, false, stepOf("50%", -1, -1), stepOf("100%", -1, 0))
	o := p.shows(&in)
	o.pending = 1
	p.send(time.Hour, rollout.VerbApprove, RolloutVerbRequest{ObjectState: 3,
		VerbRequest: VerbRequest{Via: "kubectl", Key: "k"}})
	p.run(in)
	require.NoError(t, p.GetWorkflowError())
	require.NotEmpty(t, o.views)
	require.Equal(t, int64(3), o.views[0].AnsweredState, "the first write contains the answer")
}
