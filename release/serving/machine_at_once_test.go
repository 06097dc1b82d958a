package serving_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/serving"
)

func TestUseSingleStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		kind   string
		do     func(m *serving.Machine)
		want   serving.Step
	}{
		"Creation": {"nothing has to wait in between", serving.KindCreate, func(*serving.Machine) {},
			serving.StepCreate},
		"Update": {"all parties have to be reachable at the commit", serving.KindUpdate, func(*serving.Machine) {},
			serving.StepPrepare},
		"Recreation": {"some parties are complete already", serving.KindRecreate, func(*serving.Machine) {},
			serving.StepPrepare},
		"Deletion": {"a deletion has no check", serving.KindDelete, func(*serving.Machine) {}, serving.StepRemove},
		"Unreachable": {"an unreachable party is reported before anything is written elsewhere", serving.KindCreate,
			func(m *serving.Machine) { absent(m, "q-bob", 0, 0) }, serving.StepPrepare},
		"Checked": {"a party that was checked is not checked again", serving.KindCreate, func(m *serving.Machine) {
			m.Done(1, serving.StepPrepare, noon)
		}, serving.StepPrepare},
		"Paused": {"nothing is written before it is resumed", serving.KindCreate, func(m *serving.Machine) {
			m.Command(serving.Command{Verb: serving.VerbPause}, noon)
		}, serving.StepPrepare},
		"Inherited": {"what the previous operation has left is checked first", serving.KindCreate,
			(*serving.Machine).Inherit, serving.StepPrepare},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := serving.NewMachine(inputOf(c.kind, "alice", "bob"), noon)
			c.do(m)
			m.UseSingleStep(noon)
			require.Equal(t, c.want, m.NextStep(0), c.reason)
		})
	}
}

func TestEndSingleStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason  string
		through serving.Step
		ended   serving.Step
		stage   serving.Stage
		// refused is the message when bob fails the current step; "" if the operation continues.
		refused string
	}{
		"Checked": {"nothing was written: the outcomes are those of the check", serving.StepPrepare,
			serving.StepPrepare, serving.StagePrepare, "party bob: no; nothing was changed in any party"},
		"Applied": {"all passed the check, and the version was applied", serving.StepApply, serving.StepApply,
			serving.StageCommit, ""},
		"Unknown": {"they are checked again, and may have been changed", serving.StepNone, serving.StepPrepare,
			serving.StagePrepare,
			"party bob: no; the worker stopped while it was updating the parties: objects that it wrote in the " +
				"others stay until the serving is updated or deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
			m.UseSingleStep(noon)
			require.Equal(t, serving.StageCommit, m.Stage())
			_, refusal := m.Command(serving.Command{Verb: serving.VerbPause}, noon)
			require.Contains(t, refusal, "which cannot be paused")

			require.Equal(t, c.ended, m.EndSingleStep(c.through), c.reason)
			require.Equal(t, c.ended, m.EndSingleStep(c.through), "the same for each party")
			m.UseSingleStep(noon)
			require.NotEqual(t, serving.StepCreate, m.NextStep(1), "the single step is tried once")
			require.Equal(t, c.through == serving.StepPrepare,
				strings.Contains(m.Message(), "nothing is changed yet"), "the message claims no more than is known: %s",
				m.Message())
			require.Equal(t, c.stage, m.Stage(), c.reason)
			asked := m.NextStep(1)
			require.Equal(t, c.ended, asked, c.reason)

			m.Failed(1, c.ended, "no", noon)
			if c.refused != "" {
				require.Equal(t, c.refused, m.Outcome().Message, c.reason)
				return
			}
			require.Equal(t, serving.StepApply, m.NextStep(0), "the other party continues")
			m.Done(0, serving.StepApply, noon)
			require.Equal(t, "party bob: no", m.Outcome().Message)
		})
	}
}

// The newer operation continues from the state of the parties: how far the StepCreate got does not matter.
func TestEndSingleStep_IsIgnored_WhenSuperseded(t *testing.T) {
	t.Parallel()
	m := serving.NewMachine(inputOf(serving.KindCreate, "alice", "bob"), noon)
	m.UseSingleStep(noon)
	m.Supersede(serving.SupersedeSignal{By: "serving/s1/4", Generation: 4})
	m.EndSingleStep(serving.StepNone)
	require.True(t, m.Finished())
}
