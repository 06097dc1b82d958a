package operation

import (
	"fmt"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// BudgetWarning describes in advance how a PodDisruptionBudget affects an operation, "" if it does not. A budget only
// limits evictions: a workload's own controller ignores it, and Slipway uses evictions for the pods that it removes
// itself.
func BudgetWarning(req Request, seen Observed, b workload.Budget) string {
	switch {
	case seen.Replicas == 0 || !req.removesPods(seen):
		return ""
	case req.replaces() && byDeletion(req, seen) && b.Allowed == 0:
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets none of its pods go now: %s %s waits until it does, and "+
			"fails at its deadline (%d s)",
			req.Workload, b.Name, req.Operation, req.Method, req.DeadlineSeconds)
	case req.replaces() && byDeletion(req, seen):
		if req.Method == plan.Sequential || b.Allowed >= seen.Replicas {
			return ""
		}
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets %d of its %d pods go at a time: %s %s doesn't remove all "+
			"of them at once",
			req.Workload, b.Name, b.Allowed, seen.Replicas, req.Operation, req.Method)
	case req.Method == plan.Parallel && b.Allowed < seen.Replicas:
		return fmt.Sprintf("%s: %s %s removes all of its pods at once, and PodDisruptionBudget %s doesn't prevent "+
			"that, since its own controller "+
			"deletes them: use SEQUENTIAL to remove one at a time", req.Workload, req.Operation, req.Method, b.Name)
	}
	return ""
}

// removesPods reports whether the operation removes existing pods.
func (r Request) removesPods(seen Observed) bool {
	switch r.Operation {
	case plan.Start:
		return false
	case plan.Restore:
		return r.replaces() || restoredSize(r, seen) < seen.Replicas
	}
	return true
}
