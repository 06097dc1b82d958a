// Package pods decides how a rollout moves the pods of one workload: from one look at the workload to the next write, with the reason. It is
// level-based: a process that was killed at any point is followed by another that goes on from what it sees.
package pods

import (
	"encoding/json"
	"time"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// Observed is one look at a workload: everything that a decision goes by.
type Observed struct {
	// Claim is the value of workloadops.AnnotationClaimedBy, "" when nobody holds the workload.
	Claim string
	// Saved is what a rollout saved (rollout.AnnotationSaved); nil when nothing is saved. SavedProblem says why it could not be read.
	Saved        *rollout.Saved
	SavedProblem string
	// Rest is rollout.AnnotationRest; nil when it is absent.
	Rest *rollout.Rest
	// Busy is workloadops.AnnotationOriginal: what an unfinished START, STOP or RESTART borrowed; "" when nothing.
	Busy string

	// UID is the workload's own: one that was deleted and made again has another.
	UID                string
	Generation         int64
	ObservedGeneration int64
	Deleting           bool

	// Replicas is the size that is asked for; of a DaemonSet the number of nodes that should run it.
	Replicas int32
	// Settings are the fields of Technique.Pointers as they stand, by JSON Pointer; a field that is absent is left out.
	Settings map[string]json.RawMessage

	// Template is the digest of the live pod template (SHA-256 of its canonical JSON).
	Template string
	// Expected is the digest that the API server would give the new template, found by a dry run. It is there only when the request does not
	// know the digest yet (Template is "") and the new version is asked for.
	Expected string

	// Total, Ready, Available and Updated are the status's numbers of pods; Updated counts those of the live template.
	Total     int32
	Ready     int32
	Available int32
	Updated   int32
	// Current and Update are status.currentRevision and status.updateRevision; "" for a kind without them.
	Current string
	Update  string
	// Revisions are the workload's ReplicaSets or ControllerRevisions, oldest first.
	Revisions []Revision
	// Trouble is what the workload itself says about pods that cannot be created, "" when it says nothing.
	Trouble string

	// Pods are the workload's own pods; they are there only when PodsSeen.
	Pods     []workloadops.Pod
	PodsSeen bool

	// Extra is the extra Deployment of StyleCanary, nil when it does not exist.
	Extra *Extra
	// Autoscalers are the HorizontalPodAutoscalers (autoscaling/v2) whose target is the workload; read for StyleBlueGreen only.
	Autoscalers []Autoscaler

	// Elapsed is how much of the deadline is used.
	Elapsed time.Duration
	Now     time.Time
}

// Revision is one revision of a workload: a ReplicaSet or a ControllerRevision.
type Revision struct {
	// Name is what Saved.Stable and Saved.Canary say: the pod-template-hash for a Deployment, the ControllerRevision's name otherwise.
	Name string
	// Hash is the value of the pods' revision label.
	Hash   string
	Number int64
	// Template is the digest of the revision's pod template, without the label that the controller adds.
	Template string
	// Counted says that the revision tells the numbers of its pods, as a ReplicaSet does: asked for, there, ready, and available.
	Counted   bool
	Asked     int32
	Total     int32
	Ready     int32
	Available int32
}

// Extra is the extra Deployment of StyleCanary.
type Extra struct {
	Name string
	UID  string
	// Claim is its claim; Of the workload it stands beside (rollout.LabelCanaryOf).
	Claim string
	Of    string
	// Template is the digest of its pod template without what was added to it (PodMetadata and label).
	Template           string
	Generation         int64
	ObservedGeneration int64
	Deleting           bool
	Replicas           int32
	Total              int32
	Ready              int32
	Updated            int32
	// Hash is the value of its pods' revision label, "" until there is a ReplicaSet.
	Hash    string
	Trouble string
	// Pods are its pods, read together with those of the workload.
	Pods []workloadops.Pod
}

// Autoscaler is a HorizontalPodAutoscaler that scales the workload.
type Autoscaler struct {
	Name string
	// Held is rollout.AnnotationHeldBy, "" when no release holds it; Pinned says that it carries rollout.AnnotationRestore.
	Held   string
	Pinned bool
	// Min and Max are its limits; Min is 1 when it does not say.
	Min int32
	Max int32
}

// Lagging says that the workload's controller has not yet looked at the newest spec: its status speaks of an older one.
func (o Observed) Lagging() bool { return o.ObservedGeneration < o.Generation }

// Find is the revision of a name; false when it is not there.
func (o Observed) Find(name string) (Revision, bool) {
	for _, r := range o.Revisions {
		if r.Name == name && name != "" {
			return r, true
		}
	}
	return Revision{}, false
}

// Made is the newest revision that was made of a template, by its digest; false when there is none (yet).
func (o Observed) Made(template string) (Revision, bool) {
	for i := len(o.Revisions) - 1; i >= 0; i-- {
		if r := o.Revisions[i]; r.Template == template && template != "" {
			return r, true
		}
	}
	return Revision{}, false
}

// Count is how many pods there are of a revision, and how many of them are ready; pods on their way out are left aside.
func (o Observed) Count(r Revision) (total, ready int32) {
	if r.Counted {
		return r.Total, r.Ready
	}
	for _, p := range o.Pods {
		if p.Revision != r.Hash || r.Hash == "" || p.Deleting || p.Finished {
			continue
		}
		total++
		if p.Ready {
			ready++
		}
	}
	return total, ready
}
