package workflows

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
)

var detailsNoon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

func operationOn(kind string, parties ...string) serving.Input {
	in := serving.Input{ID: "s1", Kind: kind, Generation: 3, UnreachableBudgetSeconds: 120}
	for _, domain := range parties {
		in.Parties = append(in.Parties, serving.PartyTarget{Domain: domain, Deployment: "s1",
			Queue: catalog.PartyQueue(domain)})
	}
	return in
}

// The page shows an operation's state, what it waits for, since and until when, and what to do.
func TestServingDetails(t *testing.T) {
	t.Parallel()
	unreachable := func(m *serving.Machine) {
		m.Done(0, serving.StepPrepare, detailsNoon)
		m.Presence(serving.PresenceSignal{Queue: catalog.PartyQueue("bob"),
			Unreachable: "start one (slipway worker --party)", Since: detailsNoon.Add(-time.Minute)}, detailsNoon)
	}
	for name, tc := range map[string]struct {
		reason string
		kind   string
		do     func(m *serving.Machine)
		has    []string
		hasNot []string
	}{
		"nothing is awaited": {"no action is needed; possible actions are listed", serving.KindUpdate,
			func(*serving.Machine) {},
			[]string{"## update serving s1 (generation 3): prepare", "| alice | is being checked |",
				"No action is needed.", "`slipway serving delete s1`", "`slipway serving get s1`"},
			[]string{"What to do"}},
		"a creation waits": {"without a limit: for which party, since when, and the command; two dashes outside of " +
			"code are kept", serving.KindCreate, unreachable,
			[]string{"| bob | **waited for**, as long as it takes | 2026-11-02T12:00:00Z | ",
				`start one (slipway worker \-\-party)`, "* start a worker of party bob: `slipway worker --party bob`",
				"continues by itself"}, []string{"No action is needed"}},
		"an update waits": {"until a deadline", serving.KindUpdate, unreachable,
			[]string{"| bob | **waited for** until 2026-11-02T12:10:00Z | 2026-11-02T12:00:00Z |"}, nil},
		"a deletion fails": {"it must complete, nothing supersedes it, and the operator has to fix the cause",
			serving.KindDelete, func(m *serving.Machine) {
				m.Done(0, serving.StepRemove, detailsNoon)
				m.Failed(1, serving.StepRemove, "it lacks a permission", detailsNoon)
			}, []string{"2 parties, 1 of them done", "| bob | is deleting its objects |  | it lacks a permission |",
				"* fix what party bob reports"}, []string{"| alice", "supersedes it"}},
		"it has ended": {"no work is left", serving.KindDelete, func(m *serving.Machine) {
			m.Done(0, serving.StepRemove, detailsNoon)
			m.Done(1, serving.StepRemove, detailsNoon)
		}, []string{"2 parties, 2 of them done."}, []string{"No action is needed", "| party"}},
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
		m.Presence(serving.PresenceSignal{Queue: p.Queue, Unreachable: strings.Repeat("no worker polls. ", 20),
			Since: detailsNoon}, detailsNoon)
	}
	text := servingDetails(in, m)
	require.Less(t, len(text), 4096, "the page is part of a URL of Temporal's UI")
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

// What users write can't add links, images or HTML to a page of Temporal's UI, or end a line of it.
func TestPages_EscapeTextOfUsers(t *testing.T) {
	t.Parallel()
	const evil = "![x](https://evil.example/x.png) [approve](https://evil.example) <img src=x> " +
		"<https://evil.example>\n# Approved\n`code` wWw.evil.example"
	entry := audit.Entry{At: detailsNoon, Actor: evil, Via: evil, Verb: audit.Verb("`" + evil), Outcome: audit.Refused,
		Message: evil}
	s := rollout.Status{Reason: evil, History: []audit.Entry{entry}}
	task := plan.Task{Comment: evil, Reason: evil, History: []audit.Entry{entry}}
	in := operationOn(serving.KindUpdate, "alice")
	m := serving.NewMachine(in, detailsNoon)
	m.Failed(0, serving.StepPrepare, evil, detailsNoon)
	m.Refuse(serving.Command{Verb: audit.Verb(evil), Actor: evil}, evil, detailsNoon)
	for name, page := range map[string]string{"rollout": rolloutDetails(s, detailsNoon),
		"task": taskDetails(task, detailsNoon), "serving": servingDetails(in, m)} {
		text := regexp.MustCompile("`[^`]*`").ReplaceAllString(strings.ReplaceAll(page, "\\`", ""), "") // without code
		for _, mark := range []string{"![", " [approve](", "<img", "<https", "://", "wWw.evil", "\n# Approved"} {
			require.NotContains(t, text, mark, name)
		}
		require.Contains(t, page, "evil.example", name)
	}
}
