package serving_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/serving"
)

// approved has an update ask between parties.
func approved(in *serving.Input) {
	in.Policy = serving.Policy{Order: serving.OrderSequential, Approval: serving.ApprovalBetweenParties}
}

// half is an update of alice and bob of which alice has done its part, a minute after noon.
func half() *serving.Machine {
	m := prepared(approved)
	m.SetRun("serving/s1/3@r1")
	m.Done(0, serving.StepApply, noon.Add(time.Minute))
	return m
}

func send(m *serving.Machine, c serving.Command) (audit.Outcome, string) {
	return m.Command(c, noon.Add(2*time.Minute))
}

func TestAnUpdateAsksBetweenParties(t *testing.T) {
	t.Parallel()
	m := prepared(approved)
	require.Nil(t, m.WaitingFor(), "the first party needs nobody's word: whoever changed the spec gave it")
	require.Equal(t, serving.StepApply, m.Wanted(0))
	told := m.Outcome()
	m.SetRun("serving/s1/3@r1")
	m.Done(0, serving.StepApply, noon.Add(time.Minute))

	w := m.WaitingFor()
	require.Equal(t, serving.WaitApproval, w.Kind)
	require.Equal(t, "bob", w.Party)
	require.Equal(t, noon.Add(time.Minute), w.Since.Time)
	require.NotEmpty(t, w.Gate)
	require.Equal(t, "party bob waits for an approval since 2026-03-01T12:01:00Z, and 1 of 2 parties run the new version: `slipway serving approve s1`, "+
		"or the signal `approve`, has it begin; `stop` has everybody go back", w.Message, "who waits, since when, and what to send")
	require.True(t, m.Changed(told))
	require.Equal(t, serving.ReasonWaitingForApproval, m.Outcome().Reason, "the status says it too")
	require.Equal(t, serving.StepNone, m.Wanted(1), "bob is left alone")
	absent(m, "q-bob", time.Hour, time.Hour)
	_, waits := m.Deadline()
	require.False(t, waits, "no clock runs while a person is waited for, not even for one who is away")
	m.Tick(noon.Add(1000 * time.Hour))
	require.Equal(t, serving.StageCommit, m.Stage())

	outcome, text := m.Command(serving.Command{Verb: serving.VerbApprove, Actor: "ann", Gate: w.Gate}, noon.Add(48*time.Hour))
	require.Equal(t, audit.Accepted, outcome)
	require.Equal(t, "party bob is approved: it begins", text)
	require.Nil(t, m.WaitingFor())
	require.Equal(t, serving.StepApply, m.Wanted(1))
	until, waits := m.Deadline()
	require.True(t, waits)
	require.Equal(t, noon.Add(48*time.Hour+10*time.Minute), until, "from now on bob has its time")
	m.Done(1, serving.StepApply, noon.Add(49*time.Hour))
	require.True(t, m.Outcome().Served)
	require.Len(t, m.Outcome().History, 1, "who approved stays in the status")
}

func TestNobodyIsAskedBut(t *testing.T) {
	t.Parallel()
	for reason, in := range map[string]func(in *serving.Input){
		"between parties, which a policy without approval does not ask for": func(in *serving.Input) { in.Policy.Order = serving.OrderSequential },
		"by an update: a creation has nothing to protect": func(in *serving.Input) {
			approved(in)
			in.Kind = serving.KindCreate
		},
	} {
		m := prepared(in)
		m.Done(0, serving.StepApply, noon)
		require.Equal(t, serving.StepApply, m.Wanted(1), "nobody is asked but %s", reason)
	}
}

func TestGatesTellWhatIsApproved(t *testing.T) {
	t.Parallel()
	gates := map[string]string{}
	for _, run := range []string{"r1", "r2"} {
		for _, generation := range []int64{3, 4} {
			in := inputOf(serving.KindUpdate, "alice", "bob", "carol")
			approved(&in)
			in.Generation = generation
			m := serving.NewMachine(in, noon)
			m.SetRun(run)
			for i := range in.Parties {
				m.Done(i, serving.StepPrepare, noon)
			}
			for i := range 2 {
				m.Done(i, serving.StepApply, noon)
				what := fmt.Sprintf("%s, generation %d, %s", run, generation, m.WaitingFor().Party)
				require.NotContains(t, gates, m.WaitingFor().Gate, "%s has a gate of its own", what)
				gates[m.WaitingFor().Gate] = what
				send(m, serving.Command{Verb: serving.VerbApprove})
			}
		}
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	begun := func(kind string) *serving.Machine {
		m := serving.NewMachine(inputOf(kind, "alice", "bob"), noon)
		for i := range 2 {
			m.Done(i, serving.StepPrepare, noon)
		}
		return m
	}
	cases := map[string]struct {
		reason  string
		machine *serving.Machine
		send    serving.Command
		outcome audit.Outcome
		says    string
		stage   serving.Stage
	}{
		"approve": {"an empty payload means the party that waits", half(), serving.Command{Verb: serving.VerbApprove}, audit.Accepted,
			"party bob is approved: it begins", serving.StageCommit},
		"approve by name": {"a party may be named", half(), serving.Command{Verb: serving.VerbApprove, Party: "bob"}, audit.Accepted, "party bob is approved", serving.StageCommit},
		"approve another": {"what was meant for another is not for this one", half(), serving.Command{Verb: serving.VerbApprove, Party: "alice"}, audit.Refused,
			"meant for party alice, but it is bob that waits", serving.StageCommit},
		"approve stale": {"a stale gate approves nothing", half(), serving.Command{Verb: serving.VerbApprove, Gate: "0123"}, audit.Refused,
			"the gate is of something else: party bob waits now", serving.StageCommit},
		"approve too early": {"nobody waits yet", prepared(approved), serving.Command{Verb: serving.VerbApprove}, audit.Refused, "no approval is waited for now", serving.StageCommit},
		"approve without a policy": {"nobody ever waits", prepared(asIs), serving.Command{Verb: serving.VerbApprove, Gate: "0123"}, audit.Refused,
			"is not waited for any more", serving.StageCommit},
		"stop": {"all or nothing", half(), serving.Command{Verb: serving.VerbStop, Actor: "ann", Reason: "bad numbers"}, audit.Accepted,
			"every party goes back", serving.StageBack},
		"stop of all": {"also of an update without order", prepared(asIs), serving.Command{Verb: serving.VerbStop}, audit.Accepted, "every party goes back", serving.StageBack},
		"stop before the commit": {"nothing was changed yet", serving.NewMachine(inputOf(serving.KindUpdate, "alice"), noon), serving.Command{Verb: serving.VerbStop}, audit.Accepted,
			"nothing was changed in any party", serving.StageOver},
		"stop of a creation": {"there is no version of before", begun(serving.KindCreate), serving.Command{Verb: serving.VerbStop}, audit.Refused, "delete the serving", serving.StageCommit},
		"stop of a recreation": {"there is no version of before", begun(serving.KindRecreate), serving.Command{Verb: serving.VerbStop}, audit.Refused, "delete the serving",
			serving.StageCommit},
		"stop of a deletion": {"what is gone is gone", begun(serving.KindDelete), serving.Command{Verb: serving.VerbStop}, audit.Refused, "cannot be taken back", serving.StageRemove},
		"pause":              {"bob does not begin", half(), serving.Command{Verb: serving.VerbPause}, audit.Accepted, "no party begins until it is resumed", serving.StageCommit},
		"pause of all": {"everybody is on the way", prepared(asIs), serving.Command{Verb: serving.VerbPause}, audit.Refused,
			"there is nothing left to hold; `stop` has everybody go back", serving.StageCommit},
		"pause of a deletion":   {"nobody wants half of it", begun(serving.KindDelete), serving.Command{Verb: serving.VerbPause}, audit.Refused, "cannot be held", serving.StageRemove},
		"pause of a recreation": {"nobody wants half of it", begun(serving.KindRecreate), serving.Command{Verb: serving.VerbPause}, audit.Refused, "nothing to hold", serving.StageCommit},
		"resume":                {"nobody has paused it", half(), serving.Command{Verb: serving.VerbResume}, audit.Refused, "it is not paused: party bob waits", serving.StageCommit},
		"unknown":               {"a verb that there is not is answered with those that there are", half(), serving.Command{Verb: "promote"}, audit.Refused, "approve pause resume stop", serving.StageCommit},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome, text := send(tc.machine, tc.send)
			require.Equal(t, tc.outcome, outcome, tc.reason)
			require.Contains(t, text, tc.says, tc.reason)
			require.Equal(t, tc.stage, tc.machine.Stage(), tc.reason)
			history := tc.machine.History()
			require.Len(t, history, 1, "refusals belong to the record too")
			require.Equal(t, []string{string(tc.send.Verb), string(outcome), text}, []string{history[0].Verb, history[0].Outcome, history[0].Message})
			require.Equal(t, noon.Add(2*time.Minute), history[0].At.Time)
		})
	}
}

func TestStopSaysWhoDidIt(t *testing.T) {
	t.Parallel()
	m := half()
	send(m, serving.Command{Verb: serving.VerbStop, Actor: "ann", Via: "http", Reason: "bad numbers"})
	require.Equal(t, serving.ReasonUpdateRolledBack, m.Outcome().Reason, "a query echoes the version that serves")
	require.Equal(t, "stopped by ann: bad numbers; every party goes back to the version of before", m.Outcome().Message)
	require.Equal(t, serving.StepBack, m.Wanted(0))
	require.Equal(t, serving.StepNone, m.Wanted(1), "nobody has told bob to leave the version of before")
	outcome, text := send(m, serving.Command{Verb: serving.VerbStop})
	require.Equal(t, audit.Refused, outcome)
	require.Equal(t, "every party is on its way back already: wait until that is over", text)
	m.Done(0, serving.StepBack, noon)
	require.True(t, m.Over())
	require.Equal(t, "stopped by ann: bad numbers; every party is on the version of before", m.Outcome().Message)
	require.Equal(t, "old", m.Outcome().Version)
	outcome, text = send(m, serving.Command{Verb: serving.VerbApprove})
	require.Equal(t, audit.Refused, outcome)
	require.Contains(t, text, "the operation is over: stopped by ann")
}

func TestStopAfterAnOperationThatGaveWay(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindUpdate, "alice", "bob"), noon)
	m.Inherit()
	send(m, serving.Command{Verb: serving.VerbStop})
	require.Equal(t, []serving.Step{serving.StepBack, serving.StepBack}, []serving.Step{m.Wanted(0), m.Wanted(1)}, "what the one before has left half done is taken back")
}

func TestPauseHoldsWhoHasNotBegun(t *testing.T) {
	t.Parallel()
	m := prepared(func(in *serving.Input) { in.Policy.Order = serving.OrderSequential })
	send(m, serving.Command{Verb: serving.VerbPause, Actor: "ann", Reason: "lunch"})
	require.Equal(t, serving.StepApply, m.Wanted(0), "who has begun goes on")
	require.Contains(t, m.WaitingFor().Message, "it is paused since 2026-03-01T12:02:00Z, by ann: lunch")
	require.Equal(t, serving.ReasonPaused, m.Outcome().Reason)
	_, text := send(m, serving.Command{Verb: serving.VerbPause})
	require.Equal(t, "it is paused already, by ann: lunch: resume goes on", text)
	m.Done(0, serving.StepApply, noon.Add(3*time.Minute))
	require.Equal(t, serving.StepNone, m.Wanted(1))
	absent(m, "q-bob", 0, 4*time.Minute)
	_, waits := m.Deadline()
	require.False(t, waits, "no clock runs meanwhile")
	m.Command(serving.Command{Verb: serving.VerbResume}, noon.Add(time.Hour))
	require.Equal(t, serving.StepApply, m.Wanted(1))
	until, _ := m.Deadline()
	require.Equal(t, noon.Add(time.Hour+10*time.Minute), until)
}

func TestPauseBeforeTheCommit(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindUpdate, "alice", "bob"), noon)
	send(m, serving.Command{Verb: serving.VerbPause})
	m.Done(0, serving.StepPrepare, noon)
	m.Done(1, serving.StepPrepare, noon)
	require.Equal(t, serving.StagePrepare, m.Stage(), "nothing is changed before somebody resumes")
	send(m, serving.Command{Verb: serving.VerbResume})
	require.Equal(t, serving.StageCommit, m.Stage())
}

func TestApprovalWaitsForAResume(t *testing.T) {
	t.Parallel()
	m := half()
	send(m, serving.Command{Verb: serving.VerbPause})
	require.Equal(t, serving.WaitResume, m.WaitingFor().Kind)
	_, text := send(m, serving.Command{Verb: serving.VerbApprove})
	require.Equal(t, "it is paused: resume it, then approve", text)
	send(m, serving.Command{Verb: serving.VerbResume})
	require.Equal(t, serving.WaitApproval, m.WaitingFor().Kind)
	require.Equal(t, noon.Add(time.Minute), m.WaitingFor().Since.Time, "it has waited since before")
}

func TestKeysMakeRepeatsSafe(t *testing.T) {
	t.Parallel()
	in := inputOf(serving.KindUpdate, "alice", "bob", "carol")
	approved(&in)
	m := serving.NewMachine(in, noon)
	for i := range in.Parties {
		m.Done(i, serving.StepPrepare, noon)
	}
	m.Done(0, serving.StepApply, noon)
	approve := serving.Command{Verb: serving.VerbApprove, Key: "k1"}
	_, first := send(m, approve)
	m.Done(1, serving.StepApply, noon)
	outcome, again := send(m, approve)
	require.Equal(t, audit.Accepted, outcome)
	require.Equal(t, first, again, "the same answer")
	require.Equal(t, "carol", m.WaitingFor().Party, "and nothing is done twice")
	require.Len(t, m.History(), 1)
	outcome, text := send(m, serving.Command{Verb: serving.VerbStop, Key: "k1"})
	require.Equal(t, audit.Refused, outcome)
	require.Equal(t, `the key "k1" was used for approve: nothing was done; take a new key`, text)
}

func TestTheStatusShowsTheNewestDecisions(t *testing.T) {
	t.Parallel()
	m := half()
	for i := range 150 {
		send(m, serving.Command{Verb: serving.VerbResume, Reason: fmt.Sprint(i)})
	}
	require.Len(t, m.History(), 100)
	shown := m.Outcome().History
	require.Len(t, shown, 20)
	require.Equal(t, "149", shown[19].Reason)
}

func TestWhoeverIsSupersededWaitsForNobody(t *testing.T) {
	t.Parallel()
	m := half()
	send(m, serving.Command{Verb: serving.VerbPause})
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	require.Nil(t, m.WaitingFor())
}
