package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

func TestPartyProgress(t *testing.T) {
	t.Parallel()
	const unreachable = "no route"
	cases := map[string]struct {
		reason string
		kind   string
		do     func(m *serving.Machine)
		want   serving.PartyProgress
		done   bool
	}{
		"asked": {"a reachable party is checked", serving.KindCreate, func(*serving.Machine) {},
			serving.PartyProgress{Activity: "is being checked"}, false},
		"can": {"it has passed the check, and another party has not", serving.KindUpdate, func(m *serving.Machine) {
			m.Done(1, serving.StepPrepare, noon)
		}, serving.PartyProgress{Activity: "can run the version"}, false},
		"cannot": {"the reason is shown", serving.KindCreate, func(m *serving.Machine) {
			m.Failed(1, serving.StepPrepare, "no such image", noon)
		}, serving.PartyProgress{Activity: "cannot run the version", Problem: "no such image"}, false},
		"runs": {"it has finished the step", serving.KindCreate, func(m *serving.Machine) {
			prepareBoth(m)
			m.Done(1, serving.StepApply, noon)
		}, serving.PartyProgress{Activity: "runs the version"}, true},
		"removed": {"it has deleted its objects", serving.KindDelete, func(m *serving.Machine) {
			m.Done(1, serving.StepRemove, noon)
		}, serving.PartyProgress{Activity: "has deleted its objects"}, true},
		"retried": {"a removal is retried, and its last failure is shown", serving.KindDelete,
			func(m *serving.Machine) {
				m.Failed(1, serving.StepRemove, "no permission", noon)
			}, serving.PartyProgress{Activity: "is deleting its objects", Problem: "no permission"}, false},
		"never": {"a worker that never reported is waited for since the operation began", serving.KindCreate,
			func(m *serving.Machine) {
				m.Presence(serving.PresenceSignal{Queue: "q-bob", Unreachable: "never seen"}, noon)
			}, serving.PartyProgress{Activity: "is being checked", WorkerUnreachable: true, Problem: "never seen",
				Since: noon}, false},
		"away": {"an update waits for an unreachable worker with a deadline", serving.KindUpdate,
			func(m *serving.Machine) {
				prepareBoth(m)
				absent(m, "q-bob", time.Minute, 80*time.Second)
			}, serving.PartyProgress{Activity: "is being updated", WorkerUnreachable: true, Problem: "silent",
				Since: noon.Add(time.Minute), Until: noon.Add(11 * time.Minute)}, false},
		"answered": {"an update also waits for a party that passed the check and became unreachable before the " +
			"others did", serving.KindUpdate, func(m *serving.Machine) {
			m.Done(1, serving.StepPrepare, noon)
			absent(m, "q-bob", time.Minute, 80*time.Second)
		}, serving.PartyProgress{Activity: "can run the version", WorkerUnreachable: true, Problem: "silent",
			Since: noon.Add(time.Minute), Until: noon.Add(11 * time.Minute)}, false},
		"lost": {"a cluster that its worker cannot reach is waited for since it became unreachable", serving.KindCreate,
			func(m *serving.Machine) {
				prepareBoth(m)
				m.Interrupted(1, serving.StepApply, failure.New(failure.Unreachable, unreachable),
					noon.Add(2*time.Minute))
			}, serving.PartyProgress{Activity: "is being updated", ClusterUnreachable: true, Problem: unreachable,
				Since: noon}, false},
		"back": {"a party that was rolled back need not be reachable", serving.KindUpdate, func(m *serving.Machine) {
			prepareBoth(m)
			m.Failed(0, serving.StepApply, "bad", noon)
			m.Done(1, serving.StepRollback, noon)
			absent(m, "q-bob", time.Minute, 80*time.Second)
		}, serving.PartyProgress{Activity: "runs the previous version again"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := inputOf(tc.kind, "alice", "bob")
			m := serving.NewMachine(in, noon)
			tc.do(m)
			s := m.PartyProgress(1)
			require.Equal(t, tc.want, s, tc.reason)
			require.Equal(t, tc.done, s.Done())
		})
	}
}

func prepareBoth(m *serving.Machine) {
	m.Done(0, serving.StepPrepare, noon)
	m.Done(1, serving.StepPrepare, noon)
}
