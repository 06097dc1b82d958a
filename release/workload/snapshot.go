package workload

import (
	"encoding/json"
	"time"
)

// Budget is a PodDisruptionBudget that covers a workload's pods: its name, and how many of them it currently allows to
// be evicted.
type Budget struct {
	Name    string
	Allowed int32
}

// Snapshot is the observed state of a workload: the input of decisions of both operations and rollouts.
type Snapshot struct {
	// Claim is the value of AnnotationClaimedBy, "" if no release holds the workload.
	Claim              string
	Generation         int64
	ObservedGeneration int64
	Deleting           bool
	// Replicas is the requested size; of a DaemonSet the number of nodes that should run it.
	Replicas int32
	// Total, Ready, Available and Updated are the numbers of pods in the status; Updated counts those of the newest
	// template.
	Total     int32
	Ready     int32
	Available int32
	Updated   int32
	// Settings are the current values of the fields that may be borrowed, by JSON Pointer; a field that is not set is
	// absent.
	Settings map[string]json.RawMessage
	// CreationProblem is the reason in the workload's status why pods cannot be created, "" if there is none.
	CreationProblem string
	// Pods are the workload's own pods; they are set only if PodsSeen.
	Pods     []Pod
	PodsSeen bool
	// BlockedByBudget is a sentence that names the PodDisruptionBudget that has just refused an eviction; "" if none
	// has.
	BlockedByBudget string
	// Elapsed is how much of the deadline is used.
	Elapsed time.Duration
	// StalledFor is how long the numbers of a rollout's pods have not changed.
	StalledFor time.Duration
	Now        time.Time
}

// BudgetRetryInterval is the time between two attempts of an eviction that a PodDisruptionBudget refuses: budgets are
// not watched.
const BudgetRetryInterval = 2 * time.Second

// Lagging reports whether the workload's controller has not yet observed the newest spec, so that the status describes
// an older one.
func (s Snapshot) Lagging() bool { return s.ObservedGeneration < s.Generation }

// CountPods returns how many of the pods match.
func (s Snapshot) CountPods(matches func(Pod) bool) int32 {
	n := int32(0)
	for _, p := range s.Pods {
		if matches(p) {
			n++
		}
	}
	return n
}

// PatienceLeft returns how long a stuck pod may remain stuck; 0 if its problem cannot pass. A problem from before the
// job counts from the start of the job.
func (s Snapshot) PatienceLeft(p Pod, deadline time.Duration) time.Duration {
	if p.Severity() == fatal {
		return 0
	}
	patience := min(deadline/2, PatienceLimit)
	return min(patience, patience-min(s.Elapsed, s.Now.Sub(p.Since)))
}
