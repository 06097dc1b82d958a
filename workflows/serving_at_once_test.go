package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/serving"
)

// pairOnOneQueue is a creation of two parties served by one worker.
func pairOnOneQueue() serving.Input {
	in := servingOf(serving.KindCreate)
	for i := range in.Parties {
		in.Parties[i].Queue = "q"
	}
	return in
}

// The parties of a creation that share one queue are checked and brought to the version by one activity; unfinished
// parties continue with the ordinary steps.
func TestServingCreationByOneActivity(t *testing.T) {
	t.Parallel()
	both := map[string]string{"alice": "new", "bob": "new"}
	for name, c := range map[string]struct {
		reason string
		play   func(p *fakeParties)
		asked  []string
		runs   map[string]string
		ends   string
	}{
		"AtOnce": {"one activity for all", func(*fakeParties) {}, []string{"create alice bob"}, both, ""},
		"Refused": {"nothing is written if one party cannot run it", func(p *fakeParties) {
			p.fail["prepare bob new"] = []error{refused("no such image")}
		},
			[]string{"create alice bob"}, map[string]string{},
			"party bob: no such image; nothing was changed in any party"},
		"Failed": {"a failure belongs to one party only", func(p *fakeParties) {
			p.fail["apply bob new"] = []error{refused("no such image")}
		},
			[]string{"create alice bob"}, map[string]string{"alice": "new"}, "party bob: no such image"},
		"NotAsked": {"an unfinished party is checked alone, and all begin after that",
			func(p *fakeParties) { p.fail["prepare bob new"] = []error{unreachable("it does not answer")} },
			[]string{"create alice bob", "prepare bob", "apply alice bob"}, both, ""},
		"NotBrought": {"a party that does not run it yet continues alone",
			func(p *fakeParties) {
				p.fail["apply bob new"] = []error{unreachable("it does not answer")}
			}, []string{"create alice bob", "apply bob"}, both, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
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

// A single party costs as little.
func TestServingCreationOfOneParty(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	in := pairOnOneQueue()
	in.Parties = in.Parties[:1]
	p.run(in)
	require.Equal(t, []string{"create alice"}, p.asked)
	require.True(t, p.last().Served)
}

// Parties that exceed one activity's limit, and those of several queues, are checked before the first begins.
func TestServingCreationUsesOrdinarySteps_WithSeveralGroups(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.run(servingOf(serving.KindCreate))
	require.ElementsMatch(t, []string{"prepare alice", "prepare bob", "apply alice", "apply bob"}, p.asked)
}

// Deadline seconds that a party used in the shared activity count when it continues alone.
func TestServingCreationCarriesOverUsedDeadline(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["apply bob new"] = []error{unreachable("it does not answer")}
	p.run(pairOnOneQueue())
	require.Equal(t, map[string][]int64{"apply bob": {7}}, p.spent)
}

// A worker that dies does not report what it has written: the parties are checked again, and none is reported as
// unchanged.
func TestServingCreation_WhenWorkerDies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail []error
		ends string
	}{
		"GoesOn": {nil, "it is done"},
		"Refused": {[]error{refused("no such image")},
			"party bob: no such image; the worker stopped while it was updating the parties: objects that it wrote " +
				"in the others stay until the serving is updated or deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.OnActivity(serving.ActivityCreate, mock.Anything, mock.Anything).Return(nil,
				temporal.NewHeartbeatTimeoutError()).Once()
			p.fail["prepare bob new"] = c.fail
			require.Equal(t, c.ends, p.run(pairOnOneQueue()).Message)
			require.Equal(t, "prepare alice bob", p.asked[0])
		})
	}
}

// A creation stopped for continue-as-new may have changed something: the next run repeats it, and loses nothing.
func TestServingCreation_AfterContinueAsNew(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.OnActivity(serving.ActivityCreate, mock.Anything, mock.Anything).After(time.Hour).Return(nil,
		temporal.NewHeartbeatTimeoutError())
	p.drainsSoon()
	next, after := p.onward(t, pairOnOneQueue())
	after.run(next)
	require.Equal(t, []string{"prepare alice bob", "apply alice bob"}, after.asked)
	require.True(t, after.last().Served)
}

// Lists show it by its effect: it is committed from the start.
func TestServingCreationByOneActivity_IsListedAsCommitted(t *testing.T) {
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

// The observations at the end are written with the ending, for any grouping of the parties.
func TestServingEndContainsObservations(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]serving.Input{"AtOnce": pairOnOneQueue(), "Alone": servingOf(serving.KindCreate),
		"Together": neighbours(serving.KindRecreate)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.sees = map[string]*serving.DeploymentSnapshot{"alice": {Version: "new", AvailableReplicas: 2}}
			began := p.Now().UTC()
			p.run(in)
			require.Equal(t, []serving.ObserveRequest{{ID: "s1", At: began, Observations: []serving.Observation{
				{ID: "s1", UID: "u1", Domain: "alice", Deployment: "s1", Snapshot: *p.sees["alice"]}}}},
				p.last().Observed, "there is no observation of a party that reported none")
		})
	}
}

// Signals sent with the start are processed first: a creation paused at its start checks the parties, and writes
// nothing before it is resumed.
func TestServingCreation_PausedAtStart_WritesNothing(t *testing.T) {
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

// A party's answer counts more than the assumption that it is unreachable: nothing is written if another party has
// refused.
func TestServingCreation_WritesNothing_WhenPartyBelievedUnreachableRefuses(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["prepare bob new"] = []error{refused("no such image")}
	p.present = func(call string) {
		if call == "prepare alice new" {
			p.SignalWorkflow(serving.SignalPresence,
				serving.PresenceSignal{Queue: "q", Unreachable: "silent", Since: p.Now()})
		}
	}
	r := p.run(pairOnOneQueue())
	require.Empty(t, p.runs)
	require.Equal(t, "party bob: no such image; nothing was changed in any party", r.Message)
}
