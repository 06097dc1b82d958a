package serving_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/serving"
)

// approved configures an update to need approvals between parties.
func approved(in *serving.Input) {
	in.Policy = serving.Policy{Order: serving.OrderSequential, Approval: serving.ApprovalBetweenParties}
}

// half returns an update of alice and bob in which alice has finished, a minute after noon.
func halfApplied() *serving.Machine {
	m := prepared(approved)
	m.SetRun("serving/s1/3@r1")
	m.Done(0, serving.StepApply, noon.Add(time.Minute))
	return m
}

func send(m *serving.Machine, c serving.Command) (audit.Outcome, string) {
	return m.Command(c, noon.Add(2*time.Minute))
}

func TestUpdate_WaitsForApprovalBetweenParties(t *testing.T) {
	t.Parallel()
	m := prepared(approved)
	require.Nil(t, m.WaitingFor(), "the first party needs no approval: changing the spec is the approval")
	require.Equal(t, serving.StepApply, m.NextStep(0))
	before := m.Outcome()
	m.SetRun("serving/s1/3@r1")
	m.Done(0, serving.StepApply, noon.Add(time.Minute))

	w := m.WaitingFor()
	require.Equal(t, serving.WaitApproval, w.Kind)
	require.Equal(t, "bob", w.Party)
	require.Equal(t, noon.Add(time.Minute), w.Since.Time)
	require.NotEmpty(t, w.Gate)
	require.Equal(t, "party bob has been waiting for an approval since 2026-03-01T12:01:00Z; 1 of 2 parties run the "+
		"new version: "+
		"`slipway serving approve s1` or the signal `approve` starts it; `stop` rolls every party back", w.Message,
		"which party waits, since when, and what to send")
	require.True(t, m.Changed(before))
	require.Equal(t, serving.ReasonWaitingForApproval, m.Outcome().Reason, "the status shows it, too")
	require.Equal(t, serving.StepNone, m.NextStep(1), "bob is not changed")
	absent(m, "q-bob", time.Hour, time.Hour)
	_, waits := m.Deadline()
	require.False(t, waits,
		"no deadline runs while the operation waits for an approval, not even for an unreachable party")
	m.Tick(noon.Add(1000 * time.Hour))
	require.Equal(t, serving.StageCommit, m.Stage())

	outcome, text := m.Command(serving.Command{Verb: serving.VerbApprove, Actor: "ann", Gate: w.Gate},
		noon.Add(48*time.Hour))
	require.Equal(t, audit.Accepted, outcome)
	require.Equal(t, "party bob is approved and starts", text)
	require.Nil(t, m.WaitingFor())
	require.Equal(t, serving.StepApply, m.NextStep(1))
	until, waits := m.Deadline()
	require.True(t, waits)
	require.Equal(t, noon.Add(48*time.Hour+10*time.Minute), until, "bob's deadline counts from the approval")
	m.Done(1, serving.StepApply, noon.Add(49*time.Hour))
	require.True(t, m.Outcome().Served)
	require.Len(t, m.Outcome().History, 1, "the approval stays in the status")
}

func TestApproval_IsNotNeeded(t *testing.T) {
	t.Parallel()
	for reason, in := range map[string]func(in *serving.Input){
		"a policy without approval": func(in *serving.Input) { in.Policy.Order = serving.OrderSequential },
		"a creation, which has nothing to protect": func(in *serving.Input) {
			approved(in)
			in.Kind = serving.KindCreate
		},
	} {
		m := prepared(in)
		m.Done(0, serving.StepApply, noon)
		require.Equal(t, serving.StepApply, m.NextStep(1), "no approval is needed: %s", reason)
	}
}

func TestGate_IsUniquePerPartyRunAndGeneration(t *testing.T) {
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
				require.NotContains(t, gates, m.WaitingFor().Gate, "%s has its own gate", what)
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
		"approve": {"an empty payload means the waiting party", halfApplied(),
			serving.Command{Verb: serving.VerbApprove}, audit.Accepted,
			"party bob is approved and starts", serving.StageCommit},
		"approve by name": {"a party may be named", halfApplied(),
			serving.Command{Verb: serving.VerbApprove, Party: "bob"}, audit.Accepted, "party bob is approved",
			serving.StageCommit},
		"approve another": {"an approval for another party is refused", halfApplied(),
			serving.Command{Verb: serving.VerbApprove, Party: "alice"}, audit.Refused,
			"the approval is for party alice, but party bob is waiting", serving.StageCommit},
		"approve stale": {"an approval with a stale gate is refused", halfApplied(),
			serving.Command{Verb: serving.VerbApprove, Gate: "0123"}, audit.Refused,
			"stale approval: party bob is waiting now", serving.StageCommit},
		"approve too early": {"no party waits yet", prepared(approved), serving.Command{Verb: serving.VerbApprove},
			audit.Refused, "no party is waiting for an approval", serving.StageCommit},
		"approve without a policy": {"no party ever waits", prepared(unchanged),
			serving.Command{Verb: serving.VerbApprove, Gate: "0123"}, audit.Refused,
			"no party waits for it any more", serving.StageCommit},
		"stop": {"an update is all or nothing", halfApplied(),
			serving.Command{Verb: serving.VerbStop, Actor: "ann", Reason: "bad numbers"}, audit.Accepted,
			"every party goes back", serving.StageRollback},
		"stop of all": {"also of an update without order", prepared(unchanged), serving.Command{Verb: serving.VerbStop},
			audit.Accepted, "every party goes back", serving.StageRollback},
		"stop before the commit": {"nothing was changed yet",
			serving.NewMachine(inputOf(serving.KindUpdate, "alice"), noon), serving.Command{Verb: serving.VerbStop},
			audit.Accepted,
			"nothing was changed in any party", serving.StageDone},
		"stop of a creation": {"there is no previous version", begun(serving.KindCreate),
			serving.Command{Verb: serving.VerbStop}, audit.Refused, "delete the serving", serving.StageCommit},
		"stop of a recreation": {"there is no previous version", begun(serving.KindRecreate),
			serving.Command{Verb: serving.VerbStop}, audit.Refused, "delete the serving",
			serving.StageCommit},
		"stop of a deletion": {"deleted objects cannot be restored", begun(serving.KindDelete),
			serving.Command{Verb: serving.VerbStop}, audit.Refused, "cannot be undone", serving.StageRemove},
		"pause": {"bob does not start", halfApplied(), serving.Command{Verb: serving.VerbPause},
			audit.Accepted, "no party starts until it is resumed", serving.StageCommit},
		"pause of all": {"every party has started", prepared(unchanged), serving.Command{Verb: serving.VerbPause},
			audit.Refused,
			"there is nothing left to pause; `stop` rolls every party back", serving.StageCommit},
		"pause of a deletion": {"it must not stop halfway", begun(serving.KindDelete),
			serving.Command{Verb: serving.VerbPause}, audit.Refused, "a deletion cannot be paused",
			serving.StageRemove},
		"pause of a recreation": {"it must not stop halfway", begun(serving.KindRecreate),
			serving.Command{Verb: serving.VerbPause}, audit.Refused, "a recreation cannot be paused",
			serving.StageCommit},
		"resume": {"it was not paused", halfApplied(), serving.Command{Verb: serving.VerbResume},
			audit.Refused, "it is not paused: party bob has been waiting", serving.StageCommit},
		"unknown": {"the refusal of an unknown verb lists the known ones", halfApplied(),
			serving.Command{Verb: "promote"}, audit.Refused, "approve pause resume stop", serving.StageCommit},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome, text := send(tc.machine, tc.send)
			require.Equal(t, tc.outcome, outcome, tc.reason)
			require.Contains(t, text, tc.says, tc.reason)
			require.Equal(t, tc.stage, tc.machine.Stage(), tc.reason)
			history := tc.machine.History()
			require.Len(t, history, 1, "refusals are recorded, too")
			require.Equal(t, []string{string(tc.send.Verb), string(outcome), text},
				[]string{history[0].Verb, history[0].Outcome, history[0].Message})
			require.Equal(t, noon.Add(2*time.Minute), history[0].At.Time)
		})
	}
}

func TestStop_ReportsActor(t *testing.T) {
	t.Parallel()
	m := halfApplied()
	send(m, serving.Command{Verb: serving.VerbStop, Actor: "ann", Via: "http", Reason: "bad numbers"})
	require.Equal(t, serving.ReasonUpdateRolledBack, m.Outcome().Reason, "queries return the version that serves")
	require.Equal(t, "stopped by ann: bad numbers; every party goes back to the previous version", m.Outcome().Message)
	require.Equal(t, serving.StepRollback, m.NextStep(0))
	require.Equal(t, serving.StepNone, m.NextStep(1), "bob still runs the previous version")
	outcome, text := send(m, serving.Command{Verb: serving.VerbStop})
	require.Equal(t, audit.Refused, outcome)
	require.Equal(t, "every party is being rolled back already: wait until that ends", text)
	m.Done(0, serving.StepRollback, noon)
	require.True(t, m.Finished())
	require.Equal(t, "stopped by ann: bad numbers; every party runs the previous version", m.Outcome().Message)
	require.Equal(t, "old", m.Outcome().Version)
	outcome, text = send(m, serving.Command{Verb: serving.VerbApprove})
	require.Equal(t, audit.Refused, outcome)
	require.Contains(t, text, "the operation has ended: stopped by ann")
}

func TestStop_RollsBackAllParties_WhenPreviousOperationGaveWay(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindUpdate, "alice", "bob"), noon)
	m.Inherit()
	send(m, serving.Command{Verb: serving.VerbStop})
	require.Equal(t, []serving.Step{serving.StepRollback, serving.StepRollback},
		[]serving.Step{m.NextStep(0), m.NextStep(1)},
		"changes of the unfinished previous operation are rolled back, too")
}

func TestPause_StopsPartiesThatHaveNotStarted(t *testing.T) {
	t.Parallel()
	m := prepared(func(in *serving.Input) { in.Policy.Order = serving.OrderSequential })
	send(m, serving.Command{Verb: serving.VerbPause, Actor: "ann", Reason: "lunch"})
	require.Equal(t, serving.StepApply, m.NextStep(0), "a party that has started continues")
	require.Contains(t, m.WaitingFor().Message, "paused since 2026-03-01T12:02:00Z by ann: lunch")
	require.Equal(t, serving.ReasonPaused, m.Outcome().Reason)
	_, text := send(m, serving.Command{Verb: serving.VerbPause})
	require.Equal(t, "already paused by ann: lunch: send resume to continue", text)
	m.Done(0, serving.StepApply, noon.Add(3*time.Minute))
	require.Equal(t, serving.StepNone, m.NextStep(1))
	absent(m, "q-bob", 0, 4*time.Minute)
	_, waits := m.Deadline()
	require.False(t, waits, "no deadline runs during a pause")
	m.Command(serving.Command{Verb: serving.VerbResume}, noon.Add(time.Hour))
	require.Equal(t, serving.StepApply, m.NextStep(1))
	until, _ := m.Deadline()
	require.Equal(t, noon.Add(time.Hour+10*time.Minute), until)
}

func TestPause_DelaysCommit(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindUpdate, "alice", "bob"), noon)
	send(m, serving.Command{Verb: serving.VerbPause})
	m.Done(0, serving.StepPrepare, noon)
	m.Done(1, serving.StepPrepare, noon)
	require.Equal(t, serving.StagePrepare, m.Stage(), "nothing is changed before it is resumed")
	send(m, serving.Command{Verb: serving.VerbResume})
	require.Equal(t, serving.StageCommit, m.Stage())
}

func TestApproval_IsRefused_WhenPaused(t *testing.T) {
	t.Parallel()
	m := halfApplied()
	send(m, serving.Command{Verb: serving.VerbPause})
	require.Equal(t, serving.WaitResume, m.WaitingFor().Kind)
	_, text := send(m, serving.Command{Verb: serving.VerbApprove})
	require.Equal(t, "the operation is paused: resume it, then approve", text)
	send(m, serving.Command{Verb: serving.VerbResume})
	require.Equal(t, serving.WaitApproval, m.WaitingFor().Kind)
	require.Equal(t, noon.Add(time.Minute), m.WaitingFor().Since.Time, "the wait counts from its first start")
}

func TestCommand_IsExecutedOnce_WhenKeyIsRepeated(t *testing.T) {
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
	require.Equal(t, first, again, "the reply is the same")
	require.Equal(t, "carol", m.WaitingFor().Party, "the command is not executed twice")
	require.Len(t, m.History(), 1)
	outcome, text := send(m, serving.Command{Verb: serving.VerbStop, Key: "k1"})
	require.Equal(t, audit.Refused, outcome)
	require.Equal(t, `the key "k1" was used for approve: nothing was done; take a new key`, text)
}

func TestOutcome_KeepsNewestHistory(t *testing.T) {
	t.Parallel()
	m := halfApplied()
	for i := range 150 {
		send(m, serving.Command{Verb: serving.VerbResume, Reason: fmt.Sprint(i)})
	}
	require.Len(t, m.History(), 30)
	now := m.Outcome()
	require.Len(t, now.History, 10)
	require.Equal(t, "149", now.History[9].Reason)
	require.Equal(t, int64(140), now.RefusalsDropped)
}

func TestOutcome_KeepsAcceptedCommands_WhenFlooded(t *testing.T) {
	t.Parallel()
	m := halfApplied()
	send(m, serving.Command{Verb: serving.VerbPause, Actor: "ann"})
	for range 150 {
		send(m, serving.Command{Verb: serving.VerbPause, Actor: "mallory"})
	}
	require.Equal(t, "ann", m.Outcome().History[0].Actor)
	end := m.Ending(noon)
	require.Equal(t, "ann", end.History[0].Actor)
	require.Equal(t, int64(120), end.RefusalsDropped)
}

func TestWaitingFor_IsNil_WhenSuperseded(t *testing.T) {
	t.Parallel()
	m := halfApplied()
	send(m, serving.Command{Verb: serving.VerbPause})
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	require.Nil(t, m.WaitingFor())
}
