package workloadops

import (
	"fmt"

	"slipway.io/slipway/release/plan"
)

// ActivityDiff says, without a write, what each request of a batch would change. PreflightRequest → DiffResult.
const ActivityDiff = "workload.Diff"

// DiffResult has one entry for each request of the batch, in its order.
type DiffResult struct {
	Workloads []Diff `json:"workloads"`
}

// Diff is what an operation would change on a workload as it is now.
type Diff struct {
	// Changes says whether anything would change.
	Changes bool `json:"changes"`
	// Summary is what would be done first, in a sentence, or why nothing would be.
	Summary string `json:"summary"`
	// Unknown is what can't be known before the execution, "" when nothing is left open.
	Unknown string `json:"unknown,omitempty"`
	// FromReplicas and ToReplicas are the sizes now and in the end, absent for a kind without a size.
	FromReplicas *int32 `json:"fromReplicas,omitempty"`
	ToReplicas   *int32 `json:"toReplicas,omitempty"`
	// Pods is how many pods would be replaced.
	Pods int32 `json:"pods,omitempty"`
	// Template are the fields of the pod template that would change.
	Template []FieldChange `json:"template,omitempty"`
}

// FieldChange is a field of a pod template that an operation would change.
type FieldChange struct {
	// Field is its path: "spec.containers[app].image".
	Field string `json:"field"`
	// From and To are its values, "" where there is none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Hidden says that the values may be secret, and aren't told.
	Hidden bool `json:"hidden,omitempty"`
}

// NotFetched stands in a diff for what is known once a package was fetched.
const NotFetched = "(known once the package is fetched)"

// DiffOf says what an operation would change, from its first decision on a workload as it is. template are the fields that the decision's write
// would change, as the API server has it.
func DiffOf(req Request, seen Observed, d NextAction, template []FieldChange) Diff {
	out := Diff{Summary: d.Reason, FromReplicas: sizeOf(req, seen), ToReplicas: sizeOf(req, seen)}
	switch d.Action {
	case ActDone:
		out.Summary = d.Result.Message
		return out
	case ActFail:
		out.Unknown = "nothing would be done as it is now, so what an execution would change once that is over isn't known"
		return out
	case ActWait, ActLook, ActDelete:
		out.Unknown = "what comes after that"
		return out
	case ActWrite:
	}
	if d.Result != nil { // the first write is the last: nothing but a claim is given back
		return out
	}
	out.Changes = true
	if out.ToReplicas != nil {
		out.ToReplicas = new(comesTo(req, seen))
	}
	out.Template = template
	if req.replaces() && !req.stops() {
		out.Pods = replacedPods(req, seen)
	}
	if req.Package != nil && req.Package.SHA256 == "" {
		out.fetchedLater(seen)
	}
	return out
}

// comesTo is the size that the workload has in the end.
func comesTo(req Request, seen Observed) int32 {
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

// replacedPods is how many pods are not of the template that the operation sets: where it is there already, those that its controller has not replaced yet.
func replacedPods(req Request, seen Observed) int32 {
	if seen.Marker == req.Marker {
		return max(0, seen.Replicas-seen.Updated)
	}
	return seen.Replicas
}

// fetchedLater says what of a package is known only once it was fetched.
func (d *Diff) fetchedLater(seen Observed) {
	d.Unknown = "the package's digest is known once it is fetched"
	if seen.Package != "" {
		d.Unknown = fmt.Sprintf("%s: if it is sha256:%s, which runs now, no pod is replaced", d.Unknown, seen.Package)
	}
}

// DiffMarker stands for the marker of a task that isn't there.
const DiffMarker = "(the task)"
