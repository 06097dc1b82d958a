package serving_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
)

func TestWhoIsAskedAndBroughtAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		kind   string
		do     func(m *serving.Machine)
		want   serving.Step
	}{
		"Creation":   {"nobody waits for anything in between", serving.KindCreate, func(*serving.Machine) {}, serving.StepCreate},
		"Update":     {"everybody is to be there when it is committed", serving.KindUpdate, func(*serving.Machine) {}, serving.StepPrepare},
		"Recreation": {"of some parties all is there already", serving.KindRecreate, func(*serving.Machine) {}, serving.StepPrepare},
		"Deletion":   {"nobody is asked", serving.KindDelete, func(*serving.Machine) {}, serving.StepRemove},
		"Away":       {"who is away is told of before anything is written elsewhere", serving.KindCreate, func(m *serving.Machine) { absent(m, "q-bob", 0, 0) }, serving.StepPrepare},
		"Asked":      {"who has been asked is not asked again", serving.KindCreate, func(m *serving.Machine) { m.Done(1, serving.StepPrepare, noon) }, serving.StepPrepare},
		"Paused": {"nothing is written before somebody resumes", serving.KindCreate, func(m *serving.Machine) {
			m.Command(serving.Command{Verb: serving.VerbPause}, noon)
		}, serving.StepPrepare},
		"Inherited": {"what the operation before has left is looked at first", serving.KindCreate, (*serving.Machine).Inherit, serving.StepPrepare},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := serving.NewMachine(inputOf(c.kind, "alice", "bob"), noon)
			c.do(m)
			m.AtOnce(noon)
			require.Equal(t, c.want, m.Wanted(0), c.reason)
		})
	}
}

func TestHowFarAStepOfAllHasCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason  string
		through serving.Through
		ended   serving.Step
		stage   serving.Stage
		// refused is how it ends when bob refuses what is wanted then.
		refused string
	}{
		"Asked": {"nothing was written: the answers are those of who is asked", serving.ThroughAsked, serving.StepPrepare, serving.StagePrepare, "party bob: no; nothing was changed in any party"},
		"Begun": {"all can, and were begun with", serving.ThroughBegun, serving.StepApply, serving.StageCommit, ""},
		"Unknown": {"they are asked once more, and may have been changed", serving.ThroughUnknown, serving.StepPrepare, serving.StagePrepare,
			"party bob: no; the worker died when it brought the parties to it: what it has written in the others stays until the serving is updated or deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
			m.AtOnce(noon)
			require.Equal(t, serving.StageCommit, m.Stage())
			_, refusal := m.Command(serving.Command{Verb: serving.VerbPause}, noon)
			require.Contains(t, refusal, "there is nothing to hold in between")

			require.Equal(t, c.ended, m.Apart(c.through), c.reason)
			require.Equal(t, c.ended, m.Apart(c.through), "of each party the same")
			m.AtOnce(noon)
			require.NotEqual(t, serving.StepCreate, m.Wanted(1), "it is tried once")
			require.Equal(t, c.through == serving.ThroughAsked, strings.Contains(m.Message(), "nothing is changed yet"), "it says no more than is known: %s", m.Message())
			require.Equal(t, c.stage, m.Stage(), c.reason)
			asked := m.Wanted(1)
			require.Equal(t, c.ended, asked, c.reason)

			m.Failed(1, c.ended, "no", noon)
			if c.refused != "" {
				require.Equal(t, c.refused, m.Outcome().Message, c.reason)
				return
			}
			require.Equal(t, serving.StepApply, m.Wanted(0), "the other one goes on")
			m.Done(0, serving.StepApply, noon)
			require.Equal(t, "party bob: no", m.Outcome().Message)
		})
	}
}

// Whoever takes its place goes on from where the parties are: what a StepCreate has come to is of no more interest.
func TestAStepOfAllThatWasSuperseded(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
	m.AtOnce(noon)
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	m.Apart(serving.ThroughUnknown)
	require.True(t, m.Over())
}
