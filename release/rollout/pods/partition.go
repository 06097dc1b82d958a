package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// pathUpdateStrategy is what a rollout borrows of every kind but a Deployment.
const pathUpdateStrategy = "/spec/updateStrategy"

// rollingFields say how pods are replaced.
type rollingFields struct {
	Paused         bool                `json:"paused"`
	Partition      *intstr.IntOrString `json:"partition"`
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable"`
	MaxSurge       *intstr.IntOrString `json:"maxSurge"`
}

// updateStrategy is spec.updateStrategy of the kinds that have a partition: a CloneSet's fields stand in it, the others' in rollingUpdate.
type updateStrategy struct {
	Type string `json:"type"`
	rollingFields
	RollingUpdate struct {
		rollingFields
		UnorderedUpdate json.RawMessage `json:"unorderedUpdate"`
	} `json:"rollingUpdate"`
}

func parseStrategy(raw json.RawMessage) updateStrategy {
	var s updateStrategy
	if !workloadops.AbsentJSON(raw) {
		_ = json.Unmarshal(raw, &s) // the API server has checked it
	}
	return s
}

// partitioned moves the pods of a kind whose controller keeps as many pods old as its partition says, and replaces the others within the
// workload's own limits. One write sets template and partition; at rest all else is the workload's own.
type partitioned struct {
	inPlace
	// nested says that the partition stands in rollingUpdate.
	nested bool
	// ordinals says that the partition is the ordinal from which on pods are updated, rather than a number of pods that are kept.
	ordinals bool
	// share says that the partition may be a share, which keeps the split in proportion while the workload is scaled.
	share bool
}

func (partitioned) Pointers() []string { return []string{pathUpdateStrategy} }

func (partitioned) ByPods() bool { return true }

// refuses a workload whose own update waits for a person.
func (k partitioned) refuses(seen Observed) string {
	s := parseStrategy(seen.Settings[pathUpdateStrategy])
	switch {
	case s.Type == workloadops.UpdateOnDelete:
		return "updates its pods only when somebody deletes them (update type OnDelete): set its update type to RollingUpdate first"
	case s.Paused || s.RollingUpdate.Paused:
		return "has a paused update strategy: resume it first"
	}
	return ""
}

// stable is the revision of the live template: every pod is of it before a rollout begins.
func (partitioned) stable(seen Observed) (Revision, bool) { return liveRevision(seen) }

// liveRevision is the revision that the status names, else the newest that was made of the live template.
func liveRevision(seen Observed) (Revision, bool) {
	if r, ok := seen.Find(seen.Update); ok {
		return r, true
	}
	return seen.Made(seen.Template)
}

// next sets the template and the partition that lets the controller bring the target number of pods to the version aimed at. On the way
// back, pods that are not ready are deleted: a controller that goes by ordinals would wait for them.
func (k partitioned) next(t task, seen Observed) NextAction {
	switch {
	case !t.Placed && t.Target == 0 && t.Total == 0:
		return done("no pod is asked for yet")
	case t.Size == 0 && t.Placed && !t.Request.Back:
		return emptied(seen)
	case t.Size == 0: // its partition keeps as many of the pods that come
		return done("")
	}
	if d, holding := k.hold(t, seen); holding {
		return d
	}
	if w := t.write("partition", seen.changed(k.kept(seen, k.keep(t, seen), t.Size))); !empty(w) {
		return set(fmt.Sprintf("let its controller bring %d of %d pods to that version", t.Target, t.Size), w)
	}
	if stuck := k.unstick(t.Aim, seen); t.Request.Back && len(stuck) > 0 {
		return removeStuck(stuck)
	}
	if k.leftOver(t, seen) {
		return wait("the pods that they stand in for are about to go")
	}
	return done("")
}

// leftOver says whether pods of a CloneSet are left that those of the version aimed at have surged beside. Where some of these are not
// ready, the controller may have to keep them. A DaemonSet's may be on nodes that are not its own any more.
func (k partitioned) leftOver(t task, seen Observed) bool {
	if !k.share || t.Total < t.Target || t.Ready < t.Total {
		return false
	}
	others := seen.CountPods(func(p workloadops.Pod) bool { return p.Alive() && p.Revision != t.Aim.Hash })
	return others > max(t.Size-t.Target, 0)
}

// hold stops the update that somebody else's edit has set off, before that edit is undone: a controller that goes by ordinals takes the
// highest pod of the wrong version at once, even if the one that it has just taken for the edit is not back yet.
func (k partitioned) hold(t task, seen Observed) (NextAction, bool) {
	if !k.ordinals || !t.Request.PutBack || t.Placed {
		return NextAction{}, false
	}
	if stop := seen.changed(k.kept(seen, t.Size, t.Size)); len(stop) > 0 {
		return set("stop the update that somebody else's edit has set off", &workloadops.Write{Step: "hold", Settings: stop}), true
	}
	settled := seen.CountPods(func(p workloadops.Pod) bool { return !p.Deleting && (p.Ready || p.Stuck()) })
	if seen.Lagging() || settled < t.Size {
		return wait("the update that somebody else's edit has set off is coming to a halt"), true
	}
	return NextAction{}, false
}

// calm brings an update to a halt before every pod goes home: a controller that goes by ordinals takes the highest pod of the wrong version
// at once, even if a lower one is not back yet. Pods below the partition come back as the stable version, so that those of the new one that
// never get ready are deleted meanwhile.
func (k partitioned) calm(stable Revision, seen Observed) (NextAction, bool) {
	strategy := parseStrategy(seen.Settings[pathUpdateStrategy])
	asked := seen.Replicas
	if p := strategy.RollingUpdate.Partition; p != nil {
		asked = max(seen.Replicas-p.IntVal, 0)
	}
	// A stable pod in trouble of its own is not waited for.
	settled := seen.CountPods(func(p workloadops.Pod) bool {
		return !p.Deleting && (p.Ready || p.Stuck() && p.Revision == stable.Hash)
	})
	whole := settled >= seen.Replicas && !seen.Lagging()
	if !k.ordinals || whole && (asked == 0 || seen.Updated >= asked) {
		return NextAction{}, false
	}
	if stop := seen.changed(k.kept(seen, seen.Replicas, seen.Replicas)); len(stop) > 0 {
		return set("stop the update that is under way before every pod goes home", &workloadops.Write{Step: "hold", Settings: stop}), true
	}
	if stuck := k.unstick(stable, seen); len(stuck) > 0 {
		return removeStuck(stuck), true
	}
	return wait("the update that was under way is coming to a halt"), true
}

// keep is the partition. Going back by ordinals, the new pods are the highest ones, and of them the highest go first.
func (k partitioned) keep(t task, seen Observed) int32 {
	own := parseStrategy(seen.own(pathUpdateStrategy))
	if t.Request.Back && k.ordinals && workloadops.AbsentJSON(own.RollingUpdate.UnorderedUpdate) {
		back := t.Target - (t.Size - min(t.Request.From, t.Size))
		return t.Size - max(back, 0)
	}
	return t.Size - t.Target
}

// kept is the update strategy with a partition that keeps so many pods; every other field is its own.
func (k partitioned) kept(seen Observed, keep, size int32) workloadops.Setting {
	return workloadops.Setting{Path: pathUpdateStrategy, Value: k.with(seen.own(pathUpdateStrategy), keep, size)}
}

func (k partitioned) with(own json.RawMessage, keep, size int32) json.RawMessage {
	partition := any(keep)
	if k.share {
		partition = shareOf(keep, size)
	}
	if k.nested {
		return withFields(own, map[string]any{"partition": partition}, "rollingUpdate")
	}
	return withFields(own, map[string]any{"partition": partition})
}

// shareOf is the share that keeps exactly so many pods (CloneSet: rounded up, below 100 % never all), or the number where no share does.
func shareOf(keep, size int32) any {
	switch {
	case keep <= 0 || size <= 0:
		return int32(0)
	case keep >= size:
		return "100%"
	}
	for percent := 100 * keep / size; percent <= 100*keep/size+1 && percent < 100; percent++ {
		if min(strategy.ShareUp(intstr.FromString(fmt.Sprintf("%d%%", percent)), size), size-1) == keep && percent > 0 {
			return fmt.Sprintf("%d%%", percent)
		}
	}
	return keep
}

// withFields sets fields of an object, or of an object within it, and keeps the others.
func withFields(own json.RawMessage, fields map[string]any, under ...string) json.RawMessage {
	root := map[string]any{}
	if !workloadops.AbsentJSON(own) {
		_ = json.Unmarshal(own, &root) // the API server has checked it
	}
	at := root
	for _, name := range under {
		at = child(at, name)
	}
	maps.Copy(at, fields)
	out, err := json.Marshal(root)
	if err != nil {
		panic(err) // it was JSON before
	}
	return out
}

// rest changes nothing at the end of a step. In its middle the partition is that of the moved pods: the controller would take all others.
func (k partitioned) rest(t task, seen Observed) []workloadops.Setting {
	if !t.Request.Halt || !t.Placed {
		return nil
	}
	t.Target = min(t.Total, t.Target) // never more than the step lets go: some may be of pods that are about to leave
	return []workloadops.Setting{k.kept(seen, k.keep(t, seen), t.Size)}
}

// home gives the strategy back; a partition of the workload's own comes last, since it would keep pods from going home.
func (k partitioned) home(seen Observed) (first, last []workloadops.Setting) {
	own := workloadops.Setting{Path: pathUpdateStrategy, Value: seen.own(pathUpdateStrategy)}
	s := parseStrategy(own.Value)
	for _, p := range []*intstr.IntOrString{s.Partition, s.RollingUpdate.Partition} {
		if p != nil && (p.IntVal != 0 || p.StrVal != "" && p.StrVal != "0%") {
			return []workloadops.Setting{k.kept(seen, 0, 0)}, []workloadops.Setting{own}
		}
	}
	return []workloadops.Setting{own}, nil
}

// native lets the controller go to the end within the workload's own limits.
func (k partitioned) native(seen Observed) []workloadops.Setting {
	first, _ := k.home(seen)
	return first
}

// unstick names the pods of other revisions that are not ready, of a kind that goes by ordinals: its controller waits for each of them.
func (k partitioned) unstick(to Revision, seen Observed) []workloadops.Pod {
	if !k.ordinals || to.Hash == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(seen.Pods), func(p workloadops.Pod) bool { return p.Revision == to.Hash || p.Ready || p.Deleting })
}

func removeStuck(stuck []workloadops.Pod) NextAction {
	return remove(stuck, "delete %d pods of another version that are not ready: its controller would wait for them", len(stuck))
}

// cloneSetBlueGreen adds new pods to a CloneSet and keeps every old one: a surge, behind the gate, so that none counts as available.
type cloneSetBlueGreen struct{ partitioned }

func (cloneSetBlueGreen) Pointers() []string {
	return []string{pathUpdateStrategy, pathMinReadySeconds}
}

// next surges by the step's number of pods, in one write. A CloneSet's controller never surges by more pods than are still to be updated,
// so that the new pods can grow to a number beyond that only at once: what it could not do is refused before it is written.
func (k cloneSetBlueGreen) next(t task, seen Observed) NextAction {
	if !t.Placed && t.Target == 0 {
		return done("no pod is asked for yet")
	}
	if t.Total >= t.Target && t.Placed {
		return done("")
	}
	surge := surgeOf(t, t.Target)
	if now := parseStrategy(seen.Settings[pathUpdateStrategy]).MaxSurge; now != nil && strategy.ShareUp(*now, t.Size) == t.Target {
		surge = *now // however it is written
	}
	update := withFields(seen.own(pathUpdateStrategy), map[string]any{"partition": 0, "maxSurge": surge, "maxUnavailable": 0})
	w := t.write("grow", seen.changed(workloadops.Setting{Path: pathUpdateStrategy, Value: update}, minReadyGate))
	switch {
	case empty(w):
		return wait("")
	case len(w.Settings) > 0 && t.Placed && t.Total > 0 && t.Total+t.Target > t.Size:
		return failf(failure.Refused, "%s: with %d of %d pods new, a CloneSet does not surge to %d, only to %d: a blue-green of a CloneSet "+
			"grows beyond a half only in its first step. Roll back, then begin with a step of that size",
			t.Request.Workload, t.Total, t.Size, t.Target, max(t.Size-t.Total, t.Total))
	}
	return set(fmt.Sprintf("bring up %d new pods beside the others", t.Target), w)
}

// rest changes nothing: no old pod goes for those that come beside it.
func (cloneSetBlueGreen) rest(task, Observed) []workloadops.Setting { return nil }

// home gives the strategy back and opens the gate.
func (k cloneSetBlueGreen) home(seen Observed) (first, last []workloadops.Setting) {
	first, last = k.partitioned.home(seen)
	return append(first, workloadops.Setting{Path: pathMinReadySeconds, Value: seen.own(pathMinReadySeconds)}), last
}

// original are a CloneSet's own limits, with its controller's defaults. It knows no deadline.
func (cloneSetBlueGreen) original(saved rollout.Saved) rollout.OriginalStrategy {
	own := parseStrategy(saved.Settings[pathUpdateStrategy])
	share, none := intstr.FromString("20%"), intstr.FromString("0%")
	return rollout.OriginalStrategy{MaxUnavailable: cmp.Or(own.MaxUnavailable, &share), MaxSurge: cmp.Or(own.MaxSurge, &none),
		MinReadySeconds: ownMinReady(saved)}
}

// RefusesSteps says which step a workload of so many pods cannot make, and why; "" when it can make all of them.
func RefusesSteps(tech Technique, steps []strategy.Step, size int32) (step int, reason string) {
	if _, ok := tech.(cloneSetBlueGreen); !ok {
		return 0, ""
	}
	before := int32(0)
	for i, s := range steps {
		target := strategy.Target(s.Replicas, size)
		if before > 0 && target > before && before+target > size {
			return i, fmt.Sprintf("a CloneSet with %d of %d pods new does not surge to %d: beyond a half a blue-green of it grows in its first "+
				"step only. Begin with %s, or keep every step at or below a half", before, size, target, s.Replicas.String())
		}
		before = max(before, target)
	}
	return 0, ""
}
