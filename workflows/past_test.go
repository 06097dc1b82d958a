package workflows

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// The revisions before and after reach the task, whether the operation succeeded or failed halfway: RESTORE reverts by
// them.
func TestRevisionsAreReportedToTheTask(t *testing.T) {
	before, after := &revision.Revision{Template: "a"}, &revision.Revision{Template: "b", Name: "db-1"}
	in, orders := releaseOf(plan.Parallel, 2)
	result, _ := through(t, in, func(s *stage) {
		s.orders = orders
		s.run = func(r operation.Request) (workload.Result, error) {
			if r.Workload.WorkloadRef.Name == "w0000" {
				return workload.Result{Changed: true, Change: revision.Change{Before: before, After: after}}, nil
			}
			return workload.Result{}, temporal.NewNonRetryableApplicationError("it crashes",
				string(failure.WorkloadFailed), nil,
				failure.Details{Effect: &failure.Effect{Changed: true, Change: revision.Change{Before: before, After: after}}})
		}
	})
	require.Equal(t, plan.ItemFailed, result.State)
	for _, w := range result.Workloads {
		require.Equal(t, before, w.Before, w.State)
		require.Equal(t, after, w.After, w.State)
		require.True(t, w.Changed)
	}
}

// Diffs are requested in batches and only on request; each party's answers are in the order of its requests.
func TestPreflightWithADiff(t *testing.T) {
	for _, diff := range []bool{false, true} {
		s := newStage(t)
		var asked atomic.Int32
		s.RegisterActivityWithOptions(func(in operation.PreflightRequest) (operation.PreflightResult, error) {
			return operation.PreflightResult{}, nil
		}, activity.RegisterOptions{Name: operation.ActivityPreflight})
		s.RegisterActivityWithOptions(func(in operation.PreflightRequest) (out operation.DiffResult, err error) {
			asked.Add(1)
			for _, r := range in.Requests {
				out.Workloads = append(out.Workloads, operation.Diff{Summary: r.Workload.WorkloadRef.Name})
			}
			return out, nil
		}, activity.RegisterOptions{Name: operation.ActivityDiff})
		_, orders := releaseOf(plan.Parallel, 2*diffBatch+1)
		party := PreflightParty{Party: "default", Queue: "slipway.party.default"}
		for _, o := range orders {
			party.Requests = append(party.Requests, o.Request)
		}
		s.ExecuteWorkflow(TypePreflight, PreflightInput{Parties: []PreflightParty{party}, Diff: diff})
		require.NoError(t, s.GetWorkflowError())
		var outcomes []PreflightOutcome
		require.NoError(t, s.GetWorkflowResult(&outcomes))
		require.Empty(t, outcomes[0].Unreachable)
		if !diff {
			require.Zero(t, asked.Load())
			require.Empty(t, outcomes[0].Diffs)
			continue
		}
		require.Equal(t, int32(3), asked.Load())
		for i, d := range outcomes[0].Diffs {
			require.Equal(t, party.Requests[i].Workload.WorkloadRef.Name, d.Summary)
		}
	}
}

// An unreachable party is reported, as in the preflight of an execution.
func TestPreflightDiff_NamesUnreachableParty(t *testing.T) {
	s := newStage(t)
	s.RegisterActivityWithOptions(func(operation.PreflightRequest) (operation.PreflightResult, error) {
		return operation.PreflightResult{}, nil
	},
		activity.RegisterOptions{Name: operation.ActivityPreflight})
	s.RegisterActivityWithOptions(func(operation.PreflightRequest) (operation.DiffResult, error) {
		return operation.DiffResult{}, temporal.NewNonRetryableApplicationError("connection refused",
			string(failure.Unreachable), nil)
	}, activity.RegisterOptions{Name: operation.ActivityDiff})
	party := PreflightParty{Party: "alice", Queue: "slipway.party.alice",
		Requests: []operation.Request{order("web").Request}}
	s.ExecuteWorkflow(TypePreflight, PreflightInput{Parties: []PreflightParty{party}, Diff: true})
	var outcomes []PreflightOutcome
	require.NoError(t, s.GetWorkflowResult(&outcomes))
	require.Contains(t, outcomes[0].Unreachable, "connection refused")
}
