package workload

import (
	"encoding/json"
	"fmt"
	"time"

	"slipway.io/slipway/release/phrase"
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
	// MinReadySeconds is how long a pod must be ready until it counts as available.
	MinReadySeconds int32
	// Settings are the current values of the fields that may be borrowed, by JSON Pointer; a field that is not set is
	// absent.
	Settings map[string]json.RawMessage
	// Creation is why pods are not created, as the cluster reports it.
	Creation CreationFailure
	// Pods are the workload's own pods; they are set only if PodsSeen.
	Pods     []Pod
	PodsSeen bool
	// BlockedByBudget is a sentence that names the PodDisruptionBudget that has just refused an eviction; "" if none
	// has.
	BlockedByBudget string
	// Elapsed is how much of the deadline is used.
	Elapsed time.Duration
	// StalledFor is how long the numbers of the new pods have not changed.
	StalledFor time.Duration
	Now        time.Time
}

// UnavailableNote says how many of the ready pods the workload's controller does not count as available, and why; "" if
// it counts all of them. It names what a job waits for whose pods are all ready.
func (s Snapshot) UnavailableNote() string {
	n := min(s.Ready, s.Replicas) - min(s.Available, s.Replicas)
	if n <= 0 {
		return ""
	}
	why := fmt.Sprintf("minReadySeconds is %d", s.MinReadySeconds)
	if s.MinReadySeconds == 0 {
		why = "its controller does not count them yet, for example during an in-place update"
	}
	return phrase.CountOf(int(n), "ready pod is", "ready pods are") + " not available yet: " + why
}

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

// Pod is the state of one pod that decisions depend on.
type Pod struct {
	Name string
	UID  string
	// Version is the pod's resourceVersion: a pod is deleted only at the version that was read, so that a late decision
	// of an abandoned attempt does no harm.
	Version string
	// Revision is the hash or name of the pod's revision. Marker is the marker of the template that it was created from
	// (Request.MarkerName).
	Revision string
	Marker   string
	// Ordinal is a StatefulSet pod's number, -1 for others.
	Ordinal int32
	// RolloutID and Batch are the labels with which a release marks the pods of its batches; "" without them.
	RolloutID, Batch string
	// Ready means that the pod is ready; Available, that it has been ready for the workload's minReadySeconds.
	Ready     bool
	Available bool
	// Deleting means that the pod is terminating; Finished, that it never runs again (phase Succeeded or Failed).
	Deleting bool
	Finished bool
	// Restarts is how often one of its containers was restarted: the most of them.
	Restarts int32
	// Since is when the pod stopped being ready, or was created.
	Since time.Time
	// Reason and Message explain why the pod is not ready, from its status: "ImagePullBackOff", `Back-off pulling image
	// "x:bad"`.
	Reason  string
	Message string
}

// Alive reports whether the pod is neither terminating nor finished.
func (p Pod) Alive() bool { return !p.Deleting && !p.Finished }
