package workflows

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
)

func TestServingIsCreatedInAllParties(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	r := p.run(servingOf(serving.KindCreate))
	require.Equal(t, "begin create", p.calls[0])
	require.ElementsMatch(t, []string{"prepare alice new", "prepare bob new"}, p.calls[1:3],
		"all parties are checked before any is changed")
	require.ElementsMatch(t, []string{"apply alice new", "apply bob new"}, p.calls[3:5])
	require.Equal(t, []string{"note new done=true"}, p.calls[5:])
	require.Equal(t, ServingResult{Version: "new", Message: "it is done"}, r)
	require.True(t, p.last().Served, "from now on a rollback returns to this version")
	require.Len(t, p.last().Complete, 2)
	require.False(t, p.last().Source.Previous)
}

func TestServingCreationWaits_ForUnreachableParty(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.at(time.Minute, func() { p.leave("bob") })
	waiting := ServingState{}
	p.at(47*time.Hour, func() {
		require.Equal(t, map[string]string{"alice": "new"}, p.runs,
			"a reachable party does not wait for an unreachable one")
		waiting = p.state()
	})
	p.at(48*time.Hour, func() { p.come("bob") })
	p.run(servingOf(serving.KindCreate))
	require.Equal(t, serving.StageCommit, waiting.Stage)
	require.Contains(t, waiting.Message, "bob is unreachable, waiting (no worker)")
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	require.True(t, p.last().Served)
	require.NotContains(t, p.calls, "prepare bob new",
		"a party that was unreachable during prepare is not prepared later")
}

func TestServingIsNotServed_WhenAPartyFails(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["apply bob new"] = []error{refused("no such image")}
	r := p.run(servingOf(serving.KindCreate))
	require.Equal(t, serving.ReasonPartyFailed, r.Reason)
	require.False(t, p.last().Served)
	require.Equal(t, map[int]string{1: "no such image"}, p.last().Failures)
}

func TestServingIsUpdatedInAllParties(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
	require.True(t, p.last().Served)
}

func TestServingUpdateRollsBackEverywhere_WhenAPartyFails(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.fail["apply bob new"] = []error{refused("no such image")}
	p.fail["apply alice old"] = []error{refused("quota"), refused("quota")}
	r := p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs,
		"all or nothing, also when the rollback fails at first")
	require.Equal(t, "old", r.Version)
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
	require.Equal(t, "party bob: no such image; every party runs the previous version", p.last().Operation.Message)
	require.False(t, p.last().Served)
	require.Empty(t, p.last().Failures, "a restored party has not failed")
	require.Equal(t, "old", p.notes[0].Operation.Version, "the status shows the target version at once")
	require.False(t, p.notes[0].Operation.Done)
	require.Equal(t, map[int]string{0: "quota"}, p.notes[1].Failures, "a failed rollback is reported")
	require.GreaterOrEqual(t, p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)), 45*time.Second,
		"it is retried after a pause")
}

func TestServingUpdateChangesNothing_WhenAPartyRefuses(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.fail["prepare bob new"] = []error{refused("no permission")}
	p.run(servingOf(serving.KindUpdate))
	require.NotContains(t, fmt.Sprint(p.calls), "apply")
	require.Equal(t, "party bob: no permission; nothing was changed in any party", p.last().Operation.Message)
	require.Equal(t, "old", p.last().Operation.Version)
	require.Empty(t, p.last().Complete, "no worker has checked its objects")
}

func TestServingUpdateChangesNothing_WhenAPartyIsUnreachable(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.away["bob"] = true
	p.at(time.Second, func() { p.leave("bob") })
	p.run(servingOf(serving.KindUpdate))
	require.NotContains(t, fmt.Sprint(p.calls), "apply", "unreachable before the commit: nothing changes")
	require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
	require.InDelta(t, 600, p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)).Seconds(), 5)
}

func TestServingUpdateIsNotCommitted_WhilePreparedPartyUnreachable(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.away["bob"] = true
	p.at(30*time.Second, func() { p.leave("alice") }) // it is prepared
	p.at(40*time.Second, func() { p.come("bob") })
	p.at(5*time.Minute, func() {
		require.NotContains(t, fmt.Sprint(p.calls), "apply")
		require.Equal(t, serving.StagePrepare, p.state().Stage)
		require.Contains(t, p.state().Message, "alice is unreachable, waiting until 2026-03-01T09:10:30Z (no worker)")
		p.come("alice")
	})
	p.run(servingOf(serving.KindUpdate))
	require.Equal(t, map[string]string{"alice": "new", "bob": "new"}, p.runs)
}

func TestServingUpdateRollsBack_WhenPartyBecomesUnreachable(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "old", "bob": "old"}
	p.present = func(call string) {
		if call == "apply alice new" {
			p.away["bob"] = true
			p.leave("bob")
		}
	}
	in := servingOf(serving.KindUpdate)
	in.Policy.Order = serving.OrderSequential
	p.at(9*time.Minute, func() { require.Equal(t, "new", p.runs["alice"], "it waits for bob") })
	p.at(time.Hour, func() {
		require.Equal(t, "old", p.runs["alice"], "the reachable party is rolled back")
		require.Equal(t, serving.StageRollback, p.state().Stage, "the unreachable party's step is pending")
		require.False(t, p.notes[len(p.notes)-1].Operation.Done)
	})
	p.at(2*time.Hour, func() { p.come("bob") })
	p.run(in)
	require.Equal(t, []string{"apply bob old", "note old done=true"}, p.calls[len(p.calls)-2:],
		"it is rolled back as soon as it returns")
	require.Contains(t, p.last().Operation.Message,
		"party bob: its worker has been unreachable for longer than 10m0s: no worker")
	require.NotContains(t, p.calls, "apply bob new")
}

func TestServing_WhenClusterUnreachable(t *testing.T) {
	t.Parallel()
	lost := func(n int) []error { return slices.Repeat([]error{unreachable("its cluster is out of reach")}, n) }
	t.Run("a creation waits", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["prepare bob new"], p.fail["apply bob new"] = lost(1), lost(1)
		p.run(servingOf(serving.KindCreate))
		require.Equal(t, serving.ReasonPartyUnreachable, p.notes[0].Operation.Reason,
			"the status names who is waited for")
		require.Equal(t, "party bob: its cluster is out of reach; retrying", p.notes[0].Operation.Message)
		require.True(t, p.last().Served)
		require.Equal(t, []int64{0, 0}, p.budgets["apply bob new"], "a known failure is not reported again")
	})
	t.Run("an update continues if the party returns in time", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["apply bob new"] = lost(3)
		p.run(servingOf(serving.KindUpdate))
		require.True(t, p.last().Served)
		require.Equal(t, []int64{120, 120, 120, 120}, p.budgets["apply bob new"], "an update needs each report")
	})
	t.Run("an update rolls back if the party stays unreachable", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["apply bob new"] = lost(1000)
		p.fail["apply bob old"] = lost(2)
		p.run(servingOf(serving.KindUpdate))
		require.Equal(t, serving.ReasonUpdateRolledBack, p.last().Operation.Reason)
		require.Contains(t, p.last().Operation.Message,
			"party bob: it has been unreachable for longer than 10m0s: its cluster is out of reach")
		require.Equal(t, map[string]string{"alice": "old", "bob": "old"}, p.runs, "a rollback never gives up")
	})
	t.Run("an update rolls back if a worker lacks a permission for too long", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["apply bob new"] = slices.Repeat([]error{forbidden("may not patch")}, 1000)
		p.run(servingOf(serving.KindUpdate))
		require.Contains(t, p.last().Operation.Message,
			"party bob: it has lacked a permission for longer than 10m0s: may not patch")
	})
	t.Run("a deletion cleans up later", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["remove bob"] = append(lost(1), refused("no permission"), refused("no permission"))
		p.run(servingOf(serving.KindDelete))
		require.Less(t, slices.Index(p.calls, "release"), len(p.calls)-1,
			"the serving is deleted before the party is back")
		require.Equal(t, []string{"remove bob", "release"}, p.calls[len(p.calls)-2:])
		require.Equal(t, []int64{120, 0, 120, 120}, p.budgets["remove bob"])
	})
}

func TestServingWaits_ForLostPermission(t *testing.T) {
	t.Parallel()
	t.Run("by a creation", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["apply bob new"] = []error{forbidden("may not patch")}
		p.run(servingOf(serving.KindCreate))
		require.True(t, p.last().Served)
		require.Equal(t, []string{"", "may not patch"}, p.knownFailures["apply bob new"],
			"reporting each minute for weeks would reach the history limit")
	})
	t.Run("by a deletion", func(t *testing.T) {
		t.Parallel()
		p := newParties(t)
		p.fail["remove bob"] = slices.Repeat([]error{forbidden("may not delete")}, 3)
		p.run(servingOf(serving.KindDelete))
		require.Equal(t, len(p.calls)-1, slices.Index(p.calls, "release"), "the serving stays as long as its workloads")
		require.Equal(t, map[int]string{1: "may not delete"}, p.notes[0].Failures, "with the reason")
		require.Equal(t, []string{"", "", "", "may not delete"}, p.knownFailures["remove bob"])
	})
}

func TestServingDeletionReleases_BeforeUnreachablePartyIsCleanedUp(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	p.runs = map[string]string{"alice": "new", "bob": "new"}
	p.away["bob"] = true
	p.at(21*time.Second, func() { p.leave("bob") })
	p.at(time.Hour, func() { require.Equal(t, []string{"begin delete", "remove alice", "release"}, p.calls) })
	p.at(72*time.Hour, func() { p.come("bob") })
	p.run(servingOf(serving.KindDelete))
	require.Equal(t, []string{"remove bob", "release"}, p.after("release"), "its record is completed at the end")
	require.Empty(t, p.notes, "a deleted serving has no status")
}

func TestServingDeletionEnds_WithoutParties(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	in := servingOf(serving.KindDelete)
	in.Parties = nil
	p.run(in)
	require.Equal(t, []string{"begin delete", "release"}, p.calls)
}

// The home cluster is unreachable when the deleted serving is to be released.
func TestServingDeletionIsNotReportedEnded_BeforeRelease(t *testing.T) {
	t.Parallel()
	p := newParties(t)
	away := errors.New("the home cluster is away")
	p.fail["release"] = []error{away, away, away}
	p.at(2*time.Second, func() {
		require.NotEmpty(t, p.after("release"), "it is being released")
		require.Nil(t, p.state().Ending, "when a deletion is reported as ended, nothing is left of the serving")
	})
	p.run(servingOf(serving.KindDelete))
	require.NotNil(t, p.state().Ending)
}

func TestServingEnds_WhenNothingToDo(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]serving.BeginResult{"the serving is deleted": {NotFound: true},
		"a newer operation exists": {Outdated: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newParties(t)
			p.begun = begun
			require.NotEmpty(t, p.run(servingOf(serving.KindUpdate)).Message)
			require.Equal(t, []string{"begin update"}, p.calls)
		})
	}
}
