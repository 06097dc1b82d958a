package serving

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

func TestEnding(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	one := []PartyTarget{{Domain: "alice", Deployment: "s1", Queue: "q"}}
	cases := map[string]struct {
		reason  string
		kind    string
		does    func(m *Machine)
		state   ReleaseState
		because string
		says    string
	}{
		"done": {"the party runs the requested version", KindCreate, func(m *Machine) {
			m.Done(0, StepPrepare, at)
			m.Done(0, StepApply, at)
		}, StateSucceeded, "", "it is done"},
		"removed": {"all objects are deleted", KindDelete, func(m *Machine) {
			m.Done(0, StepRemove, at)
		}, StateSucceeded, "", "it is done"},
		"failed": {"a creation has no previous version", KindCreate, func(m *Machine) {
			m.Failed(0, StepPrepare, "no quota", at)
		},
			StateFailed, ReasonPartyFailed, "no quota"},
		"rolled back": {"the party runs the previous version", KindUpdate, func(m *Machine) {
			m.Done(0, StepPrepare, at)
			m.Failed(0, StepApply, "bad image", at)
			m.Done(0, StepRollback, at)
		}, StateRolledBack, ReasonUpdateRolledBack, "bad image"},
		"stopped": {"a user stopped it", KindUpdate, func(m *Machine) {
			m.Command(Command{Verb: VerbStop, Actor: "ann"}, at)
		},
			StateRolledBack, ReasonUpdateRolledBack, "stopped by ann"},
		"superseded": {"a newer operation continues", KindUpdate, func(m *Machine) {
			m.Done(0, StepPrepare, at)
			m.Supersede(SupersedeSignal{By: "serving/s1/4", Generation: 4})
		}, StateSuperseded, "", "superseded by serving/s1/4"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := NewMachine(Input{ID: "s1", Generation: 3, Kind: tc.kind, Parties: one}, at)
			tc.does(m)
			require.True(t, m.Finished(), tc.reason)
			end := m.Ending(at)
			require.Equal(t, []string{string(tc.state), tc.because}, []string{string(end.State), end.Reason}, tc.reason)
			require.Contains(t, end.Message, tc.says)
			require.Equal(t, m.History(), end.History)
		})
	}
}

func TestEnding_KeepsNewestHistory(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	m := NewMachine(Input{ID: "s1", Kind: KindDelete, Parties: []PartyTarget{{Domain: "alice"}}}, at)
	for range audit.MaxRefused {
		m.Command(Command{Verb: VerbStop, Actor: "ann"}, at)
	}
	m.Command(Command{Verb: VerbStop, Actor: "bea"}, at)
	end := m.Ending(at)
	require.Len(t, end.History, audit.MaxRefused, "they are transferred in one event")
	require.Equal(t, "bea", end.History[audit.MaxRefused-1].Actor)
	require.Equal(t, int64(1), end.RefusalsDropped)
}

func TestReleaseRequest_Release(t *testing.T) {
	t.Parallel()
	version := Version{ID: "s1", Spec: kuscia.KusciaDeploymentSpec{Initiator: "alice", Parties: []kuscia.Party{
		{DomainID: "bob", Role: "server", AppImageRef: "b"}, {DomainID: "alice", AppImageRef: "a"}}},
		AppImages: map[string]kuscia.AppImageSpec{"a": {Image: kuscia.AppImageInfo{Name: "registry/a", Tag: "1"}},
			"b": {Image: kuscia.AppImageInfo{Name: "registry/b", Tag: "2"}}}}
	target, err := version.Pack()
	require.NoError(t, err)
	in := Input{ID: "s1", Kind: KindUpdate, Generation: 2, Target: target, TargetDigest: "new",
		Previous: []byte("packed"), PreviousDigest: "old", Parties: []PartyTarget{
			{Domain: "alice", Deployment: "s1"}, {Domain: "bob", Role: "server", Deployment: "s1-server"},
			{Domain: "carol", Deployment: "s1"}}}
	asked := NewReleaseRequest(in, kuscia.Operation{WorkflowID: "serving/s1/2", RunID: "r"},
		time.Date(2026, 3, 1, 9, 0, 0, 1234, time.UTC))
	require.Empty(t, asked.Input.Previous)
	require.NotEmpty(t, in.Previous, "the input itself is not modified")
	release := asked.Release()
	require.Equal(t, []ReleaseParty{{Domain: "alice", AppImage: "a", Image: "registry/a:1"},
		{Domain: "bob", Role: "server", AppImage: "b", Image: "registry/b:2"}, {Domain: "carol"}},
		release.Parties, "each party is found at any index; one that the version does not have has no image")
	require.Equal(t, StateProgressing, release.State)
	require.Equal(t, OrderParallel, release.Policy.Order, "with its defaults")
	require.Equal(t, 1000, release.StartedAt.Nanosecond(), "with the precision of Kubernetes objects")

	release.History = []kuscia.AuditEntry{{Verb: "pause"}}
	ended := release.Ended(Ending{State: StateSucceeded, Message: "it is done", At: asked.StartedAt})
	require.Equal(t, []string{"Succeeded", "it is done"}, []string{string(ended.State), ended.Message})
	require.True(t, ended.Includes(Ending{History: []kuscia.AuditEntry{{Verb: "pause"}}}))
	require.False(t, ended.Includes(Ending{History: []kuscia.AuditEntry{{Verb: "pause"}, {Verb: "stop"}}}),
		"a command was received since")
	require.True(t, strings.HasPrefix(release.Workflow.ID, WorkflowPrefix("s1")))
}
