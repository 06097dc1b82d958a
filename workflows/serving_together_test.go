package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

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
			p.OnGetVersion(changeLoop, workflow.DefaultVersion, versionPartiesTogether).Return(c.level)
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
	require.Equal(t, []string{"apply bob", "apply bob"}, p.asked[4:], "what is tried again is tried alone")
	require.Equal(t, []int64{7, 0}, p.spent[2:], "after an outage its deadline begins anew")
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

// To stop an operation stops what its parties do together, and waits for its end.
func TestPartiesOfOneQueueAreStopped(t *testing.T) {
	t.Parallel()
	p := updated(t)
	p.runs["carol"], p.away["alice"] = "old", true
	p.at(time.Minute, func() {
		p.SignalWorkflow(string(serving.VerbStop), nil)
		p.away["alice"] = false
	})
	p.run(neighbours(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "old", "bob": "old", "carol": "old"}, p.runs)
	require.NotContains(t, p.calls, "apply bob new")
	require.True(t, p.last().Operation.Done)
}
