package workloadops

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// beginRestarting decides on the first change of RESTART: the marker on the pod template, together with the settings that make the
// workload's controller replace the pods the way that is asked for.
func beginRestarting(req Request, seen Observed) NextAction {
	if seen.Lagging() && req.Workload.WorkloadRef.Kind == KindDaemonSet {
		return wait(req, seen, "its controller has not counted its nodes yet")
	}
	if seen.Replicas == 0 {
		return finish(req, seen, Result{Message: "nothing to do: it has no pods"})
	}
	stamped := seen.Marker == req.Marker
	if stamped && seen.Lagging() {
		// The pods may all be new: what is not counted yet is no reason to take the workload once more.
		return wait(req, seen, "its controller has not seen the last change yet")
	}
	if stamped && replaced(seen) {
		return finish(req, seen, Result{Message: restarted(seen), Changed: true})
	}
	if req.Workload.WorkloadRef.Kind == KindDaemonSet && !seen.PodsSeen {
		return Next(ActLook, "see which revision its pods are of")
	}
	saved := Original{Changed: true, ByDeletion: byDeletion(req, seen), FromRevision: podRevision(req, seen, false)}
	saved.Borrowed = borrow(req, seen, saved.ByDeletion)
	w := hold(req, seen, saved)
	for _, b := range saved.Borrowed {
		w.Settings = append(w.Settings, Setting{Path: b.Path, Value: b.Lent, Was: b.Own})
	}
	if !stamped {
		w.Stamp = req.Marker
	}
	return write("mark its pod template, so that every pod is replaced", w)
}

// byDeletion says whether this operation has to delete the pods itself. A workload's controller does it by itself, with two exceptions: it
// replaces nothing when its update type is OnDelete; and a StatefulSet's begins with the largest ordinal whatever the state of the others,
// so that SEQUENTIAL would have two pods out when one is not ready to begin with, and PARALLEL is beyond it.
func byDeletion(req Request, seen Observed) bool {
	if seen.UpdateType == UpdateOnDelete {
		return true
	}
	return req.Workload.WorkloadRef.Kind == KindStatefulSet && (req.Method == plan.Parallel || !seen.ready())
}

func borrow(req Request, seen Observed, byDeletion bool) []Borrowed {
	if seen.UpdateType != UpdateRolling {
		return nil
	}
	unavailable := json.RawMessage(`"100%"`)
	if req.Method == plan.Sequential {
		unavailable = json.RawMessage(`1`)
	}
	none := json.RawMessage(`0`)
	switch req.Workload.WorkloadRef.Kind {
	case KindDeployment:
		return lend(seen, Borrowed{Path: PathDeploymentUnavailable, Lent: unavailable}, Borrowed{Path: PathDeploymentSurge, Lent: none})
	case KindDaemonSet:
		return lend(seen, Borrowed{Path: PathUpdateUnavailable, Lent: unavailable}, Borrowed{Path: PathUpdateSurge, Lent: none})
	}
	switch {
	case byDeletion:
		// Its controller would delete pods beside us, by name, and might hit one that has just come: it has to hold still.
		return lend(seen, Borrowed{Path: PathUpdateStrategy, Lent: json.RawMessage(`{"type":"` + UpdateOnDelete + `"}`)})
	case len(seen.Settings[PathUpdateUnavailable]) > 0:
		return lend(seen, Borrowed{Path: PathUpdateUnavailable, Lent: json.RawMessage(`1`)})
	}
	return nil
}

// lend keeps of the wanted settings those that differ from what they are, with what they are.
func lend(seen Observed, wanted ...Borrowed) []Borrowed {
	var out []Borrowed
	for _, b := range wanted {
		b.Own = seen.Settings[b.Path]
		if !SameJSON(b.Own, b.Lent) {
			out = append(out, b)
		}
	}
	return out
}

func goOnRestarting(req Request, seen Observed) NextAction {
	if seen.Marker != req.Marker {
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: somebody else changed its pod template while it was being restarted (an undo?): see what runs there, then restart it again",
			req.Workload))
	}
	if seen.Replicas == 0 && !seen.Lagging() {
		return finish(req, seen, Result{Message: "restarted: somebody else scaled it to zero meanwhile, so it has no pods"})
	}
	if seen.Original.ByDeletion {
		return goOnDeleting(req, seen)
	}
	if !replaced(seen) {
		return wait(req, seen, restarting(seen))
	}
	return ended(req, seen)
}

// ended gives the answer of a RESTART whose numbers are complete, once the old pods are gone.
func ended(req Request, seen Observed) NextAction {
	kind := req.Workload.WorkloadRef.Kind
	if kind == KindDaemonSet || kind == KindDeployment && seen.Terminating == nil {
		if !seen.PodsSeen {
			return Next(ActLook, "see whether an old pod is left")
		}
		if n := onTheirWayOut(seen); n > 0 {
			d := wait(req, seen, fmt.Sprintf("%s, %s still on the way out", readyOf(seen), pods(n)))
			d.WatchPods = true
			return d
		}
	}
	message := restarted(seen)
	if seen.UpdateType == UpdateRecreate {
		message += "; its update type is Recreate, so all of them went down before new ones came up"
	}
	return finish(req, seen, Result{Message: message, ToRevision: podRevision(req, seen, true)})
}

// replaced says, by the numbers of the status, that every pod is of the newest template and ready and no other is left.
func replaced(seen Observed) bool {
	return seen.ready() && seen.Updated >= seen.Replicas && seen.Total <= seen.Updated && !seen.terminating()
}

func onTheirWayOut(seen Observed) int32 {
	return seen.CountPods(func(p Pod) bool { return p.Deleting })
}

// podRevision is the revision of a DaemonSet's pods, made by this restart or before it, since the object itself does not name one. Others:
// "".
func podRevision(req Request, seen Observed, made bool) string {
	if req.Workload.WorkloadRef.Kind != KindDaemonSet {
		return ""
	}
	for _, p := range seen.Pods {
		if p.Revision != "" && (p.Marker == req.Marker) == made {
			return req.Workload.WorkloadRef.Name + "-" + p.Revision
		}
	}
	return ""
}

func restarted(seen Observed) string { return "restarted: " + readyOf(seen) }

func restarting(seen Observed) string {
	updated := min(seen.Updated, seen.Replicas)
	if seen.Lagging() {
		updated = 0
	}
	text := fmt.Sprintf("%s, %d of %d restarted", readyOf(seen), updated, seen.Replicas)
	if seen.terminating() && updated == seen.Replicas {
		text += fmt.Sprintf(", %s still on the way out", pods(*seen.Terminating))
	}
	return text
}

// goOnDeleting decides on a RESTART that deletes the pods itself. Only pods that were not made from the marked template are deleted, and
// only after the workload's controller has seen that template, so that no pod is restarted twice.
func goOnDeleting(req Request, seen Observed) NextAction {
	if seen.Lagging() {
		return wait(req, seen, "its controller has not seen the change yet")
	}
	if !seen.PodsSeen {
		return Next(ActLook, "see which pods are still to be restarted")
	}
	old := oldPods(req, seen)
	next := old
	if req.Method == plan.Sequential {
		next = nextPod(seen, old)
	}
	if len(next) > 0 {
		return deletePods(next, "delete %s, %d still to be restarted", names(next), len(old))
	}
	if len(old) > 0 || onTheirWayOut(seen) > 0 || alive(seen) < seen.Replicas || !seen.ready() || unavailable(seen) > 0 {
		done := max(0, seen.Replicas-int32(len(old))-max(0, seen.Replicas-alive(seen)))
		d := wait(req, seen, fmt.Sprintf("%s, %d of %d restarted", readyOf(seen), done, seen.Replicas))
		d.WatchPods = true
		return d
	}
	return ended(req, seen)
}

// oldPods are the pods still to be deleted, in the order in which they are taken: those that are not ready first, since taking them puts no
// further pod out (from the smallest ordinal, the order in which a StatefulSet makes them again); then from the largest ordinal, as a
// StatefulSet's own update does.
func oldPods(req Request, seen Observed) []Pod {
	old := slices.DeleteFunc(slices.Clone(seen.Pods), func(p Pod) bool { return p.Marker == req.Marker || !p.Alive() })
	slices.SortFunc(old, func(a, b Pod) int {
		byOrdinal := cmp.Compare(a.Ordinal, b.Ordinal)
		switch {
		case a.Ready != b.Ready && b.Ready:
			return -1
		case a.Ready != b.Ready:
			return 1
		case a.Ready:
			byOrdinal = -byOrdinal
		}
		return cmp.Or(byOrdinal, cmp.Compare(a.Name, b.Name))
	})
	return old
}

// nextPod is the one pod that SEQUENTIAL may take now, if any: one that is out already, else one of the ready ones when all the others are
// there and ready.
func nextPod(seen Observed, old []Pod) []Pod {
	if len(old) == 0 || onTheirWayOut(seen) > 0 {
		return nil
	}
	if old[0].Ready && (alive(seen) < seen.Replicas || unavailable(seen) > 0 || !seen.ready()) {
		return nil
	}
	return old[:1]
}

// alive is the number of pods that are there and neither on their way out nor at their end.
func alive(seen Observed) int32 { return seen.CountPods(Pod.Alive) }

func unavailable(seen Observed) int32 {
	return seen.CountPods(func(p Pod) bool { return p.Alive() && !p.Available })
}

func names(list []Pod) string {
	if len(list) == 1 {
		return "pod " + list[0].Name
	}
	return fmt.Sprintf("%d pods", len(list))
}
