package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

func TestStanding(t *testing.T) {
	t.Parallel()
	const unreachable = "no route"
	cases := map[string]struct {
		reason string
		kind   string
		do     func(m *serving.Machine)
		want   serving.Standing
		done   bool
	}{
		"asked":   {"a party that is there is asked", serving.KindCreate, func(*serving.Machine) {}, serving.Standing{Does: "is asked"}, false},
		"can":     {"it has answered, and another has not", serving.KindUpdate, func(m *serving.Machine) { m.Done(1, serving.StepPrepare, noon) }, serving.Standing{Does: "can run it"}, false},
		"cannot":  {"it says why", serving.KindCreate, func(m *serving.Machine) { m.Failed(1, serving.StepPrepare, "no such image", noon) }, serving.Standing{Does: "cannot run it", Problem: "no such image"}, false},
		"runs":    {"it has done its part", serving.KindCreate, func(m *serving.Machine) { prepareBoth(m); m.Done(1, serving.StepApply, noon) }, serving.Standing{Does: "runs it"}, true},
		"removed": {"so has one that has removed it", serving.KindDelete, func(m *serving.Machine) { m.Done(1, serving.StepRemove, noon) }, serving.Standing{Does: "has removed it"}, true},
		"owing":   {"what is owed is tried again, and why it came to nothing is said", serving.KindDelete, func(m *serving.Machine) { m.Failed(1, serving.StepRemove, "no permission", noon) }, serving.Standing{Does: "removes it", Problem: "no permission"}, false},
		"never": {"who was never seen is waited for since the operation began", serving.KindCreate, func(m *serving.Machine) {
			m.Presence(serving.PresenceSignal{Queue: "q-bob", Unreachable: "never seen"}, noon)
		}, serving.Standing{Does: "is asked", WorkerUnreachable: true, Problem: "never seen", Since: noon}, false},
		"away": {"an update waits for who fell silent, with an end", serving.KindUpdate, func(m *serving.Machine) { prepareBoth(m); absent(m, "q-bob", time.Minute, 80*time.Second) }, serving.Standing{Does: "is brought to it", WorkerUnreachable: true, Problem: "silent", Since: noon.Add(time.Minute), Until: noon.Add(11 * time.Minute)}, false},
		"answered": {"an update also waits for who has answered, and fell silent before the rest did", serving.KindUpdate, func(m *serving.Machine) {
			m.Done(1, serving.StepPrepare, noon)
			absent(m, "q-bob", time.Minute, 80*time.Second)
		}, serving.Standing{Does: "can run it", WorkerUnreachable: true, Problem: "silent", Since: noon.Add(time.Minute), Until: noon.Add(11 * time.Minute)}, false},
		"lost": {"a cluster that its worker cannot reach is waited for since it was lost", serving.KindCreate, func(m *serving.Machine) {
			prepareBoth(m)
			m.Interrupted(1, serving.StepApply, failure.New(failure.Unreachable, unreachable), noon.Add(2*time.Minute))
		}, serving.Standing{Does: "is brought to it", ClusterUnreachable: true, Problem: unreachable, Since: noon}, false},
		"back": {"who is back need not be there", serving.KindUpdate, func(m *serving.Machine) {
			prepareBoth(m)
			m.Failed(0, serving.StepApply, "bad", noon)
			m.Done(1, serving.StepBack, noon)
			absent(m, "q-bob", time.Minute, 80*time.Second)
		}, serving.Standing{Does: "is back on the version of before"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := inputOf(tc.kind, "alice", "bob")
			m := serving.NewMachine(in, noon)
			tc.do(m)
			s := m.Standing(1)
			require.Equal(t, tc.want, s, tc.reason)
			require.Equal(t, tc.done, s.Done())
		})
	}
}

func prepareBoth(m *serving.Machine) {
	m.Done(0, serving.StepPrepare, noon)
	m.Done(1, serving.StepPrepare, noon)
}
