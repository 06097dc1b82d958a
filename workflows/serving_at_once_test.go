package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// pairOnOneQueue is a creation of two parties that one worker is for.
func pairOnOneQueue() serving.Input {
	in := servingOf(serving.KindCreate)
	for i := range in.Parties {
		in.Parties[i].Queue = "q"
	}
	return in
}

// The parties of a creation that have one queue are asked and brought to the version by one activity; what that does not come to, they do as they do otherwise.
func TestACreationAtOnce(t *testing.T) {
	t.Parallel()
	both := map[string]string{"alice": "new", "bob": "new"}
	for name, c := range map[string]struct {
		reason string
		level  workflow.Version
		play   func(p *fakeParties)
		asked  []string
		runs   map[string]string
		ends   string
	}{
		"AtOnce":       {"one activity of all", versionCreatesAtOnce, func(*fakeParties) {}, []string{"create alice bob"}, both, ""},
		"EarlierBuild": {"a build of before may have to go on with it", versionPartiesTogether, func(*fakeParties) {}, []string{"prepare alice bob", "apply alice bob"}, both, ""},
		"EarlierWorker": {"a worker that does not know it is asked for one after the other", versionCreatesAtOnce, func(p *fakeParties) { p.earlier = true },
			[]string{"create alice bob", "prepare alice bob", "prepare bob", "apply alice bob", "apply bob"}, both, ""},
		"Refused": {"nothing is written when one cannot", versionCreatesAtOnce, func(p *fakeParties) { p.fail["prepare bob new"] = []error{refused("no such image")} },
			[]string{"create alice bob"}, map[string]string{}, "party bob: no such image; nothing was changed in any party"},
		"Failed": {"what one fails with is of it alone", versionCreatesAtOnce, func(p *fakeParties) { p.fail["apply bob new"] = []error{refused("no such image")} },
			[]string{"create alice bob"}, map[string]string{"alice": "new"}, "party bob: no such image"},
		"NotAsked": {"who has no answer is asked alone, and all begin after that", versionCreatesAtOnce,
			func(p *fakeParties) { p.fail["prepare bob new"] = []error{unreachable("it does not answer")} },
			[]string{"create alice bob", "prepare bob", "apply alice bob"}, both, ""},
		"NotBrought": {"who does not run it yet goes on alone", versionCreatesAtOnce,
			func(p *fakeParties) { p.fail["apply bob new"] = []error{unreachable("it does not answer")} }, []string{"create alice bob", "apply bob"}, both, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.OnGetVersion(changeLoop, workflow.DefaultVersion, versionCreatesAtOnce).Return(c.level)
			c.play(p)
			r := p.run(pairOnOneQueue())
			require.Equal(t, c.asked, p.asked, c.reason)
			require.Equal(t, c.runs, p.runs, c.reason)
			require.Equal(t, c.ends == "", p.last().Served, c.reason)
			if c.ends != "" {
				require.Equal(t, c.ends, r.Message, c.reason)
				return
			}
			require.Len(t, p.last().Complete, 2)
		})
	}
}

// One party alone costs as little.
func TestACreationOfOneParty(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	in := pairOnOneQueue()
	in.Parties = in.Parties[:1]
	p.run(in)
	require.Equal(t, []string{"create alice"}, p.asked)
	require.True(t, p.last().Served)
}

// More parties than an activity takes, and those of several queues, are asked before the first begins.
func TestACreationThatIsNotOfOneActivity(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.run(servingOf(serving.KindCreate))
	require.ElementsMatch(t, []string{"prepare alice", "prepare bob", "apply alice", "apply bob"}, p.asked)
}

// The time that a party has used of its deadline beside the other is used when it goes on alone.
func TestWhatACreationHasUsedOfADeadline(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["apply bob new"] = []error{unreachable("it does not answer")}
	p.run(pairOnOneQueue())
	require.Equal(t, map[string][]int64{"apply bob": {7}}, p.spent)
}

// A worker that dies says nothing of what it has written: the parties are asked once more, and none is said to be unchanged.
func TestACreationWhoseWorkerDies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail []error
		ends string
	}{
		"GoesOn": {nil, "it is done"},
		"Refused": {[]error{refused("no such image")},
			"party bob: no such image; the worker died when it brought the parties to it: what it has written in the others stays until the serving is updated or deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.OnActivity(serving.ActivityCreate, mock.Anything, mock.Anything).Return(nil, temporal.NewHeartbeatTimeoutError()).Once()
			p.fail["prepare bob new"] = c.fail
			require.Equal(t, c.ends, p.run(pairOnOneQueue()).Message)
			require.Equal(t, "prepare alice bob", p.asked[0])
		})
	}
}

// What is stopped for a new run may have changed something: the next run asks again, and loses nothing.
func TestACreationThatGoesOnInANewRun(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.OnActivity(serving.ActivityCreate, mock.Anything, mock.Anything).After(time.Hour).Return(nil, temporal.NewHeartbeatTimeoutError())
	p.drainsSoon()
	next, after := p.onward(t, pairOnOneQueue())
	after.run(next)
	require.Equal(t, []string{"prepare alice bob", "apply alice bob"}, after.asked)
	require.True(t, after.last().Served)
}

// Lists find it by what it does: it is committed from the start.
func TestHowACreationAtOnceIsListed(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.present = func(call string) {
		if call == "prepare alice new" {
			require.Equal(t, serving.StageCommit, p.state().Stage)
		}
	}
	p.run(pairOnOneQueue())
	require.NotEmpty(t, p.upserts)
	state, told := p.upserts[0].GetKeyword(AttributeState)
	require.True(t, told)
	require.Equal(t, string(serving.StageCommit), state)
}

// What parties are seen to run in the end is told with the end, however many of them are asked at once.
func TestTheEndSaysWhatPartiesRun(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]serving.Input{"AtOnce": pairOnOneQueue(), "Alone": servingOf(serving.KindCreate), "Together": neighbours(serving.KindRecreate)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.sees = map[string]*serving.Seen{"alice": {Version: "new", AvailableReplicas: 2}}
			began := p.Now().UTC()
			p.run(in)
			require.Equal(t, []serving.ObserveRequest{{ID: "s1", At: began, Observations: []serving.Observation{
				{ID: "s1", UID: "u1", Domain: "alice", Deployment: "s1", Seen: *p.sees["alice"]}}}}, p.last().Observed, "of whom nothing is known nothing is said")
		})
	}
}

// What was sent with the start is heard before anything begins: a creation that is paused asks the parties, and writes nothing before it is resumed.
func TestACreationThatIsPausedAtItsStart(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.at(0, func() { p.SignalWorkflow(string(serving.VerbPause), nil) })
	p.at(time.Minute, func() {
		require.Empty(t, p.runs)
		p.SignalWorkflow(string(serving.VerbResume), nil)
	})
	p.run(pairOnOneQueue())
	require.Equal(t, []string{"prepare alice bob", "apply alice bob"}, p.asked)
}

// What a party has answered counts more than that it is thought to be away: nothing is written where another one has refused.
func TestARefusalOfAPartyThatWasThoughtToBeAway(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["prepare bob new"] = []error{refused("no such image")}
	p.present = func(call string) {
		if call == "prepare alice new" {
			p.SignalWorkflow(serving.SignalPresence, serving.PresenceSignal{Queue: "q", Unreachable: "silent", Since: p.Now()})
		}
	}
	r := p.run(pairOnOneQueue())
	require.Empty(t, p.runs)
	require.Equal(t, "party bob: no such image; nothing was changed in any party", r.Message)
}
