package workflows

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// neighbours is an operation of which all parties but carol have one queue.
func neighbours(kind string) serving.Input {
	in := servingOf(kind)
	in.Parties = []serving.PartyTarget{{Domain: "alice", Deployment: "s1", Queue: "q"}, {Domain: "bob", Deployment: "s1", Queue: "q"},
		{Domain: "carol", Deployment: "s1", Queue: "q-carol"}}
	return in
}

// Parties of one queue take each step by one activity; each has an outcome of its own all the same.
func TestPartiesOfOneQueue(t *testing.T) {
	t.Parallel()
	together := []string{"prepare alice bob", "prepare carol", "apply alice bob", "apply carol"}
	for name, c := range map[string]struct {
		reason string
		// level is the newest version that is recorded.
		level workflow.Version
		play  func(p *fakeParties)
		asked []string
		ends  string
	}{
		"Together": {"one activity of each queue", versionPartiesTogether, func(*fakeParties) {}, together, ""},
		"EarlierBuild": {"a build of before may have to go on with it", versionAtOnce, func(*fakeParties) {},
			[]string{"prepare alice", "prepare bob", "prepare carol", "apply alice", "apply bob", "apply carol"}, ""},
		"EarlierWorker": {"a worker of an earlier build does what the first one is asked", versionPartiesTogether, func(p *fakeParties) { p.earlier = true },
			append([]string{"prepare bob", "apply bob"}, together...), ""},
		"Unanswered": {"whoever has no answer goes on alone", versionPartiesTogether,
			func(p *fakeParties) { p.fail["apply bob new"] = []error{unreachable("its cluster does not answer")} }, append([]string{"apply bob"}, together...), ""},
		"Failed": {"a failure is told, and is of one party alone", versionPartiesTogether, func(p *fakeParties) { p.fail["apply bob new"] = []error{refused("no such image")} },
			together, "party bob: no such image"},
		"FailedOnAnEarlierWorker": {"what the first one fails with is not said of the others", versionPartiesTogether, func(p *fakeParties) {
			p.earlier, p.fail["apply alice new"] = true, []error{refused("no such image")}
		}, append([]string{"prepare bob", "apply bob"}, together...), "party alice: no such image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.OnGetVersion(changeLoop, workflow.DefaultVersion, versionCreatesAtOnce).Return(c.level)
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

// Time that a party has used of its deadline beside the others is used when it goes on alone.
func TestAPartyThatGoesOnAlone(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["apply bob new"] = []error{unreachable("its cluster does not answer"), unreachable("its cluster does not answer")}
	p.run(neighbours(serving.KindCreate))
	require.ElementsMatch(t, []string{"prepare alice bob", "prepare carol", "apply alice bob", "apply carol", "apply bob", "apply bob"}, p.asked,
		"what is tried again is tried alone")
	require.Equal(t, []int64{7, 0}, p.spent["apply bob"], "after an outage its deadline begins anew")
}

// An update that one party refuses changes nothing in those that were asked beside it, and what is taken back is taken back together.
func TestPartiesOfOneQueueGoBackTogether(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.runs["carol"] = "old"
	p.fail["apply bob new"] = []error{refused("no such image")}
	p.run(neighbours(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "old", "bob": "old", "carol": "old"}, p.runs)
	require.Contains(t, p.asked[len(p.asked)-2:], "apply alice bob")
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
}

// long has an apply of several parties take an hour, unless it is stopped; what is taken back takes no time.
func (p *fakeParties) long() {
	together := mock.MatchedBy(func(r serving.PartyRequest) bool { return len(r.Others) > 0 && !r.Source.Previous })
	p.OnActivity(serving.ActivityApply, mock.Anything, together).After(time.Hour).Return(nil, temporal.NewHeartbeatTimeoutError())
	p.OnActivity(serving.ActivityApply, mock.Anything, mock.Anything).Return(nil, nil)
}

// To stop an operation stops at once what its parties do together.
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

// What parties do together and is stopped for a new run is not done: the next run asks them again.
func TestPartiesOfOneQueueGoOnInANewRun(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.long()
	p.drainsSoon()
	next, after := p.onward(t, neighbours(serving.KindCreate))
	after.run(next)
	require.Equal(t, []string{"apply alice bob"}, after.asked)
	require.True(t, after.last().Served)
}

// A worker that dies has answered nobody: each party goes on alone.
func TestPartiesOfOneQueueWhoseWorkerDies(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	together := mock.MatchedBy(func(r serving.PartyRequest) bool { return len(r.Others) > 0 })
	p.OnActivity(serving.ActivityApply, mock.Anything, together).Return(nil, temporal.NewHeartbeatTimeoutError()).Once()
	p.OnActivity(serving.ActivityApply, mock.Anything, mock.Anything).Return(nil, nil).Times(3)
	p.run(neighbours(serving.KindCreate))
	require.True(t, p.last().Served)
	p.AssertExpectations(t)
}

// A worker of an earlier build ends an attempt at what the first one is asked when its pods take a while: the others do not wait for them.
func TestPartiesOfOneQueueWhoseEarlierWorkerTakesAWhile(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.earlier = true
	p.fail["apply alice new"] = slices.Repeat([]error{temporal.NewApplicationErrorWithOptions("0 of 1 pods", string(failure.NotReady),
		temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute, Category: temporal.ApplicationErrorCategoryBenign})}, 20)
	p.at(time.Minute, func() { require.Equal(t, "new", p.runs["bob"]) })
	p.run(neighbours(serving.KindCreate))
	require.Equal(t, map[string]string{"alice": "new", "bob": "new", "carol": "new"}, p.runs)
}
