package workflows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/serving"
)

var detailsNoon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func operationOn(kind string, parties ...string) serving.Input {
	in := serving.Input{ID: "s1", Kind: kind, Generation: 3, UnreachableBudgetSeconds: 120}
	for _, domain := range parties {
		in.Parties = append(in.Parties, serving.PartyTarget{Domain: domain, Deployment: "s1", Queue: catalog.PartyQueue(domain)})
	}
	return in
}

// The page says where an operation is, what it waits for since when and until when, and what to do.
func TestServingDetails(t *testing.T) {
	t.Parallel()
	away := func(m *serving.Machine) {
		m.Done(0, serving.StepPrepare, detailsNoon)
		m.Presence(serving.PresenceSignal{Queue: catalog.PartyQueue("bob"), Unreachable: "start one (slipway worker --party)", Since: detailsNoon.Add(-time.Minute)}, detailsNoon)
	}
	for name, tc := range map[string]struct {
		reason string
		kind   string
		do     func(m *serving.Machine)
		has    []string
		hasNot []string
	}{
		"nobody is waited for": {"it needs nobody, and what may be done is said", serving.KindUpdate, func(*serving.Machine) {},
			[]string{"## update serving s1 (generation 3): prepare", "| alice | is asked |", "It needs nobody.", "`slipway serving delete s1`", "`slipway serving get s1`"}, []string{"What to do"}},
		"a creation waits": {"as long as it takes, for whom, since when, and the command to type; two dashes stay two outside of code", serving.KindCreate, away,
			[]string{"| bob | **waited for**, as long as it takes | 2026-11-02T12:00:00Z | ", `start one (slipway worker \-\-party)`, "* start a worker of party bob: `slipway worker --party bob`", "goes on by itself"}, []string{"It needs nobody"}},
		"an update waits": {"with an end", serving.KindUpdate, away, []string{"| bob | **waited for** until 2026-11-02T12:10:00Z | 2026-11-02T12:00:00Z |"}, nil},
		"a deletion fails": {"it is owed, nothing takes its place, and somebody has to mend what is in the way", serving.KindDelete, func(m *serving.Machine) {
			m.Done(0, serving.StepRemove, detailsNoon)
			m.Failed(1, serving.StepRemove, "it lacks a permission", detailsNoon)
		}, []string{"2 parties, 1 of them done", "| bob | removes it |  | it lacks a permission |", "* mend what party bob says"}, []string{"| alice", "takes its place"}},
		"it is over": {"nothing is left to be done", serving.KindDelete, func(m *serving.Machine) {
			m.Done(0, serving.StepRemove, detailsNoon)
			m.Done(1, serving.StepRemove, detailsNoon)
		}, []string{"2 parties, 2 of them done."}, []string{"It needs nobody", "| party"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := operationOn(tc.kind, "alice", "bob")
			m := serving.NewMachine(in, detailsNoon)
			tc.do(m)
			text := servingDetails(in, m)
			for _, part := range tc.has {
				require.Contains(t, text, part, tc.reason)
			}
			for _, part := range tc.hasNot {
				require.NotContains(t, text, part, tc.reason)
			}
		})
	}
}

func TestServingDetailsOfManyParties(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("a-party-with-a-rather-long-name-%d", i))
	}
	in := operationOn(serving.KindUpdate, names...)
	m := serving.NewMachine(in, detailsNoon)
	for _, p := range in.Parties {
		m.Presence(serving.PresenceSignal{Queue: p.Queue, Unreachable: strings.Repeat("nobody is there. ", 20), Since: detailsNoon}, detailsNoon)
	}
	text := servingDetails(in, m)
	require.Less(t, len(text), 4096, "the page travels in a URL of the Temporal UI")
	require.Contains(t, text, "… and 188 more.")
}

func TestWorkerOf(t *testing.T) {
	t.Parallel()
	for queue, want := range map[string]string{
		catalog.PartyQueue("alice"):              "`slipway worker --party alice`",
		catalog.PartyQueue(catalog.DefaultParty): "`slipway worker`",
		"her-own":                                "one that polls queue `her-own`",
	} {
		require.Equal(t, want, workerOf(serving.PartyTarget{Domain: "alice", Queue: queue}))
	}
}
