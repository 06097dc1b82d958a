package pods

import (
	"fmt"
	"maps"
	"slices"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// technique returns the technique for a kind and a style that it supports.
func technique(k workload.Kind, style strategy.Style) Technique {
	partition := partitioned{nested: k.Rolling(), ordinals: k.Ordinals, share: k.Share}
	return map[workload.Means]map[strategy.Style]Technique{
		workload.Limits: {strategy.StylePartition: deploymentPartition{}, strategy.StyleCanary: deploymentExtra{},
			strategy.StyleBlueGreen: deploymentBlueGreen{}},
		workload.Partition: {strategy.StylePartition: partition, strategy.StyleBlueGreen: cloneSetBlueGreen{partition}},
		workload.Deletion:  {strategy.StylePartition: byDeletion{}},
	}[k.Means][style]
}

// TechniqueOf returns the technique for a workload and a style; false if there is none.
func TechniqueOf(ref catalog.WorkloadRef, style strategy.Style) (Technique, bool) {
	k := ref.Lookup()
	if !k.Supports(style) {
		return nil, false
	}
	return technique(k, style), true
}

// BorrowedFields returns the fields that a rollout of a kind may write, in any style, as JSON Pointers.
func BorrowedFields(k workload.Kind) (all []string) {
	for _, style := range k.Styles {
		all = append(all, technique(k, style).Pointers()...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// AutoscalerLimits returns the fields in the spec of a HorizontalPodAutoscaler that a blue-green pins.
func AutoscalerLimits() []string { return []string{"minReplicas", "maxReplicas"} }

// Borrows reports whether a rollout of a workload of that kind, in any style, borrows the field at a pointer.
func Borrows(ref catalog.WorkloadRef, pointer string) bool {
	return slices.Contains(BorrowedFields(ref.Lookup()), pointer)
}

// ReadSaved reads the annotation workload.AnnotationRollout of a workload of that kind. It refuses a value that
// would restore a field that no rollout borrows: another client wrote it.
func ReadSaved(ref catalog.WorkloadRef, text string) (*rollout.Saved, error) {
	saved, err := rollout.ParseSaved(text)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(saved.Settings)) {
		if !Borrows(ref, path) {
			return nil, fmt.Errorf("another client has added %s, which no rollout of a %s borrows", path, ref.Kind)
		}
	}
	return saved, nil
}

// Technique decides how the pods of one kind of workload are moved in one style, without state: which fields it needs
// and what the next write is. Begin, Move and Finish handle the claim, what is saved, drift, deadlines, failing pods,
// messages and everything else.
type Technique interface {
	// Pointers returns the JSON Pointers of the fields that it writes: they are saved at Begin and restored at the end.
	Pointers() []string
	// CountsPods reports whether pods have to be counted one by one, as revisions do not report counts: each snapshot
	// of Move and Finish then has PodsSeen.
	CountsPods() bool
	// refusalReason returns why a rollout cannot begin on the workload in its current state, "" if it can: a pause, or
	// an update type that it cannot use. What passes by itself is not refused, but reported by UnsettledReason.
	refusalReason(seen Observed) string
	// next returns the next action of a Move: set, remove or wait, or done when pods and settings are as the task asks
	// while pods move. A write that sets the template (task.Placed is false) sets the borrowed fields with it.
	next(t task, seen Observed) NextAction
	// pauseSettings returns the settings of a paused step, which leave nothing on the workload that could move a pod.
	pauseSettings(t task, seen Observed) []workload.Setting
	// surplus returns the pods beyond the workload's size that stay during a pause: those of a move that was
	// interrupted.
	surplus(seen Observed) int32
	// finalSettings returns the settings, as saved, with which the workload's own controller brings all pods to one
	// version, and those that are restored last.
	finalSettings(seen Observed) (first, last []workload.Setting)
	// blockingPods returns pods to delete because the controller would otherwise wait for them without end while the
	// workload is finalised or stepped back. It is called with PodsSeen only.
	blockingPods(to Revision, seen Observed) []workload.Pod
	// haltUpdate stops an update that is under way before all pods move to the stable version; false if there is
	// nothing to do.
	haltUpdate(stable Revision, seen Observed) (NextAction, bool)
	// takesOut returns how many pods the workload's own update may take out at once, by the workload's own settings.
	takesOut(seen Observed) int32
	// hold returns the settings with which the workload's own controller replaces no pod, and the pause record that
	// goes with them, if any: for a release that begins over an update that hangs.
	hold(seen Observed) ([]workload.Setting, *rollout.SettledState)
	// removeHung deletes the pods of an update that hung before the release (rollout.Saved.Over), or waits for those
	// that replace them, where the controller does not replace them first by itself; false if there is nothing to do.
	removeHung(t task, seen Observed) (NextAction, bool)
	// usesExtraWorkload reports whether the workload's own template stays the stable one until the end, while an extra
	// workload runs the new version.
	usesExtraWorkload() bool
}

// defaultTechnique is the default behaviour that techniques embed.
type defaultTechnique struct{}

func (defaultTechnique) CountsPods() bool { return false }

// pauseSettings changes nothing.
func (defaultTechnique) pauseSettings(task, Observed) []workload.Setting { return nil }

func (defaultTechnique) surplus(Observed) int32 { return 0 }

// blockingPods returns none: the controller replaces broken pods by itself.
func (defaultTechnique) blockingPods(Revision, Observed) []workload.Pod { return nil }

func (defaultTechnique) usesExtraWorkload() bool { return false }

// removeHung deletes none: the controller removes unready pods first.
func (defaultTechnique) removeHung(task, Observed) (NextAction, bool) { return NextAction{}, false }

// task is a Move as a technique sees it.
type task struct {
	Request rollout.MoveRequest
	// Size is the workload's size; Target is how many pods are to be of the target version: the new one, or the stable
	// one on a step back.
	Size   int32
	Target int32
	// Aim is the target revision; its Name is "" until the controller has made it. Placed is true if the live template
	// is that version's.
	Aim    Revision
	Placed bool
	// Template is the source of the template if it has to be set.
	Template workload.Template
	// Total and Ready are the pods of the target version; Tolerated is how many of them may be unready
	// (failureThreshold).
	Total     int32
	Ready     int32
	Tolerated int32
}

// settled reports whether the pods of the target version are ready, except for those tolerated. If it has pods, at
// least one must be ready.
func (t task) settled() bool {
	return t.Ready+t.Tolerated >= t.Total && (t.Total == 0 || t.Ready > 0)
}

// write returns a write of these fields, with the template if that is not placed yet.
func (t task) write(step string, settings []workload.Setting) *workload.Write {
	w := &workload.Write{Step: step, Settings: settings}
	if !t.Placed {
		w.Template = &t.Template
	}
	return w
}

// empty reports whether a write changes nothing in the spec.
func empty(w *workload.Write) bool { return w.Template == nil && len(w.Settings) == 0 }
