package workloadops

import (
	"fmt"

	"slipway.io/slipway/release/plan"
)

// Budget is a PodDisruptionBudget that covers a workload's pods: its name, and how many of them it lets go now.
type Budget struct {
	Name    string
	Allowed int32
}

// BudgetWarning says beforehand what a PodDisruptionBudget does to an operation, "" when it does not matter. A budget guards against evictions
// alone: a workload's own controller does not ask it, and Slipway evicts the pods that it takes itself.
func BudgetWarning(req Request, seen Observed, b Budget) string {
	switch {
	case seen.Replicas == 0 || !req.takesPods(seen):
		return ""
	case req.replaces() && byDeletion(req, seen) && b.Allowed == 0:
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets none of its pods go now: %s %s waits until it does, and fails at its deadline (%d s)",
			req.Workload, b.Name, req.Operation, req.Method, req.DeadlineSeconds)
	case req.replaces() && byDeletion(req, seen):
		if req.Method == plan.Sequential || b.Allowed >= seen.Replicas {
			return ""
		}
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets %d of its %d pods go at a time: %s %s doesn't take all of them at once",
			req.Workload, b.Name, b.Allowed, seen.Replicas, req.Operation, req.Method)
	case req.Method == plan.Parallel && b.Allowed < seen.Replicas:
		return fmt.Sprintf("%s: %s %s takes all of its pods at once, and PodDisruptionBudget %s doesn't prevent that, since its own controller "+
			"deletes them: use SEQUENTIAL to take one at a time", req.Workload, req.Operation, req.Method, b.Name)
	}
	return ""
}

// takesPods says whether an operation takes pods away that are there now.
func (r Request) takesPods(seen Observed) bool {
	switch r.Operation {
	case plan.Start:
		return false
	case plan.Restore:
		return r.replaces() || restoredSize(r, seen) < seen.Replicas
	}
	return true
}
