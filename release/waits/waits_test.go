package waits_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/waits"
)

func TestOf_ClassifiesEveryKindOfWait(t *testing.T) {
	t.Parallel()
	want := map[string]waits.Time{
		"":                           waits.Machine,
		string(rollout.WaitApproval): waits.Human,
		string(rollout.WaitResume):   waits.Human,
		string(rollout.WaitDrift):    waits.Human,
		string(rollout.WaitTimer):    waits.Planned,
		string(rollout.WaitWindow):   waits.Planned,
		string(rollout.WaitPods):     waits.Machine,
		string(rollout.WaitTraffic):  waits.Machine,
		string(rollout.WaitParty):    waits.Machine,
	}
	for _, kind := range rollout.WaitKinds {
		require.Contains(t, want, string(kind), "every kind of wait is classified")
	}
	for _, kind := range []string{plan.WaitWindow, serving.WaitApproval, serving.WaitResume} {
		require.Contains(t, want, kind, "tasks and servings have the same kinds of wait")
	}
	for kind, time := range want {
		require.Equal(t, time, waits.Of(kind), kind)
	}
}
