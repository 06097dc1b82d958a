package operation_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

func TestBudgetWarning_DependsOnOperationMethodAndAllowance(t *testing.T) {
	t.Parallel()
	const evicts, waits, ignored = "doesn't remove all of them at once", "waits until it does", "doesn't prevent that"
	for name, c := range map[string]struct {
		reason    string
		kind      string
		operation plan.Operation
		method    plan.Method
		allowed   int32
		says      string
	}{
		"set": {"Slipway deletes a StatefulSet's pods itself", operation.KindStatefulSet, plan.Restart,
			plan.Parallel, 1, evicts},
		"set wide": {"a budget that allows all evictions has no effect", operation.KindStatefulSet, plan.Restart,
			plan.Parallel, 3, ""},
		"set none": {"a budget that allows no eviction blocks it", operation.KindStatefulSet, plan.Restart,
			plan.Parallel, 0, waits},
		"set by one": {"its own controller replaces one after the other and ignores budgets",
			operation.KindStatefulSet, plan.Restart, plan.Sequential, 0, ""},
		"deployment": {"a Deployment's controller ignores budgets", operation.KindDeployment, plan.Restart,
			plan.Parallel, 1, ignored},
		"by one": {"one at a time needs no warning", operation.KindDeployment, plan.Restart, plan.Sequential, 1,
			""},
		"stop":  {"a STOP removes all pods", operation.KindDeployment, plan.Stop, plan.Parallel, 1, ignored},
		"start": {"a START removes none", operation.KindDeployment, plan.Start, plan.Parallel, 0, ""},
	} {
		seen := operation.Observed{Snapshot: workload.Snapshot{Replicas: 3, Total: 3, Ready: 3, Available: 3,
			Updated: 3}, UpdateType: workload.UpdateRolling}
		req := operation.Request{Operation: c.operation, Method: c.method, DeadlineSeconds: 60,
			Workload: catalog.Workload{Namespace: "shop",
				WorkloadRef: catalog.WorkloadRef{APIVersion: operation.APIVersion, Kind: c.kind, Name: "db"}}}
		warning := operation.BudgetWarning(req, seen, workload.Budget{Name: "db-budget", Allowed: c.allowed})
		require.Equal(t, c.says != "", warning != "", "%s: %s: %q", name, c.reason, warning)
		require.Contains(t, warning, c.says, "%s: %s", name, c.reason)
		require.True(t, warning == "" || strings.Contains(warning, "PodDisruptionBudget db-budget "), warning)
	}
}

// A restart waits for a budget that blocks its evictions, and names it: while it waits, and when the deadline passes.
func TestRestart_WaitsForBudgetUntilDeadline(t *testing.T) {
	t.Parallel()
	const budget = "PodDisruptionBudget db doesn't allow it now"
	req := operation.Request{Claim: "w@r", Marker: "t1/1", Operation: plan.Restart, Method: plan.Parallel,
		DeadlineSeconds: 60,
		Workload: catalog.Workload{Namespace: "shop",
			WorkloadRef: catalog.WorkloadRef{APIVersion: operation.APIVersion, Kind: operation.KindStatefulSet,
				Name: "db"}}}
	seen := operation.Observed{Marker: "t1/1", UpdateType: workload.UpdateOnDelete,
		Original: &operation.Original{Operation: plan.Restart, Begun: true, ByDeletion: true, Changed: true},
		Snapshot: workload.Snapshot{Claim: "w@r", Replicas: 2, Total: 2, Ready: 2, Available: 2, PodsSeen: true,
			Pods: []workload.Pod{{Name: "db-0", Ready: true, Available: true},
				{Name: "db-1", Ready: true, Available: true}}}}
	d := operation.Decide(req, seen)
	require.Equal(t, workload.ActDelete, d.Action)
	require.Len(t, d.Delete, 2)
	seen.BlockedByBudget = budget
	d = operation.Decide(req, seen)
	require.Equal(t, workload.ActWait, d.Action)
	require.Equal(t, "2 of 2 pods are ready, 2 pods still to go: "+budget, d.Reason)
	require.Equal(t, workload.BudgetRetryInterval, d.RecheckAfter, "the budget's status is not watched")
	seen.Elapsed = time.Minute
	d = operation.Decide(req, seen)
	require.Equal(t, failure.WorkloadFailed, d.Failure.Kind)
	require.Contains(t, d.Failure.Message, "after 60 s: "+budget)
	require.True(t, d.Write.Release, "what was borrowed is restored")
}
