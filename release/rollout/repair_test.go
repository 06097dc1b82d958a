package rollout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

func TestRepairMoves(t *testing.T) {
	t.Parallel()
	routed := []strategy.Routing{{Service: "web"}}
	cases := map[string]struct {
		reason string
		saved  rollout.Saved
		to     rollout.Side
		want   []rollout.FinalMove
	}{
		"WithoutTraffic": {"without traffic there is one move, for the pods",
			rollout.Saved{Style: strategy.StylePartition}, rollout.SideStable,
			[]rollout.FinalMove{"ResumeAndRelease"}},
		"Back": {"traffic leaves the new pods before they are deleted, and the stable Service stays pinned until then",
			rollout.Saved{Style: strategy.StyleBlueGreen, Routings: routed}, rollout.SideStable,
			[]rollout.FinalMove{"RouteTrafficToStable", "ResumeWorkload", "RestoreStableService", "RemoveCanaryService",
				"ReleaseWorkloadControl"}},
		"NewByPartition": {"the Service selects every pod before the stable ones are replaced",
			rollout.Saved{Style: strategy.StylePartition, Routings: routed}, rollout.SideNew,
			[]rollout.FinalMove{"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService", "ResumeWorkload",
				"ReleaseWorkloadControl"}},
		"NewCanary": {"the extra workload carries its share until the workload itself is new",
			rollout.Saved{Style: strategy.StyleCanary, Routings: routed}, rollout.SideNew,
			[]rollout.FinalMove{"RestoreStableService", "ResumeWorkload", "RouteTrafficToStable", "RemoveCanaryService",
				"ReleaseWorkloadControl"}},
		"NoServices": {"Services that the rollout did not change are not restored",
			rollout.Saved{Style: strategy.StylePartition, Routings: routed, DisableGenerateCanaryService: true,
				TrafficRouting: "shared"}, rollout.SideStable,
			[]rollout.FinalMove{"RouteTrafficToStable", "ResumeWorkload", "ReleaseWorkloadControl"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, rollout.RepairMoves(c.saved, c.to), c.reason)
			for _, move := range c.want {
				_, routes := move.Route()
				require.Equal(t, move != "ResumeWorkload" && move != "ReleaseWorkloadControl" &&
					move != "ResumeAndRelease", routes, "a move changes either the traffic or the pods")
			}
		})
	}
}
