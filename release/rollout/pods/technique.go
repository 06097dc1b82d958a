package pods

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// techniques are the techniques by API group and kind ("apps/Deployment") and style. A style that is missing is refused.
var techniques = map[string]map[strategy.Style]Technique{
	"apps/Deployment": {
		strategy.StylePartition: deploymentPartition{},
		strategy.StyleCanary:    deploymentExtra{},
		strategy.StyleBlueGreen: deploymentBlueGreen{},
	},
	"apps/StatefulSet": {strategy.StylePartition: partitioned{nested: true, ordinals: true}},
	"apps/DaemonSet":   {strategy.StylePartition: byDeletion{}},
	"apps.kruise.io/CloneSet": {
		strategy.StylePartition: partitioned{share: true},
		strategy.StyleBlueGreen: cloneSetBlueGreen{partitioned{share: true}},
	},
	"apps.kruise.io/StatefulSet": {strategy.StylePartition: partitioned{nested: true, ordinals: true}},
	"apps.kruise.io/DaemonSet":   {strategy.StylePartition: partitioned{nested: true}},
}

// Key is how the table of techniques names a kind: "<API group>/<kind>", of any version.
func Key(ref catalog.WorkloadRef) string {
	group, _, _ := strings.Cut(ref.APIVersion, "/")
	return group + "/" + ref.Kind
}

// TechniqueOf is the technique for a workload and a style; false when there is none.
func TechniqueOf(ref catalog.WorkloadRef, style strategy.Style) (Technique, bool) {
	t, ok := techniques[Key(ref)][style]
	return t, ok
}

// Borrowed are the fields that a rollout of each kind may write, in any style, as JSON Pointers, by Key.
func Borrowed() map[string][]string {
	out := map[string][]string{}
	for key, styles := range techniques {
		var all []string
		for _, t := range styles {
			all = append(all, t.Pointers()...)
		}
		slices.Sort(all)
		out[key] = slices.Compact(all)
	}
	return out
}

// AutoscalerLimits are the fields in the spec of a HorizontalPodAutoscaler that a blue-green pins.
func AutoscalerLimits() []string { return []string{"minReplicas", "maxReplicas"} }

// Known says whether workloads of that kind can be rolled out in any style.
func Known(ref catalog.WorkloadRef) bool { return len(techniques[Key(ref)]) > 0 }

// Borrows says whether a rollout of a workload of that kind, in whatever style, borrows the field at a pointer.
func Borrows(ref catalog.WorkloadRef, pointer string) bool {
	for _, t := range techniques[Key(ref)] {
		if slices.Contains(t.Pointers(), pointer) {
			return true
		}
	}
	return false
}

// ReadSaved reads the annotation rollout.AnnotationSaved of a workload of that kind. What would give back a field that no rollout borrows
// was written by somebody else: it is refused.
func ReadSaved(ref catalog.WorkloadRef, text string) (*rollout.Saved, error) {
	saved, err := rollout.ParseSaved(text)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(saved.Settings)) {
		if !Borrows(ref, path) {
			return nil, fmt.Errorf("somebody has added %s, which no rollout of a %s borrows", path, ref.Kind)
		}
	}
	return saved, nil
}

// Technique is how the pods of one kind of workload are moved in one style, without state: which fields it needs and what the next write
// is. Begin, Move and Finish see to the claim, what is saved, drift, deadlines, trouble, messages and the rest.
type Technique interface {
	// Pointers are the JSON Pointers of the fields that it writes: they are saved at Begin and given back at the end.
	Pointers() []string
	// ByPods says that numbers are counted from the pods, as revisions do not tell them: each look of Move and Finish has PodsSeen.
	ByPods() bool
	// refuses says why a rollout cannot begin on the workload as it is, "" when it can: a pause, an update type that it cannot use. What
	// passes by itself is not refused: the workload is then Unsettled.
	refuses(seen Observed) string
	// stable is the revision that serves, before the rollout; false while it is not known.
	stable(seen Observed) (Revision, bool)
	// next is the next step of a Move: set, remove or wait, or done when pods and settings are what the task asks while pods move. A write
	// that sets the template (task.Placed is false) sets the borrowed fields with it.
	next(t task, seen Observed) NextAction
	// native are the settings with which the workload's own controller brings every pod to the live template, while a way back stays open.
	native(seen Observed) []workloadops.Setting
	// rest are the settings of a step that rests: nothing dangerous is parked on a workload.
	rest(t task, seen Observed) []workloadops.Setting
	// surplus are the pods beyond the workload's size that stay while it rests: those of a move that was interrupted.
	surplus(seen Observed) int32
	// home are the settings, as saved, with which the workload's own controller brings all pods to one version, and those given back last.
	home(seen Observed) (first, last []workloadops.Setting)
	// unstick are pods to delete, as the controller would wait for them without end on the way home. Asked with PodsSeen only.
	unstick(to Revision, seen Observed) []workloadops.Pod
	// calm brings an update that is under way to a halt before every pod is told to go home; false: there is nothing to be done for that.
	calm(stable Revision, seen Observed) (NextAction, bool)
	// untouched says that the workload's own template stays the stable one until the end, beside an extra workload.
	untouched() bool
}

// inPlace is what holds for a technique that does not say otherwise.
type inPlace struct{}

func (inPlace) ByPods() bool { return false }

// rest changes nothing.
func (inPlace) rest(task, Observed) []workloadops.Setting { return nil }

func (inPlace) surplus(Observed) int32 { return 0 }

// unstick has nothing to do where the controller replaces broken pods by itself.
func (inPlace) unstick(Revision, Observed) []workloadops.Pod { return nil }

func (inPlace) calm(Revision, Observed) (NextAction, bool) { return NextAction{}, false }

func (inPlace) untouched() bool { return false }

// task is a Move as a technique sees it.
type task struct {
	Request rollout.MoveRequest
	// Size is the workload's; Target how many pods are to be of the version aimed at: the new one, the stable one on the way Back.
	Size   int32
	Target int32
	// Aim is the revision aimed at; its Name is "" until the controller has made it. Placed says that the live template is that version's.
	Aim    Revision
	Placed bool
	// Template is where the template comes from when it has to be set.
	Template workloadops.Template
	// Total and Ready are the pods of the version aimed at; Tolerated is how many of them may be unready (failureThreshold).
	Total     int32
	Ready     int32
	Tolerated int32
}

// settled says that the pods of the version aimed at are ready but for those tolerated. Of one or more pods, one must be.
func (t task) settled() bool {
	return t.Ready+t.Tolerated >= t.Total && (t.Total == 0 || t.Ready > 0)
}

// write sets fields, and with them the template when that is not placed yet.
func (t task) write(step string, settings []workloadops.Setting) *workloadops.Write {
	w := &workloadops.Write{Step: step, Settings: settings}
	if !t.Placed {
		w.Template = &t.Template
	}
	return w
}

// empty says that a write changes nothing of the spec.
func empty(w *workloadops.Write) bool { return w.Template == nil && len(w.Settings) == 0 }
