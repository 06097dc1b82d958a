// Package pods decides how a rollout moves the pods of one workload: from one snapshot of the workload to the next write, with the reason.
// It is level-based: a process that was killed at any point is followed by another that goes on from what it sees.
package pods

import (
	"encoding/json"
	"slices"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Observed is a snapshot of a workload with what only rollouts decide by.
type Observed struct {
	workloadops.Snapshot
	// Saved is what a rollout saved (rollout.AnnotationSaved); nil when nothing is saved. SavedProblem says why it could not be read.
	Saved        *rollout.Saved
	SavedProblem string
	// Rest is rollout.AnnotationRest; nil when it is absent.
	Rest *rollout.Rest
	// Held are the fields that hold a change of template, as they stood before; HeldProblem says why they could not be read.
	Held        gate.Held
	HeldProblem string
	// Declared is the digest of the pod template that the workload is to declare, "" when the rollout sets the new template itself; Next is
	// that of the template that is kept beside the live one (rollout.AnnotationNext), "" without one.
	Declared, Next string
	// Recalled is the earlier revision that the request goes back to; nil for any other change.
	Recalled *strategy.Revision
	// ExtraStatus is rollout.AnnotationExtraStatus, "" when it is absent.
	ExtraStatus string
	// Busy is workloadops.AnnotationOriginal: what an unfinished START, STOP or RESTART borrowed; "" when nothing.
	Busy string
	// Repairer is who has taken the workload into their own hands (rollout.AnnotationRepair); "" when nobody has, or when it is us.
	Repairer string
	// UID is the workload's own: one that was deleted and made again has another.
	UID string
	// Template is the digest of the live pod template (SHA-256 of its canonical JSON).
	Template string
	// Expected is the digest that the API server would give the new template, found by a dry run. It is there only when the request does not
	// know the digest yet (Template is "") and the new version is asked for.
	Expected string
	// Update is status.updateRevision; "" for a kind without it.
	Update string
	// Revisions are the workload's ReplicaSets or ControllerRevisions, oldest first.
	Revisions []Revision
	// Extra is the extra Deployment of StyleCanary, nil when it does not exist.
	Extra *Extra
	// Autoscalers are the HorizontalPodAutoscalers (autoscaling/v2) whose target is the workload; read for StyleBlueGreen only.
	Autoscalers []Autoscaler
	// Duel is what somebody else has changed, since this activity began to write, of the fields by which pods move.
	Duel Duel
}

// Duel is what somebody else changes again and again.
type Duel struct {
	// Times is how often it was changed; Fields and By are those of the last time: "spec.updateStrategy", "kubectl".
	Times      int
	Fields, By string
}

// Revision is one revision of a workload: a ReplicaSet or a ControllerRevision.
type Revision struct {
	// Name is what Saved.Stable and Saved.Canary say: the pod-template-hash for a Deployment, the ControllerRevision's name otherwise.
	Name string
	// Hash is the value of the pods' revision label.
	Hash   string
	Number int64
	// Template is the digest of the revision's pod template, without the label that the controller adds; Images are its images by container.
	// Package is the SHA-256 of the code package that it runs, "" when it runs none.
	Template string
	Images   map[string]string
	Package  string
	// Counted says that the revision tells the numbers of its pods, as a ReplicaSet does: asked for, there, ready, and available.
	Counted   bool
	Asked     int32
	Total     int32
	Ready     int32
	Available int32
	// Rest is the annotation rollout.AnnotationRest, which a Deployment's controller copies to its newest ReplicaSet; "" when it is absent.
	Rest string
}

// Extra is the extra Deployment of StyleCanary, with its own pods, which are read together with those of the workload.
type Extra struct {
	workloadops.Snapshot
	Name string
	UID  string
	// Of is the workload that it stands beside (rollout.LabelCanaryOf).
	Of string
	// Template is the digest of its pod template without what was added to it (PodMetadata and label).
	Template string
	// Hash is the value of its pods' revision label, "" until there is a ReplicaSet. Images are those of its pod template by container.
	Hash   string
	Images map[string]string
	// Left is the size that a rollout gave it last, 0 where that cannot be read.
	Left int32
}

// Autoscaler is a HorizontalPodAutoscaler that scales the workload.
type Autoscaler struct {
	Name string
	// Pinned says that it carries rollout.AnnotationRestore, Edited that somebody else has changed its limits since it was pinned.
	Pinned, Edited bool
}

// newest is the newest revision that is so; false when none is.
func (o Observed) newest(is func(Revision) bool) (Revision, bool) {
	for _, r := range slices.Backward(o.Revisions) {
		if is(r) {
			return r, true
		}
	}
	return Revision{}, false
}

// Find is the revision of a name; false when it is not there.
func (o Observed) Find(name string) (Revision, bool) {
	return o.newest(func(r Revision) bool { return r.Name == name && name != "" })
}

// Made is the newest revision that was made of a template, by its digest; false when there is none (yet).
func (o Observed) Made(template string) (Revision, bool) {
	return o.newest(func(r Revision) bool { return r.Template == template && template != "" })
}

// Count is how many pods there are of a revision, and how many of them are ready; pods on their way out are left aside.
func (o Observed) Count(r Revision) (total, ready int32) {
	if r.Counted {
		return r.Total, r.Ready
	}
	are := func(p workloadops.Pod) bool { return p.Revision == r.Hash && r.Hash != "" && p.Alive() }
	return o.CountPods(are), o.CountPods(func(p workloadops.Pod) bool { return are(p) && p.Ready })
}

// changed keeps of the settings those that differ from what the workload has.
func (o Observed) changed(settings ...workloadops.Setting) []workloadops.Setting {
	return slices.DeleteFunc(settings, func(s workloadops.Setting) bool { return workloadops.SameJSON(s.Value, o.Settings[s.Path]) })
}

// has says whether a field is as the setting says.
func (o Observed) has(s workloadops.Setting) bool {
	return workloadops.SameJSON(s.Value, o.Settings[s.Path])
}

// restsStable says that it was left with the stable template, as a workload is that was scaled to nothing.
func (o Observed) restsStable() bool {
	return o.Rest != nil && o.Rest.Template == o.Saved.StableTemplate
}

// own is a field as it was before the rollout.
func (o Observed) own(path string) json.RawMessage { return o.Saved.Settings[path] }

// oneVersion is the revision of which all pods are; false when they are of several, or there are none.
func (o Observed) oneVersion() (Revision, bool) {
	all, counted := int32(0), false
	for _, r := range o.Revisions {
		all, counted = all+r.Total, counted || r.Counted
	}
	if !counted {
		all = o.CountPods(workloadops.Pod.Alive)
	}
	return o.newest(func(r Revision) bool {
		total, _ := o.Count(r)
		return total > 0 && total == all
	})
}

// allPods are the workload's pods and those of the extra workload.
func (o Observed) allPods() []workloadops.Pod {
	if o.Extra == nil {
		return o.Pods
	}
	return slices.Concat(o.Pods, o.Extra.Pods)
}
