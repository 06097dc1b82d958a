package operation

import (
	"fmt"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// ActivityDiff computes, without a write, what each request of a batch would change. PreflightRequest → DiffResult.
const ActivityDiff = "workload.Diff"

// DiffResult has one entry for each request of the batch, in its order.
type DiffResult struct {
	Workloads []Diff `json:"workloads"`
}

// Diff is what an operation would change on a workload in its current state.
type Diff struct {
	// Changes is true if the operation would change anything.
	Changes bool `json:"changes"`
	// Summary is a sentence: the first change, or why there is none.
	Summary string `json:"summary"`
	// Unknown is what cannot be known before the execution; "" if the diff is complete.
	Unknown string `json:"unknown,omitempty"`
	// FromReplicas and ToReplicas are the current and the final size, absent for a kind without a size.
	FromReplicas *int32 `json:"fromReplicas,omitempty"`
	ToReplicas   *int32 `json:"toReplicas,omitempty"`
	// Pods is how many pods would be replaced.
	Pods int32 `json:"pods,omitempty"`
	// Template are the fields of the pod template that would change.
	Template []workload.FieldChange `json:"template,omitempty"`
}

// NotFetched is the placeholder for a value that is known once the package is fetched.
const NotFetched = "(known once the package is fetched)"

// DiffOf returns what an operation would change, from its first decision on the workload's current state. template are
// the fields that the decision's write would change, according to the API server's dry run.
func DiffOf(req Request, seen Observed, d workload.NextAction, template []workload.FieldChange) Diff {
	out := Diff{Summary: d.Reason, FromReplicas: sizeOf(req, seen), ToReplicas: sizeOf(req, seen)}
	switch d.Action {
	case workload.ActDone:
		out.Summary = d.Result.Message
		return out
	case workload.ActFail:
		out.Unknown = "nothing would be done in its current state; what an execution would change later isn't known"
		return out
	case workload.ActWait, workload.ActReadPods, workload.ActDelete:
		out.Unknown = "what comes after that"
		return out
	case workload.ActWrite:
	}
	if d.Result != nil { // the first write is the last: it only releases the claim
		return out
	}
	out.Changes = true
	if out.ToReplicas != nil {
		out.ToReplicas = new(finalSize(req, seen))
	}
	out.Template = template
	if req.replaces() && !req.scalesToZero() {
		out.Pods = seen.Replicas
		if seen.Marker == req.Marker { // the controller has not replaced these yet
			out.Pods = max(0, seen.Replicas-seen.Updated)
		}
	}
	if req.Package != nil && req.Package.SHA256 == "" {
		out.Unknown = "the package's digest is known once it is fetched"
		if seen.Package != "" {
			out.Unknown = fmt.Sprintf("%s: if it is sha256:%s, which runs now, no pod is replaced", out.Unknown,
				seen.Package)
		}
	}
	return out
}

// finalSize returns the size that the workload has after the operation.
func finalSize(req Request, seen Observed) int32 {
	switch req.Operation {
	case plan.Stop:
		return 0
	case plan.Start:
		size, _ := startSize(req, seen)
		return size
	case plan.Restore:
		return restoredSize(req, seen)
	}
	return seen.Replicas
}

// DiffMarker is a placeholder for the marker of a task: a diff has no task.
const DiffMarker = "(the task)"

// BudgetWarning describes in advance how a PodDisruptionBudget affects an operation, "" if it does not. A budget only
// limits evictions: a workload's own controller ignores it, and Slipway uses evictions for the pods that it removes
// itself.
func BudgetWarning(req Request, seen Observed, b workload.Budget) string {
	switch {
	case seen.Replicas == 0 || !req.removesPods(seen):
		return ""
	case req.replaces() && byDeletion(req, seen) && b.Allowed == 0:
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets none of its pods go now: %s %s waits until it does, and "+
			"fails at its deadline (%d s)", req.Workload, b.Name, req.Operation, req.Method, req.DeadlineSeconds)
	case req.replaces() && byDeletion(req, seen):
		if req.Method == plan.Sequential || b.Allowed >= seen.Replicas {
			return ""
		}
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets %d of its %d pods go at a time: %s %s doesn't remove all "+
			"of them at once", req.Workload, b.Name, b.Allowed, seen.Replicas, req.Operation, req.Method)
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
