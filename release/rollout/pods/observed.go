// Package pods decides how a rollout moves the pods of one workload: from one snapshot of the workload to the next
// write, with the reason. It is level-based: if the process is killed at any point, the next one continues from the
// state that it observes.
package pods

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Observed is a snapshot of a workload with the additional state that rollouts need.
type Observed struct {
	workload.Snapshot
	// Saved is what a rollout saved (workload.AnnotationRollout), nil if nothing is saved. SavedProblem is why it could
	// not be read.
	Saved        *rollout.Saved
	SavedProblem string
	// Rest is the pause record (rollout.AnnotationSettled), nil if absent.
	Rest *rollout.SettledState
	// Held are the fields that hold a change of template, with their values from before; HeldProblem is why they could
	// not be read.
	Held        gate.Held
	HeldProblem string
	// Declared is the digest of the pod template that the workload is to declare, "" if the rollout sets the new
	// template itself; Next is that of the template kept in rollout.AnnotationNext, "" if there is none.
	Declared, Next string
	// Recalled is the earlier revision that the request returns to; nil for any other change.
	Recalled *strategy.Revision
	// Served is the revision that the newest Healthy record of the rollout names, nil if that was not needed so far.
	Served *strategy.Revision
	// ExtraStatus is rollout.AnnotationExtraStatus, "" when it is absent.
	ExtraStatus string
	// Busy is workload.AnnotationOriginal: what an unfinished START, STOP or RESTART borrowed; "" when nothing.
	Busy string
	// Repairer is the user who is repairing the workload (rollout.AnnotationRepair); "" if there is none, or if this
	// client does the repair.
	Repairer string
	// UID is the workload's UID: a workload that was deleted and recreated has another.
	UID string
	// Template is the digest of the live pod template (SHA-256 of its canonical JSON).
	Template string
	// Expected is the digest that the API server would give the new template, found by a dry run. It is set only if the
	// request has no digest yet (Template is "") and the new version is wanted.
	Expected string
	// Update is status.updateRevision, Current status.currentRevision: of which new pods are below the partition; ""
	// for a kind without them.
	Update, Current string
	// Progress is what a Deployment's condition Progressing says.
	Progress ProgressOf
	// Revisions are the workload's ReplicaSets or ControllerRevisions, oldest first.
	Revisions []Revision
	// Extra is the extra Deployment of StyleCanary, nil when it does not exist.
	Extra *Extra
	// Autoscalers are the HorizontalPodAutoscalers (autoscaling/v2) whose target is the workload; read for
	// StyleBlueGreen only.
	Autoscalers []Autoscaler
	// EditConflict counts another client's changes, since this activity began to write, to the fields that move pods.
	EditConflict EditConflict
}

// EditConflict counts changes that another client makes again and again.
type EditConflict struct {
	// Times is the number of changes; Fields and By describe the last one: "spec.updateStrategy", "kubectl".
	Times      int
	Fields, By string
}

// Revision is one revision of a workload: a ReplicaSet or a ControllerRevision.
type Revision struct {
	// Name is the value used in Saved.Stable and Saved.Canary: the pod-template-hash for a Deployment, the
	// ControllerRevision's name otherwise.
	Name string
	// Hash is the value of the pods' revision label.
	Hash   string
	Number int64
	// Template is the digest of the revision's pod template, without the label that the controller adds; Images are its
	// images by container. Package is the SHA-256 of the code package that it runs, "" when it runs none.
	Template string
	Images   map[string]string
	Package  string
	// HasCounts is true if the revision reports its own pod counts (desired, total, ready and available), as a
	// ReplicaSet does.
	HasCounts bool
	Desired   int32
	Total     int32
	Ready     int32
	Available int32
	// Creation is why the revision's pods are not created, if it reports that itself, as a ReplicaSet does.
	Creation workload.CreationFailure
	// Rest is the annotation rollout.AnnotationSettled, which a Deployment's controller copies to its newest
	// ReplicaSet; "" when it is absent.
	Rest string
}

// Extra is the extra Deployment of StyleCanary, with its own pods, which are read together with those of the workload.
type Extra struct {
	workload.Snapshot
	Name string
	UID  string
	// CanaryOf is the value of its label strategy.LabelCanaryOf, which identifies the workload.
	CanaryOf string
	// Template is the digest of its pod template without what was added to it (PodMetadata and label).
	Template string
	// Hash is the value of its pods' revision label, "" until there is a ReplicaSet. Images are those of its pod
	// template by container.
	Hash   string
	Images map[string]string
	// RecordedSize is the size that a rollout gave it last, 0 if that cannot be read.
	RecordedSize int32
}

// Autoscaler is a HorizontalPodAutoscaler that scales the workload.
type Autoscaler struct {
	Name string
	// Pinned is true if it carries rollout.AnnotationRestore, Edited if another client has changed its limits since it
	// was pinned.
	Pinned, Edited bool
}

// newest returns the newest revision for which is returns true; false if there is none.
func (o Observed) newest(is func(Revision) bool) (Revision, bool) {
	for _, r := range slices.Backward(o.Revisions) {
		if is(r) {
			return r, true
		}
	}
	return Revision{}, false
}

// RevisionByName returns the revision with this name; false if it does not exist.
func (o Observed) RevisionByName(name string) (Revision, bool) {
	return o.newest(func(r Revision) bool { return r.Name == name && name != "" })
}

// RevisionByTemplate returns the newest revision that was made of a template, by its digest; false if there is none
// (yet).
func (o Observed) RevisionByTemplate(template string) (Revision, bool) {
	return o.newest(func(r Revision) bool { return r.Template == template && template != "" })
}

// liveRevision returns the revision of the live template, which every pod is of before a rollout begins; false while it
// is not known: the one that the status names, else the newest that was made of the template.
func (o Observed) liveRevision() (Revision, bool) {
	if r, ok := o.RevisionByName(o.Update); ok {
		return r, true
	}
	if r, ok := o.RevisionByTemplate(o.Template); ok {
		return r, true
	}
	// The API server may have defaulted the template again since the ReplicaSet was made: then it is the newest one
	// that has all the pods.
	return o.newest(func(r Revision) bool { return r.Total == o.Total && r.Total > 0 })
}

// Count returns how many pods a revision has, and how many of them are ready. Pods that are being deleted do not count.
func (o Observed) Count(r Revision) (total, ready int32) {
	if r.HasCounts {
		return r.Total, r.Ready
	}
	are := func(p workload.Pod) bool { return p.Revision == r.Hash && r.Hash != "" && p.Alive() }
	return o.CountPods(are), o.CountPods(func(p workload.Pod) bool { return are(p) && p.Ready })
}

// LacksPods reports whether pods are missing that the workload's controller should have created by now: of the size, or
// of a move's target. A ReplicaSet reports itself why its pods are missing; then only the ReplicaSet may be missing.
// The Deployment controller doesn't report a change as observed until it has created the change's ReplicaSet.
func (o Observed) LacksPods(numbers rollout.MoveResult) bool {
	switch {
	case !o.PodsSeen:
		return false
	case slices.ContainsFunc(o.Revisions, func(r Revision) bool { return r.HasCounts }):
		return numbers.CanaryHash == "" && numbers.Target > 0 && o.Extra == nil
	case o.Lagging():
		return false
	}
	ordered := string(o.Settings[workload.PathPodManagement]) == `"`+string(appsv1.OrderedReadyPodManagement)+`"`
	settled := o.CountPods(func(p workload.Pod) bool { return p.Ready && !p.Deleting }) == int32(len(o.Pods))
	return o.Snapshot.LacksPods(ordered) || settled && numbers.Updated < numbers.Target
}

// settingsToWrite returns the settings that differ from what the workload has.
func (o Observed) settingsToWrite(settings ...workload.Setting) []workload.Setting {
	return slices.DeleteFunc(settings, o.has)
}

// has reports whether the workload has this setting.
func (o Observed) has(s workload.Setting) bool {
	return workload.SameJSON(s.Value, o.Settings[s.Path])
}

// leftOnStable reports whether its last pause left it with the stable template, as when a workload was scaled to zero.
func (o Observed) leftOnStable() bool {
	return o.Rest != nil && o.Rest.Template == o.Saved.StableTemplate
}

// savedSetting returns a field's value from before the rollout.
func (o Observed) savedSetting(path string) json.RawMessage { return o.Saved.Settings[path] }

// onlyRevision returns the revision of all pods; false if they are of several or there are none.
func (o Observed) onlyRevision() (Revision, bool) {
	all, counted := int32(0), false
	for _, r := range o.Revisions {
		all, counted = all+r.Total, counted || r.HasCounts
	}
	if !counted {
		all = o.CountPods(workload.Pod.Alive)
	}
	return o.newest(func(r Revision) bool {
		total, _ := o.Count(r)
		return total > 0 && total == all
	})
}

// allPods returns the workload's pods and those of the extra workload.
func (o Observed) allPods() []workload.Pod {
	if o.Extra == nil {
		return o.Pods
	}
	return slices.Concat(o.Pods, o.Extra.Pods)
}

// RecalledRevision returns the revision, whose pod template its cluster keeps, that the request returns to: the one of
// the recorded pod template, else the one of the recorded name, since an API server with newer defaults gives the same
// template another digest. false if the cluster no longer keeps it.
func (o Observed) RecalledRevision() (Revision, bool) {
	if o.Recalled == nil {
		return Revision{}, false
	}
	return o.kept(*o.Recalled)
}

// kept returns a recorded revision, by its template or else by its name; false if the cluster no longer keeps it.
func (o Observed) kept(recorded strategy.Revision) (Revision, bool) {
	if r, there := o.RevisionByTemplate(recorded.Template); there {
		return r, true
	}
	return o.RevisionByName(recorded.Name)
}

// maxKeptNamed is how many revisions a refusal names.
const maxKeptNamed = 8

// NotKeptReason explains that the revision to return to no longer exists, and lists those that do, newest first.
func NotKeptReason(workload fmt.Stringer, seen Observed) string {
	var kept []string
	for _, r := range slices.Backward(seen.Revisions) {
		if len(kept) == maxKeptNamed {
			kept = append(kept, "…")
			break
		}
		kept = append(kept, fmt.Sprintf("%s (%s)", r.Name, strategy.ImageList(r.Images)))
	}
	return fmt.Sprintf("%s: its cluster doesn't keep that version any more (spec.revisionHistoryLimit), so there is "+
		"no pod template to go back to. It keeps %s. "+
		"Start a rollout with the images of that version instead", workload, strings.Join(kept, ", "))
}
