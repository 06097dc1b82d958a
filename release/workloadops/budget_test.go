package workloadops_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
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
		"set": {"Slipway deletes a StatefulSet's pods itself", workloadops.KindStatefulSet, plan.Restart,
			plan.Parallel, 1, evicts},
		"set wide": {"a budget that allows all evictions has no effect", workloadops.KindStatefulSet, plan.Restart,
			plan.Parallel, 3, ""},
		"set none": {"a budget that allows no eviction blocks it", workloadops.KindStatefulSet, plan.Restart,
			plan.Parallel, 0, waits},
		"set by one": {"its own controller replaces one after the other and ignores budgets",
			workloadops.KindStatefulSet, plan.Restart, plan.Sequential, 0, ""},
		"deployment": {"a Deployment's controller ignores budgets", workloadops.KindDeployment, plan.Restart,
			plan.Parallel, 1, ignored},
		"by one": {"one at a time needs no warning", workloadops.KindDeployment, plan.Restart, plan.Sequential, 1,
			""},
		"stop":  {"a STOP removes all pods", workloadops.KindDeployment, plan.Stop, plan.Parallel, 1, ignored},
		"start": {"a START removes none", workloadops.KindDeployment, plan.Start, plan.Parallel, 0, ""},
	} {
		seen := workloadops.Observed{Snapshot: workloadops.Snapshot{Replicas: 3, Total: 3, Ready: 3, Available: 3,
			Updated: 3}, UpdateType: workloadops.UpdateRolling}
		req := workloadops.Request{Operation: c.operation, Method: c.method, DeadlineSeconds: 60,
			Workload: catalog.Workload{Namespace: "shop",
				WorkloadRef: catalog.WorkloadRef{APIVersion: workloadops.APIVersion, Kind: c.kind, Name: "db"}}}
		warning := workloadops.BudgetWarning(req, seen, workloadops.Budget{Name: "db-budget", Allowed: c.allowed})
		require.Equal(t, c.says != "", warning != "", "%s: %s: %q", name, c.reason, warning)
		require.Contains(t, warning, c.says, "%s: %s", name, c.reason)
		require.True(t, warning == "" || strings.Contains(warning, "PodDisruptionBudget db-budget "), warning)
	}
}

// A restart waits for a budget that blocks its evictions, and names it: while it waits, and when the deadline passes.
func TestRestart_WaitsForBudgetUntilDeadline(t *testing.T) {
	t.Parallel()
	const budget = "PodDisruptionBudget db doesn't allow it now"
	req := workloadops.Request{Claim: "w@r", Marker: "t1/1", Operation: plan.Restart, Method: plan.Parallel,
		DeadlineSeconds: 60,
		Workload: catalog.Workload{Namespace: "shop",
			WorkloadRef: catalog.WorkloadRef{APIVersion: workloadops.APIVersion, Kind: workloadops.KindStatefulSet,
				Name: "db"}}}
	seen := workloadops.Observed{Marker: "t1/1", UpdateType: workloadops.UpdateOnDelete,
		Original: &workloadops.Original{Operation: plan.Restart, Begun: true, ByDeletion: true, Changed: true},
		Snapshot: workloadops.Snapshot{Claim: "w@r", Replicas: 2, Total: 2, Ready: 2, Available: 2, PodsSeen: true,
			Pods: []workloadops.Pod{{Name: "db-0", Ready: true, Available: true},
				{Name: "db-1", Ready: true, Available: true}}}}
	d := workloadops.Decide(req, seen)
	require.Equal(t, workloadops.ActDelete, d.Action)
	require.Len(t, d.Delete, 2)
	seen.BlockedByBudget = budget
	d = workloadops.Decide(req, seen)
	require.Equal(t, workloadops.ActWait, d.Action)
	require.Equal(t, "2 of 2 pods are ready, 2 pods still to go: "+budget, d.Reason)
	require.Equal(t, workloadops.BudgetRetryInterval, d.RecheckAfter, "the budget's status is not watched")
	seen.Elapsed = time.Minute
	d = workloadops.Decide(req, seen)
	require.Equal(t, failure.WorkloadFailed, d.Failure.Kind)
	require.Contains(t, d.Failure.Message, "after 60 s: "+budget)
	require.True(t, d.Write.Release, "what was borrowed is restored")
}
