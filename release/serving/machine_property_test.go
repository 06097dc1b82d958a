package serving_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// inputOf returns the input of an operation on a serving with these domains as parties, each with its own queue.
func inputOf(kind string, domains ...string) serving.Input {
	in := serving.Input{ID: "s1", UID: "u1", Generation: 3, Kind: kind, TargetDigest: "new",
		UnreachableBudgetSeconds: 120}
	if kind == serving.KindUpdate {
		in.PreviousDigest = "old"
	}
	for _, domain := range domains {
		in.Parties = append(in.Parties, serving.PartyTarget{Domain: domain, Deployment: "s1", Queue: "q-" + domain})
	}
	return in
}

// machineModel tracks what the machine must not forget.
type machineModel struct {
	t   *rapid.T
	in  serving.Input
	m   *serving.Machine
	now time.Time
	// The events that the machine received: completed steps, and unreachable parties.
	prepared, applied, back, removed, away, lost, begun, approved []bool
	inherited, superseded, failed, paused, stopped                bool
	// stages are the observed stages.
	stages []serving.Stage
}

func drawMachine(t *rapid.T) *machineModel {
	kinds := []string{serving.KindCreate, serving.KindUpdate, serving.KindUpdate, serving.KindRecreate,
		serving.KindDelete}
	domains := []string{"alice", "bob", "carol", "dave"}
	in := inputOf(rapid.SampledFrom(kinds).Draw(t, "kind"), domains[:rapid.IntRange(1, 4).Draw(t, "parties")]...)
	if rapid.Bool().Draw(t, "sequential") {
		in.Policy.Order = serving.OrderSequential
		in.Policy.Parties = rapid.SliceOfN(rapid.SampledFrom(domains), 0, 3).Draw(t, "first")
		in.Policy.Approval = rapid.SampledFrom([]serving.Approval{"", serving.ApprovalNone,
			serving.ApprovalBetweenParties}).Draw(t, "approval")
	}
	n := len(in.Parties)
	flags := func() []bool { return make([]bool, n) }
	d := &machineModel{t: t, in: in, m: serving.NewMachine(in, noon), now: noon, prepared: flags(), applied: flags(),
		back: flags(), removed: flags(), away: flags(),
		lost: flags(), begun: flags(), approved: flags()}
	if d.inherited = rapid.Bool().Draw(t, "inherited"); d.inherited {
		d.m.Inherit()
	}
	if rapid.Bool().Draw(t, "at once") {
		d.m.UseSingleStep(noon)
	}
	return d
}

// ends returns the step with which a party ends now; for a StepCreate, its phase is drawn.
func (d *machineModel) ends(i int) serving.Step {
	if step := d.m.NextStep(i); step != serving.StepCreate {
		return step
	}
	through := rapid.SampledFrom([]serving.Step{serving.StepNone, serving.StepPrepare,
		serving.StepApply, serving.StepApply}).Draw(d.t, "through")
	for party := range d.prepared {
		d.prepared[party] = d.prepared[party] || through == serving.StepApply
	}
	return d.m.EndSingleStep(through)
}

// done completes the next step of a party.
func (d *machineModel) done(i int) {
	step := d.ends(i)
	switch step {
	case serving.StepNone:
		return
	case serving.StepPrepare:
		d.prepared[i] = true
	case serving.StepApply:
		d.applied[i] = true
	case serving.StepRollback:
		d.back[i] = true
	case serving.StepRemove:
		d.removed[i] = true
	}
	d.away[i], d.lost[i] = false, false
	d.m.Done(i, step, d.now)
}

// command sends a verb and records its effect.
func (d *machineModel) command(verb serving.Verb) {
	w := d.m.WaitingFor()
	outcome, text := d.m.Command(serving.Command{Verb: verb, Actor: "ann"}, d.now)
	require.NotEmpty(d.t, text, "every command gets a reply")
	history := d.m.History()
	require.Equal(d.t, string(outcome), history[len(history)-1].Outcome, "and is recorded")
	if outcome == audit.Refused {
		return
	}
	switch verb {
	case serving.VerbApprove:
		require.Equal(d.t, serving.WaitApproval, w.Kind)
		i := slices.IndexFunc(d.in.Parties, func(p serving.PartyTarget) bool { return p.Domain == w.Party })
		d.approved[i] = true
	case serving.VerbPause:
		d.paused = true
	case serving.VerbResume:
		d.paused = false
	case serving.VerbStop:
		require.Equal(d.t, serving.KindUpdate, d.in.Kind, "only an update has a previous version")
		d.stopped, d.paused = true, false
	}
}

// nextRun replaces the machine by one resumed from its state, as a workflow that continues as new does.
func (d *machineModel) nextRun() {
	raw, err := json.Marshal(d.m.State())
	require.NoError(d.t, err)
	var state serving.State
	require.NoError(d.t, json.Unmarshal(raw, &state))
	before := d.m
	d.m = serving.ResumeMachine(d.in, state)
	require.Equal(d.t, before, d.m)
}

func (d *machineModel) act() {
	i := rapid.IntRange(0, len(d.in.Parties)-1).Draw(d.t, "party")
	d.now = d.now.Add(time.Duration(rapid.IntRange(0, 300).Draw(d.t, "seconds")) * time.Second)
	switch rapid.SampledFrom([]string{"done", "done", "done", "failed", "trouble", "away", "here", "tick", "late",
		"command", "command", "supersede", "next run"}).Draw(d.t, "event") {
	case "done":
		d.done(i)
	case "failed":
		step := d.ends(i)
		d.failed = d.failed || step == serving.StepPrepare || step == serving.StepApply
		if step != serving.StepNone {
			d.away[i], d.lost[i] = false, false
			d.m.Failed(i, step, "it failed", d.now)
		}
	case "trouble":
		if step := d.ends(i); step != serving.StepNone {
			d.away[i], d.lost[i] = false, true
			d.m.Interrupted(i, step, failure.New(failure.Unreachable, "its cluster is unreachable"), d.now)
		}
	case "away":
		d.away[i] = true
		d.m.Presence(serving.PresenceSignal{Queue: d.in.Parties[i].Queue, Unreachable: "silent",
			Since: d.now.Add(-20 * time.Second)}, d.now)
	case "here":
		d.away[i] = false
		d.m.Presence(serving.PresenceSignal{Queue: d.in.Parties[i].Queue, Since: d.now}, d.now)
	case "tick":
		if at, waits := d.m.Deadline(); waits {
			d.now = at
			d.m.Tick(d.now)
		}
	case "next run":
		d.nextRun()
	case "late": // results of steps that are not current
		for _, other := range []serving.Step{serving.StepPrepare, serving.StepApply, serving.StepRollback,
			serving.StepRemove} {
			if other != d.m.NextStep(i) {
				d.away[i], d.lost[i] = false, false
				d.m.Failed(i, other, "too late", d.now)
			}
		}
	case "command":
		verbs := []serving.Verb{serving.VerbApprove, serving.VerbApprove, serving.VerbApprove, serving.VerbPause,
			serving.VerbResume, serving.VerbResume, serving.VerbStop}
		d.command(rapid.SampledFrom(verbs).Draw(d.t, "verb"))
	case "supersede":
		if rapid.IntRange(0, 9).Draw(d.t, "rare") == 0 {
			d.superseded = d.superseded || d.in.Kind != serving.KindDelete && !d.m.Finished()
			d.m.Supersede(serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
		}
	}
}

// everybody reports whether for each party at least one of the flags is set.
func eachParty(flags ...[]bool) bool {
	for i := range flags[0] {
		if !slices.ContainsFunc(flags, func(f []bool) bool { return f[i] }) {
			return false
		}
	}
	return true
}

func (d *machineModel) check() {
	t, m := d.t, d.m
	asksFirst := m.NextStep(0) == serving.StepCreate // which checks the parties itself
	if !asksFirst && (len(d.stages) == 0 || d.stages[len(d.stages)-1] != m.Stage()) {
		if m.Stage() == serving.StageCommit && d.in.Kind == serving.KindUpdate {
			require.True(t, eachParty(d.prepared), "an update is committed when all parties are prepared")
			require.False(t, slices.Contains(d.away, true) || slices.Contains(d.lost, true),
				"an update is not committed while a party is unreachable")
		}
		if m.Stage() == serving.StageCommit {
			require.True(t, eachParty(d.prepared, d.away, d.lost), "every reachable party is checked first")
		}
		require.NotContains(t, d.stages, m.Stage(), "no stage is repeated")
		d.stages = append(d.stages, m.Stage())
	}
	wanted := map[serving.Step]bool{}
	for i := range d.in.Parties {
		step := m.NextStep(i)
		if step == serving.StepNone {
			continue
		}
		wanted[step] = true
		if step == serving.StepApply && !d.begun[i] {
			d.checkBegins(i)
		}
		d.begun[i] = d.begun[i] || step == serving.StepApply
		if step == serving.StepApply && d.in.Kind == serving.KindUpdate &&
			d.in.Policy.Order == serving.OrderSequential {
			d.checkTurn(i)
		}
	}
	require.LessOrEqual(t, len(wanted), 1, "two versions are never applied at the same time: %v", wanted)
	_, waits := m.Deadline()
	require.False(t, waits && (d.in.Kind != serving.KindUpdate || !slices.Contains(d.away, true) ||
		m.Stage() != serving.StagePrepare && m.Stage() != serving.StageCommit),
		"there is a deadline only while an update waits for an unreachable party")
	if w := m.WaitingFor(); w != nil {
		require.Contains(t, []serving.Stage{serving.StagePrepare, serving.StageCommit}, m.Stage(),
			"a rollback waits for no user")
		require.Equal(t, w.Message, m.Outcome().Message, "the status shows the awaited decision")
		require.False(t, waits && !slices.Contains(d.begun, true), "no deadline runs before a party has started")
	}
	if d.in.Kind == serving.KindDelete {
		require.Equal(t, eachParty(d.removed), m.Finished(),
			"a deletion ends when all objects are deleted, and not before")
		require.Equal(t, eachParty(d.removed, d.away, d.lost), m.Released(),
			"a serving is released when all reachable parties are cleaned up")
	} else {
		require.False(t, m.Released())
	}
	require.NotEmpty(t, m.Message())
	if m.Finished() {
		d.checkOver()
	}
}

// checkBegins requires that a user has let a party start, where the policy needs it.
func (d *machineModel) checkBegins(party int) {
	require.False(d.t, d.paused, "no party starts during a pause")
	if d.in.Kind == serving.KindUpdate && d.in.Policy.Approval == serving.ApprovalBetweenParties &&
		slices.Contains(d.begun, true) {
		require.True(d.t, d.approved[party], "%s starts only after an approval", d.in.Parties[party].Domain)
	}
}

// checkTurn requires that all preceding parties run the new version.
func (d *machineModel) checkTurn(party int) {
	var order []string
	for _, domain := range d.in.Policy.Parties {
		if !slices.Contains(order, domain) {
			order = append(order, domain)
		}
	}
	before := func(i int) int {
		if at := slices.Index(order, d.in.Parties[i].Domain); at >= 0 {
			return at
		}
		return len(order) + i
	}
	for i := range d.in.Parties {
		if before(i) < before(party) {
			require.True(d.t, d.applied[i], "%s is before %s", d.in.Parties[i].Domain, d.in.Parties[party].Domain)
		}
	}
}

func (d *machineModel) checkOver() {
	t, o := d.t, d.m.Outcome()
	for i := range d.in.Parties {
		require.Equal(t, serving.StepNone, d.m.NextStep(i), "an ended operation has no next step")
	}
	require.Equal(t, d.superseded, d.m.Superseded())
	if d.superseded || d.in.Kind == serving.KindDelete {
		require.False(t, o.Served)
		return
	}
	require.Equal(t, o.Reason == "" && d.in.Kind != serving.KindRecreate, o.Served)
	if o.Reason == "" {
		require.True(t, eachParty(d.applied), "it succeeds when all parties run it")
		require.False(t, d.failed, "a failure is not ignored")
		return
	}
	require.NotEmpty(t, o.Message)
	if d.in.Kind != serving.KindUpdate {
		return
	}
	require.Equal(t, serving.ReasonUpdateRolledBack, o.Reason)
	require.Equal(t, "old", o.Version)
	for i := range d.in.Parties {
		require.True(t, d.back[i] || !d.begun[i] && !d.inherited, "%s runs the previous version again",
			d.in.Parties[i].Domain)
	}
}

func TestMachine_HoldsInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := drawMachine(t)
		d.check()
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			over, before := d.m.Finished(), d.m.Outcome()
			d.act()
			d.check()
			if over {
				require.True(t, d.m.Finished(), "an ended operation stays ended")
				now := d.m.Outcome()
				now.History = before.History // refusals are recorded even after the end
				require.Equal(t, before, now, "the outcome does not change after the end")
			}
		}
		for round := 0; !d.m.Finished(); round++ {
			require.Less(t, round, 20, "an operation ends when every party responds: %s", d.m.Message())
			for i := range d.in.Parties {
				d.away[i] = false
				d.m.Presence(serving.PresenceSignal{Queue: d.in.Parties[i].Queue, Since: d.now}, d.now)
				d.done(i)
				d.check()
			}
			if w := d.m.WaitingFor(); w != nil {
				d.command(map[string]serving.Verb{serving.WaitApproval: serving.VerbApprove,
					serving.WaitResume: serving.VerbResume}[w.Kind])
				d.check()
			}
		}
	})
}

func ExampleMachine() {
	m := serving.NewMachine(inputOf(serving.KindUpdate, "alice", "bob"), noon)
	m.Done(0, serving.StepPrepare, noon)
	fmt.Println(m.Message())
	m.Done(1, serving.StepPrepare, noon)
	m.Done(0, serving.StepApply, noon)
	m.Failed(1, serving.StepApply, "no such image", noon)
	fmt.Println(strings.ReplaceAll(m.Message(), "; ", ";\n"))
	// Output:
	// checking whether every party can run the version; nothing is changed yet (bob is being checked)
	// party bob: no such image;
	// every party goes back to the previous version (alice is being rolled back;
	// bob is being rolled back)
}
