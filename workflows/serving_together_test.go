package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/serving"
)

// neighbours is an operation in which all parties but carol share one queue.
func neighbours(kind string) serving.Input {
	in := servingOf(kind)
	in.Parties = []serving.PartyTarget{{Domain: "alice", Deployment: "s1", Queue: "q"},
		{Domain: "bob", Deployment: "s1", Queue: "q"},
		{Domain: "carol", Deployment: "s1", Queue: "q-carol"}}
	return in
}

// Parties of one queue take each step by one activity, but each has its own outcome.
func TestPartiesOfOneQueue(t *testing.T) {
	t.Parallel()
	together := []string{"prepare alice bob", "prepare carol", "apply alice bob", "apply carol"}
	for name, c := range map[string]struct {
		reason string
		play   func(p *fakeParties)
		asked  []string
		ends   string
	}{
		"Together": {"one activity per queue", func(*fakeParties) {}, together, ""},
		"Unfinished": {"an unfinished party continues alone",
			func(p *fakeParties) {
				p.fail["apply bob new"] = []error{unreachable("its cluster does not answer")}
			}, append([]string{"apply bob"}, together...), ""},
		"Failed": {"a failure is reported for its own party only", func(p *fakeParties) {
			p.fail["apply bob new"] = []error{refused("no such image")}
		}, together, "party bob: no such image"},
		"FirstFailed": {"the first party's failure is not the others'", func(p *fakeParties) {
			p.fail["apply alice new"] = []error{refused("no such image")}
		}, together, "party alice: no such image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			c.play(p)
			r := p.run(neighbours(serving.KindCreate))
			require.ElementsMatch(t, c.asked, p.asked, c.reason)
			require.Equal(t, c.ends == "", p.last().Served, c.reason)
			if c.ends != "" {
				require.Equal(t, c.ends, r.Message, c.reason)
				return
			}
			require.Equal(t, map[string]string{"alice": "new", "bob": "new", "carol": "new"}, p.runs, c.reason)
			require.Len(t, p.last().Complete, 3)
		})
	}
}

// Deadline seconds that a party used in a shared activity count when it continues alone.
func TestPartyContinuesAlone_WithUsedDeadline(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["apply bob new"] = []error{unreachable("its cluster does not answer"),
		unreachable("its cluster does not answer")}
	p.run(neighbours(serving.KindCreate))
	require.ElementsMatch(t, []string{"prepare alice bob", "prepare carol", "apply alice bob", "apply carol",
		"apply bob", "apply bob"}, p.asked,
		"a retry is alone")
	require.Equal(t, []int64{7, 0}, p.spent["apply bob"], "after an outage its deadline restarts")
}

// An update that one party refuses changes nothing at the parties that were checked with it; parties are rolled back
// together.
func TestPartiesOfOneQueueRollBackTogether(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.runs["carol"] = "old"
	p.fail["apply bob new"] = []error{refused("no such image")}
	p.run(neighbours(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "old", "bob": "old", "carol": "old"}, p.runs)
	require.Contains(t, p.asked[len(p.asked)-2:], "apply alice bob")
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
}

// The used part of a deadline is that of one step: a rollback has the whole time.
func TestPartiesOfOneQueueRollBack_WithWholeDeadline(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.runs["carol"] = "old"
	p.fail["apply alice new"], p.fail["apply bob new"] = []error{refused("no such image")}, []error{unreachable("late")}
	p.run(neighbours(serving.KindUpdate))
	require.Equal(t, []int64{0, 0}, p.spent["apply alice bob"])
	require.Equal(t, map[string]string{"alice": "old", "bob": "old", "carol": "old"}, p.runs)
}

// long makes an apply of several parties take an hour, unless it is stopped; a rollback takes no time.
func (p *fakeParties) long() {
	together := mock.MatchedBy(func(r serving.GroupRequest) bool {
		return len(r.Parties) > 1 && !r.Parties[0].Source.Previous
	})
	p.OnActivity(serving.ActivityApply, mock.Anything, together).After(time.Hour).Return(nil,
		temporal.NewHeartbeatTimeoutError())
	p.OnActivity(serving.ActivityApply, mock.Anything, mock.Anything).Return(allDone)
}

// Stopping an operation stops shared activities at once.
func TestPartiesOfOneQueueAreStopped(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.long()
	began := p.Now()
	p.at(time.Minute, func() { p.SignalWorkflow(string(serving.VerbStop), nil) })
	p.run(neighbours(serving.KindUpdate))
	require.Less(t, p.Now().Sub(began), 10*time.Minute)
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
}

// A shared step that is stopped for continue-as-new is not done: the next run repeats it.
func TestPartiesOfOneQueue_AfterContinueAsNew(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.long()
	p.drainsSoon()
	next, after := p.onward(t, neighbours(serving.KindCreate))
	after.run(next)
	require.Equal(t, []string{"apply alice bob"}, after.asked)
	require.True(t, after.last().Served)
}

// A worker that dies returns no result: Temporal retries the activity, which costs no event.
func TestPartiesOfOneQueue_AreRetriedTogether_WhenWorkerDies(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	together := mock.MatchedBy(func(r serving.GroupRequest) bool { return len(r.Parties) == 2 })
	p.OnActivity(serving.ActivityApply, mock.Anything, together).Return(nil, temporal.NewHeartbeatTimeoutError()).Once()
	p.OnActivity(serving.ActivityApply, mock.Anything, together).Return(allDone).Once()
	p.OnActivity(serving.ActivityApply, mock.Anything, mock.Anything).Return(allDone).Once()
	p.run(neighbours(serving.KindCreate))
	require.True(t, p.last().Served)
	p.AssertExpectations(t)
}

// A party whose cluster is known to be unreachable is rolled back alone: the others do not wait for it.
func TestPartiesOfOneQueue_RollBackWithoutUnreachableParty(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.runs["carol"] = "old"
	p.fail["apply bob new"] = []error{unreachable("its cluster does not answer"),
		unreachable("its cluster does not answer")}
	p.at(5*time.Second, func() { p.SignalWorkflow(string(serving.VerbStop), nil) })
	p.run(neighbours(serving.KindUpdate))
	require.ElementsMatch(t, []string{"apply alice", "apply bob", "apply carol"}, p.asked[len(p.asked)-3:])
	require.Equal(t, map[string]string{"alice": "old", "bob": "old", "carol": "old"}, p.runs)
}
