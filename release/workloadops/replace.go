package workloadops

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// replaces says whether a request replaces every pod by one of a template that it changes.
func (r Request) replaces() bool {
	return r.Operation == plan.Restart || r.Operation == plan.HTTPUploadDeploy || r.Operation == plan.Restore && r.Restore.Template != nil
}

// deploys says whether an operation brings a version, which the workload may have already.
func deploys(operation plan.Operation) bool {
	return operation.Deploys() || operation == plan.Restore
}

// done is what an operation that replaces pods has done to them, for sentences.
func done(operation plan.Operation) string {
	switch operation {
	case plan.Restart:
		return "restarted"
	case plan.Restore:
		return "restored"
	}
	return "deployed"
}

// beginReplacing decides on the first change of RESTART and the deploys: that of the pod template, together with the settings that make the
// workload's controller replace the pods the way that is asked for.
func beginReplacing(req Request, seen Observed) NextAction {
	if seen.Lagging() && req.Workload.WorkloadRef.Kind == KindDaemonSet {
		return wait(req, seen, "its controller has not counted its nodes yet")
	}
	stamped := seen.Marker == req.Marker
	if seen.Replicas == 0 && (stamped || req.Operation == plan.Restart) {
		return finish(req, seen, Result{Message: "nothing to do: it has no pods"})
	}
	if stamped && seen.Lagging() {
		// The pods may all be new: what is not counted yet is no reason to take the workload once more.
		return wait(req, seen, "its controller has not seen the last change yet")
	}
	if stamped && replaced(seen) {
		if deploys(req.Operation) {
			return finish(req, seen, Result{Message: "nothing to do: it has " + req.what() + " already; " + readyOf(seen)})
		}
		return finish(req, seen, Result{Message: replacedAll(req, seen), Changed: true})
	}
	if req.Workload.WorkloadRef.Kind == KindDaemonSet && !seen.PodsSeen {
		return Next(ActLook, "see which revision its pods are of")
	}
	saved := Original{Changed: !stamped || req.Operation == plan.Restart, ByDeletion: byDeletion(req, seen), FromRevision: podRevision(req, seen, false)}
	saved.Borrowed = borrow(req, seen, saved.ByDeletion)
	w := hold(req, seen, saved)
	for _, b := range saved.Borrowed {
		w.Settings = append(w.Settings, Setting{Path: b.Path, Value: b.Lent, Was: b.Own})
	}
	if deploys(req.Operation) {
		if !stamped {
			w.Template = &Template{}
		}
		where := " into its pod template"
		if req.Operation == plan.Restore {
			where = " back"
		}
		return write("put "+req.what()+where+", so that every pod is replaced", w)
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

func goOnReplacing(req Request, seen Observed) NextAction {
	if seen.Marker != req.Marker {
		return changedTemplate(req, seen)
	}
	if seen.Replicas == 0 && !seen.Lagging() {
		return finish(req, seen, Result{Message: withoutPods(req, seen)})
	}
	if seen.Original.ByDeletion {
		return goOnDeleting(req, seen)
	}
	if !replaced(seen) {
		return wait(req, seen, replacing(req, seen))
	}
	return ended(req, seen)
}

// changedTemplate ends an operation whose template somebody else has changed meanwhile.
func changedTemplate(req Request, seen Observed) NextAction {
	return abort(req, seen, failure.New(failure.WorkloadFailed,
		"%s: somebody else changed its pod template while it was being %s (an undo?): see what runs there, then execute %s again",
		req.Workload, done(req.Operation), req.Operation))
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
	message := replacedAll(req, seen)
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

// podRevision is the revision of a DaemonSet's pods, made by this operation or before it, since the object itself does not name one. Others:
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

func replacedAll(req Request, seen Observed) string {
	if deploys(req.Operation) {
		return done(req.Operation) + " " + req.what() + ": " + readyOf(seen)
	}
	return done(req.Operation) + ": " + readyOf(seen)
}

// withoutPods is the end of an operation whose workload has no pods that could be replaced.
func withoutPods(req Request, seen Observed) string {
	if from := seen.Original.FromReplicas; from == nil || *from > 0 {
		return done(req.Operation) + ": somebody else scaled it to zero meanwhile, so it has no pods"
	}
	return done(req.Operation) + " " + req.what() + ": it has no pods, and those that START brings up have it"
}

func replacing(req Request, seen Observed) string {
	updated := min(seen.Updated, seen.Replicas)
	if seen.Lagging() {
		updated = 0
	}
	text := fmt.Sprintf("%s, %d of %d %s", readyOf(seen), updated, seen.Replicas, done(req.Operation))
	if seen.terminating() && updated == seen.Replicas {
		text += fmt.Sprintf(", %s still on the way out", pods(*seen.Terminating))
	}
	return text
}

// goOnDeleting decides on an operation that deletes the pods itself. Only pods that were not made from the marked template are deleted, and
// only after the workload's controller has seen that template, so that no pod is taken twice.
func goOnDeleting(req Request, seen Observed) NextAction {
	if seen.Lagging() {
		return wait(req, seen, "its controller has not seen the change yet")
	}
	if !seen.PodsSeen {
		return Next(ActLook, "see which pods are still to be "+done(req.Operation))
	}
	old := oldPods(req, seen)
	next := old
	if req.Method == plan.Sequential {
		next = nextPod(seen, old)
	}
	if len(next) > 0 {
		return deletePods(next, "delete %s, %d still to be %s", names(next), len(old), done(req.Operation))
	}
	if len(old) > 0 || onTheirWayOut(seen) > 0 || alive(seen) < seen.Replicas || !seen.ready() || unavailable(seen) > 0 {
		taken := max(0, seen.Replicas-int32(len(old))-max(0, seen.Replicas-alive(seen)))
		d := wait(req, seen, fmt.Sprintf("%s, %d of %d %s", readyOf(seen), taken, seen.Replicas, done(req.Operation)))
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
