package pods

import (
	"slipway.io/slipway/release/rollout"
)

// Technique is how the pods of one kind of workload are moved in one style. The framework (Begin, Move, Finish) sees to the claim, what is saved, drift,
// deadlines, trouble, messages and the rest; the technique says which fields it needs and what the next write is. Techniques hold no state.
type Technique interface {
	// Pointers are the JSON Pointers of the fields that it writes: they are saved at Begin and given back at the end.
	Pointers() []string
	// ByPods says that numbers are counted from the pods, since the revisions do not tell theirs: every look of Move and Finish then has PodsSeen.
	ByPods() bool
	// Refuses says why a rollout cannot begin on the workload as it is, "" when it can: a pause, an update type that it cannot use. What passes by
	// itself is not refused: the workload is then Unsettled.
	Refuses(seen Observed) string
	// Stable is the revision that serves, before the rollout; false while it is not known.
	Stable(seen Observed) (Revision, bool)
	// Next is the next step of a Move: Set, ActDelete or Wait, or Done when pods and settings are what the task asks while pods move. A write that
	// sets the template (Task.Placed is false) sets the borrowed fields with it.
	Next(t Task, seen Observed) Decision
	// Rest are the settings of a step that rests: nothing dangerous is parked on a workload.
	Rest(t Task, seen Observed) []Setting
	// Home are the settings with which the workload's own controller brings all pods to one version, and the last ones, given back after that.
	// Both are made of what was saved.
	Home(seen Observed) (first, last []Setting)
	// Unstick are pods that the controller waits for without end while it brings all pods home to a revision; they are deleted. Asked with PodsSeen only.
	Unstick(to Revision, seen Observed) Decision
	// untouched says that the workload's own template stays the stable one until the end, beside an extra workload.
	untouched() bool
}

// Task is a Move as a technique sees it.
type Task struct {
	Request rollout.MoveRequest
	// Size is the workload's size; Target how many pods are to be of the version aimed at: the new one, or the stable one when a rollback in
	// batches is under way (Request.Back).
	Size   int32
	Target int32
	// Aim is the revision aimed at; its Name is "" until the controller has made it. Placed says that the live template is that version's.
	Aim    Revision
	Placed bool
	// Template is where the template comes from when it has to be set.
	Template Template
	// Total and Ready are the pods of the version aimed at; Tolerated is how many of them may be unready (failureThreshold).
	Total     int32
	Ready     int32
	Tolerated int32
}

// Settled says that the pods of the version aimed at are ready, but for those that the failureThreshold tolerates. Of one or more pods at least one must be.
func (t Task) Settled() bool {
	return t.Ready+t.Tolerated >= t.Total && (t.Total == 0 || t.Ready > 0)
}
