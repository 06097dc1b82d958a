package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
)

// rollouts plays the party's worker, the centre and the rollouts of an item.
type rollouts struct {
	found rollout.PreflightResult
	// served is what the newest Healthy record shows, if the party must ask for it: stableUnknown.
	served        *strategy.Revision
	stableUnknown bool
	// unchecked is how often the party cannot check a workload, failing how often it cannot for now.
	unchecked, failing int
	// run plays a rollout; nil: it succeeds at once.
	run func(ctx workflow.Context, in RolloutInput) (RolloutResult, error)
	// away is how often the home cluster is unreachable.
	away                       int
	began, recorded, withdrawn []string
}

func (r *rollouts) serve(s *stage) {
	s.rollOut = &strategy.ServiceRollout{Strategy: strategy.Strategy{Style: strategy.StylePartition,
		Steps: []strategy.Step{{}}}}
	s.RegisterActivityWithOptions(func(_ context.Context, in rollout.PreflightRequests) ([]rollout.PreflightResult,
		error) {
		if r.failing > 0 && in.Retry {
			r.failing--
			return nil, temporal.NewApplicationError("this party's cluster is out of reach", string(failure.Unreachable))
		}
		if r.unchecked > 0 {
			r.unchecked--
			return []rollout.PreflightResult{{Unchecked: "this party's cluster is out of reach"}}, nil
		}
		if r.stableUnknown && in.Rollouts[0].Served == nil {
			return []rollout.PreflightResult{{StableUnknown: true,
				Refusals: []rollout.Refusal{{Reason: "no revision has a ready pod"}}}}, nil
		}
		return []rollout.PreflightResult{r.found}, nil
	}, activity.RegisterOptions{Name: rollout.ActivityPreflight})
	s.RegisterActivityWithOptions(func(context.Context, strategy.Spec) (*strategy.Revision, error) {
		return r.served, nil
	}, activity.RegisterOptions{Name: rollout.ActivityLastHealthy})
	s.RegisterActivityWithOptions(func(_ context.Context, in rollout.RecordRequest) (rollout.Recorded, error) {
		if r.away > 0 {
			r.away--
			return rollout.Recorded{}, temporal.NewNonRetryableApplicationError("the home cluster is unreachable",
				string(failure.Unreachable), nil)
		}
		r.recorded = append(r.recorded, in.Spec.Name)
		return rollout.Recorded{Record: "record of " + in.Spec.Name, Revision: 2, Actor: "ann"}, nil
	}, activity.RegisterOptions{Name: rollout.ActivityRecordRollout})
	s.RegisterActivityWithOptions(func(_ context.Context, in rollout.WithdrawRequest) error {
		r.withdrawn = append(r.withdrawn, in.Record)
		return nil
	}, activity.RegisterOptions{Name: rollout.ActivityWithdrawRollout})
	s.rollout = func(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
		r.began = append(r.began, workflow.GetInfo(ctx).WorkflowExecution.ID)
		if r.run != nil {
			return r.run(ctx, in)
		}
		return RolloutResult{Phase: rollout.PhaseHealthy, Reason: "finished", Record: in.Record,
			Change: revision.Change{FromRevision: "a", ToRevision: "b"}}, nil
	}
}

func TestServiceReleaseByRollouts(t *testing.T) {
	ends := func(phase rollout.Phase) func(workflow.Context, RolloutInput) (RolloutResult, error) {
		return func(_ workflow.Context, in RolloutInput) (RolloutResult, error) {
			return RolloutResult{Phase: phase, Reason: "as scripted", Record: in.Record}, nil
		}
	}
	for name, test := range map[string]struct {
		reason   string
		r        *rollouts
		method   plan.Method
		state    plan.ItemState
		contains string
		began    int
	}{
		"Healthy": {"each workload has its own rollout", &rollouts{}, plan.Parallel, plan.ItemSucceeded,
			"2 workloads are released", 2},
		"Same": {"nothing needs an approval",
			&rollouts{found: rollout.PreflightResult{AlreadyDeployed: true,
				Refusals: []rollout.Refusal{{Reason: "same"}}}}, plan.Parallel, plan.ItemSucceeded, "nothing to do", 0},
		"Refused": {"nothing was recorded",
			&rollouts{found: rollout.PreflightResult{Refusals: []rollout.Refusal{{Reason: "no such container"}}}},
			plan.Parallel, plan.ItemFailed, "no such container", 0},
		"RolledBack": {"the service does not have its version", &rollouts{run: ends(rollout.PhaseRolledBack)},
			plan.Parallel, plan.ItemFailed, "is RolledBack: as scripted", 2},
		"OneByOne": {"a failure ends the item", &rollouts{run: ends(rollout.PhaseRolledBack)}, plan.Sequential,
			plan.ItemFailed, "is RolledBack", 1},
		"Superseded": {"another release superseded it",
			&rollouts{run: func(workflow.Context, RolloutInput) (RolloutResult, error) {
				return RolloutResult{Phase: rollout.PhaseHealthy, Record: "another"}, nil
			}}, plan.Sequential, plan.ItemFailed, "was superseded", 1},
		"Lost": {"its workflow was terminated", &rollouts{run: func(workflow.Context, RolloutInput) (RolloutResult,
			error) {
			return RolloutResult{}, errors.New("missing")
		}}, plan.Sequential, plan.ItemFailed, "missing", 1},
	} {
		t.Run(name, func(t *testing.T) {
			in, orders := releaseOf(test.method, 2)
			in.Outline.RollOut = true
			result, _ := through(t, in, func(s *stage) {
				s.orders = orders
				test.r.serve(s)
			})
			require.Equal(t, test.state, result.State, "%s: %s", test.reason, result.Reason)
			require.Contains(t, result.Reason, test.contains, test.reason)
			require.Len(t, test.r.began, test.began)
			require.Empty(t, test.r.withdrawn)
			if test.began > 0 {
				require.Contains(t, test.r.began, "rollout/default/shop/w0000", "PARALLEL workloads begin in any order")
				require.Equal(t, "record of w0000", result.Workloads[0].Rollout.Record)
			}
		})
	}
}

// No pod shows which revision is the stable one: the newest Healthy record does, or the item fails before anything is
// recorded.
func TestServiceReleaseByRollouts_AsksRecords_WhenNoPodShowsStableRevision(t *testing.T) {
	for _, c := range []struct {
		served *strategy.Revision
		state  plan.ItemState
	}{{&strategy.Revision{Template: "t1", Name: "w-1"}, plan.ItemSucceeded}, {nil, plan.ItemFailed}} {
		in, orders := releaseOf(plan.Sequential, 1)
		in.Outline.RollOut = true
		var began []machine.Request
		r := &rollouts{stableUnknown: true, served: c.served,
			run: func(_ workflow.Context, in RolloutInput) (RolloutResult, error) {
				began = append(began, in.Request)
				return RolloutResult{Phase: rollout.PhaseHealthy, Record: in.Record}, nil
			}}
		result, _ := through(t, in, func(s *stage) {
			s.orders = orders
			r.serve(s)
		})
		require.Equal(t, c.state, result.State, result.Reason)
		if c.served == nil {
			require.Contains(t, result.Reason, "no revision has a ready pod")
			require.Empty(t, r.recorded)
			continue
		}
		require.Len(t, began, 1)
		require.Equal(t, c.served, began[0].Served, "the rollout begins from it")
	}
}

// The task's stop reaches a rollout that waits for days; no further workload begins, and the item's result is the
// stop's.
func TestTaskStopReachesRunningRollouts(t *testing.T) {
	in, orders := releaseOf(plan.Sequential, 2)
	in.Outline.RollOut = true
	r := &rollouts{run: func(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
		box := inboxOf(ctx)
		if err := workflow.Await(ctx, func() bool { return len(box.items) > 0 }); err != nil {
			return RolloutResult{}, err
		}
		sent := box.take().(*signal)
		var q RolloutVerbRequest
		require.NoError(t, decodePayload(sent.Arg, &q))
		require.Equal(t, "stop", sent.SignalName)
		require.Equal(t, RolloutVerbRequest{To: rollout.StopToStable,
			VerbRequest: VerbRequest{Actor: "ann", Via: "http"}}, q)
		return RolloutResult{Phase: rollout.PhaseRolledBack, Reason: "stopped", Record: in.Record}, nil
	}}
	result, counters := through(t, in, func(s *stage) {
		s.orders = orders
		r.serve(s)
		s.RegisterDelayedCallback(func() {
			s.SignalWorkflow(SignalItemStopRollouts,
				RolloutVerbRequest{To: rollout.StopToStable, VerbRequest: VerbRequest{Actor: "ann", Via: "http"}})
		}, 72*time.Hour)
	})
	require.Equal(t, plan.ItemFailed, result.State)
	require.True(t, result.Abandoned, "the task is stopped, not failed")
	require.Equal(t, plan.ItemSkipped, result.Workloads[1].State)
	require.Len(t, counters, 1)
}

// A short outage does not interrupt the item, and a longer one than its budget does.
func TestCheckBeforeARollout_IsRetriedWithinTheBudget(t *testing.T) {
	for name, failing := range map[string]int{"Short": 3, "Long": 1000} {
		t.Run(name, func(t *testing.T) {
			in, orders := releaseOf(plan.Parallel, 1)
			in.Outline.RollOut = true
			r := &rollouts{failing: failing}
			interrupted := false
			result, _ := through(t, in, func(s *stage) {
				s.orders = orders
				r.serve(s)
				s.RegisterDelayedCallback(func() {
					interrupted, r.failing = len(r.began) == 0, 0
					s.SignalWorkflow(SignalItemResume, VerbRequest{})
				}, time.Duration(in.UnreachableBudgetSeconds+60)*time.Second)
			})
			require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
			require.Equal(t, name == "Long", interrupted)
			require.Len(t, r.began, 1)
		})
	}
}

// An item that is interrupted before its rollout begins continues when a user resumes it.
func TestARolloutBeginsAfterAnInterruption(t *testing.T) {
	for name, r := range map[string]*rollouts{
		"WorkloadUnchecked":     {unchecked: 1}, // whether it already has the version is not known
		"HomeClusterOutOfReach": {away: 1},      // the record cannot be written
	} {
		t.Run(name, func(t *testing.T) {
			in, orders := releaseOf(plan.Parallel, 1)
			in.Outline.RollOut = true
			result, _ := through(t, in, func(s *stage) {
				s.orders = orders
				r.serve(s)
				s.RegisterDelayedCallback(func() {
					require.Empty(t, r.began, "the item waits")
					s.SignalWorkflow(SignalItemResume, VerbRequest{})
				}, time.Hour)
			})
			require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
			require.Equal(t, []string{"w0000"}, r.recorded)
			require.Len(t, r.began, 1)
		})
	}
}
