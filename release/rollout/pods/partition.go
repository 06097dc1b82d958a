package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// pathUpdateStrategy is what a rollout borrows of every kind but a Deployment.
const pathUpdateStrategy = "/spec/updateStrategy"

// defaultUnavailable is a CloneSet's maxUnavailable if it has none.
var defaultUnavailable = intstr.FromString("20%")

// rollingFields define how pods are replaced.
type rollingFields struct {
	Paused         bool                `json:"paused"`
	Partition      *intstr.IntOrString `json:"partition"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
	MaxSurge       *intstr.IntOrString `json:"maxSurge"`
}

// updateStrategy is spec.updateStrategy of the kinds that have a partition. A CloneSet has the fields at the top level,
// the others in rollingUpdate.
type updateStrategy struct {
	Type string `json:"type"`
	rollingFields
	RollingUpdate struct {
		rollingFields
		UnorderedUpdate json.RawMessage `json:"unorderedUpdate"`
	} `json:"rollingUpdate"`
}

func parseStrategy(raw json.RawMessage) (s updateStrategy) {
	_ = json.Unmarshal(raw, &s) // the API server has checked it
	return s
}

// partitioned moves the pods of a kind whose controller keeps as many pods old as its partition, and replaces the
// others within the workload's own limits. One write sets template and partition; during a pause everything else is the
// workload's own.
type partitioned struct {
	defaultTechnique
	// nested is true if the partition is in rollingUpdate.
	nested bool
	// ordinals is true if the partition is the ordinal from which pods are updated, rather than a number of pods that
	// are kept.
	ordinals bool
	// share is true if the partition may be a share, which keeps the split in proportion while the workload is scaled.
	share bool
}

func (partitioned) Pointers() []string { return []string{pathUpdateStrategy} }

func (partitioned) CountsPods() bool { return true }

// refusalReason refuses a workload whose own update waits for a manual action.
func (k partitioned) refusalReason(seen Observed) string {
	s := parseStrategy(seen.Settings[pathUpdateStrategy])
	switch {
	case s.Type == workload.UpdateOnDelete:
		return "updates its pods only when they are deleted (update type OnDelete): set its update type to " +
			"RollingUpdate first"
	case s.Paused || s.RollingUpdate.Paused:
		return "has a paused update strategy: resume it first"
	}
	return ""
}

// next sets the template and the partition that lets the controller bring the target number of pods to the target
// version. On a step back, pods that are not ready are deleted: a controller that goes by ordinals would wait for them.
func (k partitioned) next(t task, seen Observed) NextAction {
	switch {
	case !t.Placed && t.Target == 0 && t.Total == 0:
		return done("no pod is asked for yet")
	case t.Size == 0 && t.Placed && !t.Request.Back:
		return stableWhileEmpty(seen)
	case t.Size == 0: // its partition keeps its next pods back as well
		return done("")
	}
	if d, holding := k.stopForeignUpdate(t, seen); holding {
		return d
	}
	if w := t.write("partition", seen.settingsToWrite(k.partitionSetting(seen, k.keep(t, seen), t.Size))); !empty(w) {
		return set(fmt.Sprintf("let its controller bring %d of %d pods to that version", t.Target, t.Size), w)
	}
	if stuck := k.blockingPods(t.Aim, seen); t.Request.Back && len(stuck) > 0 {
		return removeStuck(stuck)
	}
	if k.hasLeftovers(t, seen) {
		return wait("the pods that they replace are about to be removed")
	}
	return done("")
}

// hasLeftovers reports whether a CloneSet still has surplus pods of other versions after its surge. It is false while
// pods of the target version are not ready, since the controller may have to keep the others. Other kinds are excluded:
// a DaemonSet's surplus pods may be on nodes that it no longer covers.
func (k partitioned) hasLeftovers(t task, seen Observed) bool {
	if !k.share || t.Total < t.Target || t.Ready < t.Total {
		return false
	}
	others := seen.CountPods(func(p workload.Pod) bool { return p.Alive() && p.Revision != t.Aim.Hash })
	return others > max(t.Size-t.Target, 0)
}

// stopForeignUpdate stops the update that another client's edit started, before that edit is undone: a controller that
// goes by ordinals removes the highest pod of the wrong version at once, even if the one that it just removed for the
// edit is not back yet.
func (k partitioned) stopForeignUpdate(t task, seen Observed) (NextAction, bool) {
	if !k.ordinals || !t.Request.OverwriteDrift || t.Placed {
		return NextAction{}, false
	}
	if stop := seen.settingsToWrite(k.partitionSetting(seen, t.Size, t.Size)); len(stop) > 0 {
		return set("stop the update that another client's edit started",
			&workload.Write{Step: "hold", Settings: stop}), true
	}
	settled := seen.CountPods(func(p workload.Pod) bool { return !p.Deleting && (p.Ready || p.Stuck()) })
	if seen.Lagging() || settled < t.Size {
		return wait("the update that another client's edit started is stopping"), true
	}
	return NextAction{}, false
}

// haltUpdate stops an update before all pods move to the stable version: a controller that goes by ordinals removes the
// highest pod of the wrong version at once, even if a lower one is not back yet. Pods below the partition come back as
// the stable version, so pods of the new version that never get ready are deleted meanwhile.
func (k partitioned) haltUpdate(stable Revision, seen Observed) (NextAction, bool) {
	strategy := parseStrategy(seen.Settings[pathUpdateStrategy])
	asked := seen.Replicas
	if p := strategy.RollingUpdate.Partition; p != nil {
		asked = max(seen.Replicas-p.IntVal, 0)
	}
	// A stable pod with a problem of its own is not waited for.
	settled := seen.CountPods(func(p workload.Pod) bool {
		return !p.Deleting && (p.Ready || p.Stuck() && p.Revision == stable.Hash)
	})
	steady := settled >= seen.Replicas && !seen.Lagging()
	if !k.ordinals || steady && (asked == 0 || seen.Updated >= asked) {
		return NextAction{}, false
	}
	if stop := seen.settingsToWrite(k.partitionSetting(seen, seen.Replicas, seen.Replicas)); len(stop) > 0 {
		return set("stop the update that is under way before finalising",
			&workload.Write{Step: "hold", Settings: stop}), true
	}
	if stuck := k.blockingPods(stable, seen); len(stuck) > 0 {
		return removeStuck(stuck), true
	}
	return wait("the update that was under way is stopping"), true
}

// keep returns the partition. On a step back by ordinals, the new pods are the highest ones, and the highest of them go
// first.
func (k partitioned) keep(t task, seen Observed) int32 {
	own := parseStrategy(seen.savedSetting(pathUpdateStrategy))
	if t.Request.Back && k.ordinals && workload.AbsentJSON(own.RollingUpdate.UnorderedUpdate) {
		back := t.Target - (t.Size - min(t.Request.From, t.Size))
		return t.Size - max(back, 0)
	}
	return t.Size - t.Target
}

// partitionSetting returns the update strategy with a partition that keeps this many pods; every other field is the
// workload's own.
func (k partitioned) partitionSetting(seen Observed, keep, size int32) workload.Setting {
	return workload.Setting{Path: pathUpdateStrategy,
		Value: k.withPartition(seen.savedSetting(pathUpdateStrategy), keep, size)}
}

func (k partitioned) withPartition(own json.RawMessage, keep, size int32) json.RawMessage {
	partition, pointer := any(keep), "/partition"
	if k.share {
		partition = shareOf(keep, size)
	}
	if k.nested {
		pointer = "/rollingUpdate/partition"
	}
	return withFields(own, map[string]any{pointer: partition})
}

// shareOf returns the share that keeps exactly this many pods (CloneSet: rounded up, below 100 % never all), or the
// number if no share does.
func shareOf(keep, size int32) any {
	switch {
	case keep <= 0 || size <= 0:
		return int32(0)
	case keep >= size:
		return "100%"
	}
	for percent := 100 * keep / size; percent <= 100*keep/size+1 && percent < 100; percent++ {
		if min(strategy.PodsRoundedUp(intstr.FromString(fmt.Sprintf("%d%%", percent)), size), size-1) == keep &&
			percent > 0 {
			return fmt.Sprintf("%d%%", percent)
		}
	}
	return keep
}

// withFields sets fields of an object, by JSON Pointer, and keeps the others.
func withFields(own json.RawMessage, fields map[string]any) json.RawMessage {
	root := map[string]any{}
	if !workload.AbsentJSON(own) {
		_ = json.Unmarshal(own, &root) // the API server has checked it
	}
	for pointer, value := range fields {
		jsonpatch.Put(root, pointer, value)
	}
	return jsonpatch.Encode(root)
}

// pauseSettings changes nothing at the end of a step. In the middle of one, the partition keeps all pods that have not
// moved: otherwise the controller would replace them up to the step's target.
func (k partitioned) pauseSettings(t task, seen Observed) []workload.Setting {
	if !t.Request.Halt || !t.Placed {
		return nil
	}
	t.Target = min(t.Total, t.Target) // never more than the step allows: some may be about to be removed
	return []workload.Setting{k.partitionSetting(seen, k.keep(t, seen), t.Size)}
}

// finalSettings restores the strategy. A partition of the workload's own is restored last, since it would keep pods
// from being moved.
func (k partitioned) finalSettings(seen Observed) (first, last []workload.Setting) {
	own := workload.Setting{Path: pathUpdateStrategy, Value: seen.savedSetting(pathUpdateStrategy)}
	s := parseStrategy(own.Value)
	// clients of Kruise Rollouts expect that an Advanced DaemonSet says so after a release by a Rollout object
	if k.nested && !k.ordinals && seen.Saved.Declared != "" && !s.RollingUpdate.Paused {
		own.Value = withFields(own.Value, map[string]any{"/rollingUpdate/paused": false})
	}
	for _, p := range []*intstr.IntOrString{s.Partition, s.RollingUpdate.Partition} {
		if p != nil && (p.IntVal != 0 || p.StrVal != "" && p.StrVal != "0%") {
			return []workload.Setting{k.partitionSetting(seen, 0, 0)}, []workload.Setting{own}
		}
	}
	return []workload.Setting{own}, nil
}

// blockingPods returns the pods of other revisions that are not ready, of a kind that goes by ordinals: its controller
// waits for each of them.
func (k partitioned) blockingPods(to Revision, seen Observed) []workload.Pod {
	if !k.ordinals || to.Hash == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(seen.Pods), func(p workload.Pod) bool {
		return p.Revision == to.Hash || p.Ready || p.Deleting
	})
}

func removeStuck(stuck []workload.Pod) NextAction {
	return remove(stuck, "delete %d pods of another version that are not ready: its controller would wait for them",
		len(stuck))
}

// cloneSetBlueGreen adds new pods to a CloneSet and keeps every old one: a surge with the gate on, so that no new pod
// counts as available.
type cloneSetBlueGreen struct{ partitioned }

func (cloneSetBlueGreen) Pointers() []string {
	return []string{pathUpdateStrategy, pathMinReadySeconds}
}

// next surges by the step's number of pods, in one write. A CloneSet's controller never surges by more pods than are
// still to be updated, so a number of new pods beyond half the size can be reached only in one step. What the
// controller cannot do is refused before it is written.
func (k cloneSetBlueGreen) next(t task, seen Observed) NextAction {
	if !t.Placed && t.Target == 0 {
		return done("no pod is asked for yet")
	}
	if t.Total >= t.Target && t.Placed {
		return done("")
	}
	surge := surgeOf(t, t.Target)
	if now := parseStrategy(seen.Settings[pathUpdateStrategy]).MaxSurge; now != nil &&
		strategy.PodsRoundedUp(*now, t.Size) == t.Target {
		surge = *now // keep the form in which it is written
	}
	update := withFields(seen.savedSetting(pathUpdateStrategy),
		map[string]any{"/partition": 0, "/maxSurge": surge, "/maxUnavailable": 0})
	w := t.write("grow", seen.settingsToWrite(workload.Setting{Path: pathUpdateStrategy, Value: update}, minReadyGate))
	switch {
	case empty(w):
		return wait("")
	case len(w.Settings) > 0 && t.Placed && t.Total > 0 && t.Total+t.Target > t.Size:
		return failf(failure.Refused, "%s: with %d of %d pods new, a CloneSet does not surge to %d, only to %d: a "+
			"blue-green of a CloneSet grows beyond a half only in its first step. Roll back, then begin with a "+
			"step of that size", t.Request.Workload, t.Total, t.Size, t.Target, max(t.Size-t.Total, t.Total))
	}
	return set(fmt.Sprintf("bring up %d new pods next to the others", t.Target), w)
}

// pauseSettings changes nothing: no old pod is removed for the new ones.
func (cloneSetBlueGreen) pauseSettings(task, Observed) []workload.Setting { return nil }

// finalSettings restores the strategy and removes the gate.
func (k cloneSetBlueGreen) finalSettings(seen Observed) (first, last []workload.Setting) {
	first, last = k.partitioned.finalSettings(seen)
	return append(first, workload.Setting{Path: pathMinReadySeconds, Value: seen.savedSetting(pathMinReadySeconds)}),
		last
}

// original returns a CloneSet's own limits, with its controller's defaults. A CloneSet has no progress deadline.
func (cloneSetBlueGreen) original(saved rollout.Saved) rollout.OriginalStrategy {
	own := parseStrategy(saved.Settings[pathUpdateStrategy])
	share, none := defaultUnavailable, intstr.FromString("0%")
	return rollout.OriginalStrategy{MaxUnavailable: cmp.Or(own.MaxUnavailable, &share),
		MaxSurge: cmp.Or(own.MaxSurge, &none), MinReadySeconds: savedNumber(saved, pathMinReadySeconds, 0)}
}

// StepRefusal returns which step a workload of this size cannot make, and why; "" if it can make all of them.
func StepRefusal(tech Technique, steps []strategy.Step, size int32) (step int, reason string) {
	if _, ok := tech.(cloneSetBlueGreen); !ok {
		return 0, ""
	}
	before := int32(0)
	for i, s := range steps {
		target := strategy.Target(strategy.StyleBlueGreen, s.Replicas, size)
		if before > 0 && target > before && before+target > size {
			return i, fmt.Sprintf("a CloneSet with %d of %d pods new does not surge to %d: beyond a half a "+
				"blue-green of it grows in its first "+
				"step only. Begin with %s, or keep every step at or below a half", before, size, target,
				s.Replicas.String())
		}
		before = max(before, target)
	}
	return 0, ""
}
