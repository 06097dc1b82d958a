package workflows

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

func TestRolloutFailureWaitsForAVerbOrPolicy(t *testing.T) {
	t.Parallel()
	trouble := failed(failure.WorkloadFailed, "pod order-1: ImagePullBackOff: manifest unknown",
		failure.Details{Data: []byte(`{"replicas":10,"target":2,"updated":2,"updatedReady":0}`)})
	t.Run("retry", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["move 20%"] = []error{trouble}
		var s rollout.Status
		p.at(time.Hour, func() { s = p.status() })
		p.send(2*time.Hour, rollout.VerbRetry, RolloutVerbRequest{})
		end := p.run(rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, 0), stepOf("100%", -1, 0)))
		require.Equal(t, rollout.PhaseFailed, s.Phase)
		require.Contains(t, s.Reason, "ImagePullBackOff: manifest unknown", "the reason is the pod's own message")
		require.Equal(t, rollout.WaitResume, s.WaitingFor.Kind)
		require.Equal(t, int32(2), s.CanaryReplicas, "the failure contains the pod counts")
		require.Equal(t, rollout.PhaseHealthy, end.Phase)
	})
	t.Run("policy", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["move 20%"] = []error{trouble}
		in := rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, 0), stepOf("100%", -1, 0))
		in.Spec.Policy.OnFailure = strategy.OnFailureRollback
		end := p.run(in)
		require.Equal(t, []string{"begin", "move 20%", "ResumeAndRelease stable", "record"}, p.calls)
		require.Equal(t, rollout.PhaseRolledBack, end.Phase)
	})
	t.Run("a failed rollback is retried", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["ResumeAndRelease stable"] = []error{trouble}
		p.send(time.Hour, rollout.VerbRollback, RolloutVerbRequest{})
		again := p.ask(2*time.Hour, rollout.VerbRollback, RolloutVerbRequest{})
		p.send(3*time.Hour, rollout.VerbRetry, RolloutVerbRequest{})
		end := p.run(rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, -1)))
		require.Equal(t, audit.Refused, again.Outcome)
		require.Contains(t, again.Message, "retry")
		require.Equal(t, rollout.PhaseRolledBack, end.Phase)
	})
}

func TestRolloutDriftDeletedWorkloadAndLostClaim(t *testing.T) {
	t.Parallel()
	steps := []strategy.Step{stepOf("20%", 20, -1), stepOf("100%", 100, 0)}
	t.Run("retry overwrites a drift that the engine has confirmed", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["look"] = []error{failed(failure.Drift, "another client edited the template of order",
			failure.Details{})}
		p.at(time.Hour, func() {
			p.SignalWorkflow(rollout.SignalObserved, rollout.Observed{What: "edited"})
			p.SignalWorkflow(rollout.SignalObserved, rollout.Observed{What: "edited"})
		})
		var s rollout.Status
		p.at(2*time.Hour, func() { s = p.status() })
		p.send(3*time.Hour, rollout.VerbRetry, RolloutVerbRequest{})
		p.send(4*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
		end := p.run(rolloutOf(strategy.StylePartition, true, steps...))
		require.Equal(t, 1, p.count("look"), "several hints cause one read")
		require.Equal(t, rollout.PhaseProgressing, s.Phase)
		require.Equal(t, rollout.WaitDrift, s.WaitingFor.Kind)
		require.Equal(t, []string{"look", "RouteTrafficToStable", "move 20% put back", "move 20%",
			"route 20% overwrite"}, p.calls[4:9],
			"traffic goes to the stable pods until a user decides, and returns after the pods")
		require.Equal(t, rollout.PhaseHealthy, end.Phase)
	})
	t.Run("retry overwrites a drift of the routes", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["route 20%"] = []error{failed(failure.Drift, "another client edited HTTPRoute order", failure.Details{})}
		p.send(time.Hour, rollout.VerbRetry, RolloutVerbRequest{})
		p.send(2*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
		p.run(rolloutOf(strategy.StylePartition, true, steps...))
		require.Equal(t, 1, p.count("route 20% overwrite"))
		require.Equal(t, 1, p.count("route 100%"), "only the retried route is overwritten")
	})
	t.Run("workload deleted", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["look"] = []error{failed(failure.Gone, "Deployment order was deleted", failure.Details{})}
		p.at(time.Hour, func() { p.SignalWorkflow(rollout.SignalObserved, rollout.Observed{What: "deleted"}) })
		refused := p.ask(2*time.Hour, rollout.VerbRollback, RolloutVerbRequest{})
		p.send(3*time.Hour, rollout.VerbStop, RolloutVerbRequest{})
		end := p.run(rolloutOf(strategy.StylePartition, true, steps...))
		require.Equal(t, audit.Refused, refused.Outcome)
		require.Equal(t, string(rollout.PhaseFailed), refused.State)
		require.Equal(t, rollout.PhaseCancelled, end.Phase)
		require.Equal(t, []string{"RestoreStableService", "RouteTrafficToStable", "RemoveCanaryService", "record"},
			p.calls[len(p.calls)-4:])
	})
	t.Run("claim lost", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["move 100%"] = []error{failed(failure.ClaimLost, "another client took the claim on order",
			failure.Details{})}
		p.send(time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
		refused := p.ask(2*time.Hour, rollout.VerbStop, RolloutVerbRequest{To: rollout.StopToStable})
		p.send(3*time.Hour, rollout.VerbStop, RolloutVerbRequest{To: rollout.StopToFrozen})
		end := p.run(rolloutOf(strategy.StylePartition, true, steps...))
		require.Equal(t, audit.Refused, refused.Outcome)
		require.Equal(t, rollout.PhaseFailed, end.Phase)
		require.Contains(t, end.Reason, "another client took the claim")
		require.Error(t, p.GetWorkflowError())
	})
}

func TestRolloutClaims(t *testing.T) {
	t.Parallel()
	held := failed(failure.Claimed, "order is claimed by task/x", failure.Details{Holder: "task/x@r"})
	t.Run("of a live release", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.fail["begin"] = []error{held}
		end := p.run(rolloutOf(strategy.StylePartition, false, stepOf("100%", -1, 0)))
		require.Equal(t, []string{"begin", "askHolder", "record"}, p.calls)
		require.Equal(t, rollout.PhaseFailed, end.Phase)
		require.Contains(t, end.Reason, "nothing was changed")
	})
	t.Run("of a dead release", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.holderDead = true
		p.fail["begin"] = []error{held}
		p.adopted = &rollout.Adopted{Style: strategy.StyleCanary,
			Routings: []strategy.Routing{{Service: "order", HTTPRoute: "order"}}}
		end := p.run(rolloutOf(strategy.StylePartition, false, stepOf("100%", -1, 0)))
		require.Equal(t, []string{"begin", "askHolder", "begin over task/x@r", "RouteTrafficToStable",
			"ResumeWorkload stable", "RestoreStableService", "RemoveCanaryService",
			"ReleaseWorkloadControl", "begin", "move 100%", "ResumeAndRelease new", "record"}, p.calls,
			"what the dead release left is restored first, by its own style and routes")
		require.Equal(t, rollout.PhaseHealthy, end.Phase)
	})
	t.Run("on a route", func(t *testing.T) {
		t.Parallel()
		for _, dead := range []bool{true, false} {
			p := newParty(t, 10)
			p.holderDead = dead
			p.fail["route 20%"] = []error{failed(failure.Claimed, "HTTPRoute order is held by another release",
				failure.Details{Holder: "rollout/default/shop/other@r"})}
			p.at(time.Hour, func() {
				if s := p.status(); s.Phase == rollout.PhaseFailed {
					p.SignalWorkflow("rollback", nil)
				} else {
					p.SignalWorkflow("approve", nil)
				}
			})
			end := p.run(rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, -1), stepOf("100%", 100, 0)))
			require.Equal(t, 1, p.count("askHolder"))
			if dead {
				require.Equal(t, 2, p.count("route 20%"), "the claim of a dead release is taken over")
				require.Equal(t, rollout.PhaseHealthy, end.Phase)
			} else {
				require.Equal(t, 1, p.count("route 20%"), "the claim of a live release is respected")
				require.Equal(t, rollout.PhaseRolledBack, end.Phase)
			}
		}
	})
	t.Run("restore only", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		p.adopted = &rollout.Adopted{Style: strategy.StylePartition}
		in := rolloutOf(strategy.StylePartition, false, stepOf("100%", -1, 0))
		in.RollBackFrozen = true
		end := p.run(in)
		require.Equal(t, []string{"begin", "ResumeAndRelease stable", "record"}, p.calls)
		require.Equal(t, rollout.PhaseRolledBack, end.Phase)
	})
}

func TestRolloutContinues_WhenUnreachablePartyReturns(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	unreachable := failed(failure.Unreachable, "the API server does not answer", failure.Details{SpentSeconds: 40})
	p.fail["move 20%"] = []error{unreachable, unreachable}
	var during rollout.Status
	p.at(30*time.Second, func() { during = p.status() })
	s := p.run(rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, 0), stepOf("100%", -1, 0)))
	require.Equal(t, rollout.WaitParty, during.WaitingFor.Kind)
	require.Equal(t, rollout.PhaseProgressing, during.Phase)
	require.Contains(t, during.Reason, "the API server does not answer")
	require.Equal(t, 3, p.count("move 20%"), "it continues by itself")
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

func TestRolloutPauseStopsTheMove(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	in := rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, 60), stepOf("100%", -1, 0))
	in.Spec.Strategy.Paused = true
	var waits []rollout.WaitKind
	look := func() { waits = append(waits, p.status().WaitingFor.Kind) }
	p.at(time.Minute, look)
	p.send(2*time.Minute, rollout.VerbResume, RolloutVerbRequest{})
	p.send(2*time.Minute+10*time.Second, rollout.VerbPause, RolloutVerbRequest{})
	p.at(time.Hour, look)
	twice := p.ask(time.Hour, rollout.VerbPause, RolloutVerbRequest{})
	p.send(2*time.Hour, rollout.VerbResume, RolloutVerbRequest{})
	s := p.run(in)
	require.Equal(t, []rollout.WaitKind{rollout.WaitResume, rollout.WaitResume}, waits)
	require.Equal(t, audit.Refused, twice.Outcome)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

// A pause during a Move halts the pods by an activity of its own: the cancelled Move may not have done so.
func TestRolloutPauseHaltsThePods_WhenMoveWasRunning(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	unreachable := temporal.NewNonRetryableApplicationError("the API server does not answer",
		string(failure.Unreachable), nil)
	p.fail["move 20%"] = []error{unreachable, unreachable}
	p.send(30*time.Second, rollout.VerbPause, RolloutVerbRequest{})
	var during rollout.Status
	p.at(time.Hour, func() { during = p.status() })
	p.send(2*time.Hour, rollout.VerbResume, RolloutVerbRequest{})
	s := p.run(rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, 60), stepOf("100%", -1, 0)))
	require.Equal(t, rollout.WaitResume, during.WaitingFor.Kind)
	require.Equal(t, []string{"begin", "move 20%", "move 20%", "halt", "move 20%", "move 100%", "ResumeAndRelease new",
		"record"}, p.calls)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

func TestRolloutCancelMeansStop(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.at(time.Hour, p.CancelWorkflow)
	s := p.run(rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, -1)))
	require.Equal(t, rollout.PhaseRolledBack, s.Phase)
	require.Zero(t, p.share)
	require.Contains(t, p.calls, "ResumeWorkload stable")
}

func TestRolloutSharedTraffic(t *testing.T) {
	t.Parallel()
	p := newParty(t, 10)
	p.restore = true
	in := rolloutOf(strategy.StylePartition, false, stepOf("100%", -1, 0))
	in.Spec.Strategy.TrafficRoutingRef = "edge"
	s := p.run(in)
	require.Equal(t, []string{"begin", "hold edge", "shared route 10%", "move 100%", "ResumeWorkload new", "leave edge",
		"shared RouteTrafficToStable", "leave edge restored",
		"ReleaseWorkloadControl", "record"}, p.calls)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
}

// waitsToHold is a rollout whose TrafficRouting another release keeps restoring, until late.
func waitsToHold(p *fakeParty, late error) RolloutInput {
	busy := temporal.NewApplicationErrorWithOptions(
		"TrafficRouting shop/edge gives its routes back for rollout/default/shop/other", string(failure.NotReady),
		temporal.ApplicationErrorOptions{NextRetryDelay: 2 * time.Second})
	for range 50 {
		p.fail["hold edge"] = append(p.fail["hold edge"], busy)
	}
	p.fail["hold edge"] = append(p.fail["hold edge"], late)
	in := rolloutOf(strategy.StylePartition, false, stepOf("100%", -1, 0))
	in.Spec.Strategy.TrafficRoutingRef = "edge"
	return in
}

func TestRolloutWaitsForSharedTraffic(t *testing.T) {
	t.Parallel()
	t.Run("and is rolled back meanwhile", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		in := waitsToHold(p, nil)
		answer := p.ask(31*time.Second, rollout.VerbRollback, RolloutVerbRequest{})
		s := p.run(in)
		require.Equal(t, audit.Accepted, answer.Outcome)
		require.Less(t, p.count("hold edge"), 20, "the wait ends at once")
		require.Equal(t, []string{"leave edge", "ResumeAndRelease stable", "record"}, p.calls[len(p.calls)-3:])
		require.Equal(t, rollout.PhaseRolledBack, s.Phase)
		require.Zero(t, p.count("move 100%"))
	})
	t.Run("until its deadline", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		in := waitsToHold(p, failed(failure.WorkloadFailed,
			"gave up after 600 s: TrafficRouting shop/edge gives its routes back for rollout/default/shop/other",
			failure.Details{}))
		var during rollout.Status
		p.at(time.Hour, func() { during = p.status() })
		p.send(2*time.Hour, rollout.VerbRetry, RolloutVerbRequest{})
		s := p.run(in)
		require.Equal(t, rollout.PhaseFailed, during.Phase)
		require.Equal(t, rollout.WaitResume, during.WaitingFor.Kind)
		require.Contains(t, during.Reason, "for rollout/default/shop/other")
		require.Equal(t, rollout.PhaseHealthy, s.Phase)
	})
}

func TestRolloutSupersede(t *testing.T) {
	t.Parallel()
	newer := rolloutOf(strategy.StylePartition, true, stepOf("100%", 100, 0))
	newer.Record = "shop.order.2"
	t.Run("a canary is superseded", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		var answer VerbResponse
		p.at(time.Hour, func() {
			p.updateNow(string(rollout.VerbSupersede), "k", SupersedeRequest{Input: newer}, &answer)
		})
		s := p.run(rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, -1)))
		require.Equal(t, audit.Accepted, answer.Outcome, answer.Message)
		require.Equal(t, rollout.PhaseRolledBack, s.Phase)
		require.ErrorContains(t, p.GetWorkflowError(), "continue as new")
	})
	t.Run("a blue-green is not", func(t *testing.T) {
		t.Parallel()
		p := newParty(t, 10)
		var answer VerbResponse
		p.at(time.Hour, func() {
			p.updateNow(string(rollout.VerbSupersede), "k", SupersedeRequest{Input: newer}, &answer)
		})
		p.send(2*time.Hour, rollout.VerbRollback, RolloutVerbRequest{})
		p.run(rolloutOf(strategy.StyleBlueGreen, true, stepOf("100%", 20, -1)))
		require.Equal(t, audit.Refused, answer.Outcome)
		require.Contains(t, answer.Message, "roll it back first")
		require.NoError(t, p.GetWorkflowError())
	})
}
