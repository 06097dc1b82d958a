package operation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/workload"
)

// replaces reports whether the request changes the pod template, so that every pod is replaced.
func (r Request) replaces() bool {
	return r.Operation == plan.Restart || r.Operation == plan.HTTPUploadDeploy || r.Operation == plan.Restore &&
		r.Restore.Template != nil
}

// ordered reports whether the workload's controller goes by the ordinals of its pods.
func (r Request) ordered() bool { return r.Workload.WorkloadRef.Lookup().Ordinals }

// setsVersion reports whether an operation sets a version, which the workload may already have.
func setsVersion(operation plan.Operation) bool {
	return operation.Deploys() || operation == plan.Restore
}

// pastTense returns the past participle of an operation other than STOP, for messages.
func pastTense(operation plan.Operation) string {
	switch operation {
	case plan.Start:
		return "started"
	case plan.Restart:
		return "restarted"
	case plan.Restore:
		return "restored"
	}
	return "deployed"
}

// beginReplacing decides on the first change of RESTART and the deploys: it sets the pod template, together with the
// settings that make the workload's controller replace the pods with the requested method.
func beginReplacing(req Request, seen Observed) workload.NextAction {
	if seen.Lagging() && !req.Workload.WorkloadRef.Sized() {
		return wait(req, seen, "its controller has not counted its nodes yet")
	}
	stamped := seen.Marker == req.Marker
	if seen.Replicas == 0 && (stamped || req.Operation == plan.Restart) {
		return finish(req, seen, workload.Result{Message: "nothing to do: it has no pods"})
	}
	if stamped && seen.Lagging() {
		// All pods may already be new: an outdated status is no reason to claim the workload again.
		return wait(req, seen, "its controller has not seen the last change yet")
	}
	if stamped && allReplaced(seen) {
		if setsVersion(req.Operation) {
			return finish(req, seen, workload.Result{Message: "nothing to do: it has " + req.versionName() + " already; " +
				readyOf(seen)})
		}
		return finish(req, seen, workload.Result{Message: replacedMessage(req, seen), Changed: true})
	}
	if !req.Workload.WorkloadRef.Sized() && !seen.PodsSeen {
		return workload.Next(workload.ActReadPods, "see which revision its pods are of")
	}
	saved := Original{Changed: !stamped || req.Operation == plan.Restart, ByDeletion: byDeletion(req, seen),
		Change: revision.Change{FromRevision: podRevision(req, seen, false)}}
	saved.Borrowed = borrow(req, seen, saved.ByDeletion)
	w := claimWrite(req, seen, saved)
	for _, b := range saved.Borrowed {
		w.Settings = append(w.Settings, workload.Setting{Path: b.Path, Value: b.Temporary, Expected: b.Own})
	}
	if setsVersion(req.Operation) {
		if !stamped {
			w.Template = &workload.Template{}
		}
		where := " into its pod template"
		if req.Operation == plan.Restore {
			where = " back"
		}
		return write("put "+req.versionName()+where+", so that every pod is replaced", w)
	}
	if !stamped {
		w.Stamp = req.Marker
	}
	return write("mark its pod template, so that every pod is replaced", w)
}

// byDeletion reports whether this operation has to delete the pods itself. Normally the workload's controller does,
// with two exceptions. With update type OnDelete it replaces nothing. A StatefulSet's controller begins with the
// largest ordinal whatever the state of the other pods: if one is not ready, SEQUENTIAL would have two pods out, and
// PARALLEL is not supported.
func byDeletion(req Request, seen Observed) bool {
	if seen.UpdateType == workload.UpdateOnDelete {
		return true
	}
	return req.ordered() && (req.Method == plan.Parallel || !seen.ready())
}

func borrow(req Request, seen Observed, byDeletion bool) []workload.Borrowed {
	if seen.UpdateType != workload.UpdateRolling {
		return nil
	}
	unavailable := json.RawMessage(`"100%"`)
	if req.Method == plan.Sequential {
		unavailable = json.RawMessage(`1`)
	}
	none := json.RawMessage(`0`)
	paths := req.Workload.WorkloadRef.Lookup().Borrowable()
	switch {
	case !req.ordered():
		return changedSettings(seen, workload.Borrowed{Path: paths[0], Temporary: unavailable},
			workload.Borrowed{Path: paths[1], Temporary: none})
	case byDeletion:
		// The controller would also delete pods, by name, and might hit a new one: OnDelete keeps it from doing so.
		return changedSettings(seen, workload.Borrowed{Path: workload.PathUpdateStrategy,
			Temporary: json.RawMessage(`{"type":"` + workload.UpdateOnDelete + `"}`)})
	case len(seen.Settings[workload.PathUpdateUnavailable]) > 0:
		return changedSettings(seen, workload.Borrowed{Path: workload.PathUpdateUnavailable, Temporary: json.RawMessage(`1`)})
	}
	return nil
}

// changedSettings returns those of the wanted settings that differ from the current ones, together with the current
// values.
func changedSettings(seen Observed, wanted ...workload.Borrowed) []workload.Borrowed {
	var out []workload.Borrowed
	for _, b := range wanted {
		b.Own = seen.Settings[b.Path]
		if !workload.SameJSON(b.Own, b.Temporary) {
			out = append(out, b)
		}
	}
	return out
}

func continueReplacing(req Request, seen Observed) workload.NextAction {
	if seen.Marker != req.Marker {
		return failTemplateChanged(req, seen)
	}
	if seen.Replicas == 0 && !seen.Lagging() {
		return finish(req, seen, workload.Result{Message: noPodsMessage(req, seen)})
	}
	if seen.Original.ByDeletion {
		return continueDeleting(req, seen)
	}
	if !allReplaced(seen) {
		return wait(req, seen, replacingMessage(req, seen))
	}
	return finishReplacing(req, seen)
}

// failTemplateChanged fails an operation whose pod template another client has changed.
func failTemplateChanged(req Request, seen Observed) workload.NextAction {
	return abort(req, seen, failure.New(failure.WorkloadFailed,
		"%s: another client changed its pod template while it was being %s (an undo?): check what runs there, then "+
			"execute %s again", req.Workload, pastTense(req.Operation), req.Operation))
}

// finishReplacing ends an operation whose pods are all new according to the status, once the old pods are deleted.
func finishReplacing(req Request, seen Observed) workload.NextAction {
	if !countsTerminating(req, seen) {
		if !seen.PodsSeen {
			return workload.Next(workload.ActReadPods, "see whether an old pod is left")
		}
		if n := terminatingPods(seen); n > 0 {
			d := wait(req, seen, fmt.Sprintf("%s, %s still terminating", readyOf(seen), podsAre(n)))
			d.WatchPods = true
			return d
		}
	}
	message := replacedMessage(req, seen)
	if seen.UpdateType == workload.UpdateRecreate {
		message += "; its update type is Recreate, so all of them went down before new ones came up"
	}
	return finish(req, seen, workload.Result{Message: message,
		Change: revision.Change{ToRevision: podRevision(req, seen, true)}})
}

// allReplaced reports whether, according to the status, every pod has the newest template and is ready, and no other
// pod is left.
func allReplaced(seen Observed) bool {
	return seen.ready() && seen.Updated >= seen.Replicas && seen.Total <= seen.Updated && !seen.terminating()
}

func terminatingPods(seen Observed) int32 {
	return seen.CountPods(func(p workload.Pod) bool { return p.Deleting })
}

// podRevision returns the revision of a DaemonSet's pods, read from the pods since the object itself names none: with
// made, of the pods that this operation created, otherwise of the older ones. It is "" for other kinds.
func podRevision(req Request, seen Observed, made bool) string {
	if req.Workload.WorkloadRef.Sized() {
		return ""
	}
	for _, p := range seen.Pods {
		if p.Revision != "" && (p.Marker == req.Marker) == made {
			return req.Workload.WorkloadRef.Name + "-" + p.Revision
		}
	}
	return ""
}

func replacedMessage(req Request, seen Observed) string {
	if setsVersion(req.Operation) {
		return pastTense(req.Operation) + " " + req.versionName() + ": " + readyOf(seen)
	}
	return pastTense(req.Operation) + ": " + readyOf(seen)
}

// noPodsMessage returns the result message of an operation whose workload has no pods to replace.
func noPodsMessage(req Request, seen Observed) string {
	if from := seen.Original.FromReplicas; from == nil || *from > 0 {
		return pastTense(req.Operation) + ": another client scaled it to zero meanwhile, so it has no pods"
	}
	return pastTense(req.Operation) + " " + req.versionName() +
		": it has no pods, and those that START brings up have it"
}

func replacingMessage(req Request, seen Observed) string {
	updated := min(seen.Updated, seen.Replicas)
	if seen.Lagging() {
		updated = 0
	}
	text := fmt.Sprintf("%s, %d of %d %s", readyOf(seen)+unavailableNote(seen), updated, seen.Replicas,
		pastTense(req.Operation))
	if seen.terminating() && updated == seen.Replicas {
		text += fmt.Sprintf(", %s still terminating", podsAre(*seen.Terminating))
	}
	return text
}

// continueDeleting decides on an operation that deletes the pods itself. It deletes only pods that were not created
// from the marked template, and only after the workload's controller has seen that template, so that no pod is replaced
// twice.
func continueDeleting(req Request, seen Observed) workload.NextAction {
	if seen.Lagging() {
		return wait(req, seen, "its controller has not seen the change yet")
	}
	if !seen.PodsSeen {
		return workload.Next(workload.ActReadPods, "see which pods are still to be "+pastTense(req.Operation))
	}
	old := oldPods(req, seen)
	next := old
	if req.Method == plan.Sequential {
		next = nextPod(seen, old)
	}
	if len(next) > 0 {
		return deletePods(next, "delete %s, %d still to be %s", podNames(next), len(old), pastTense(req.Operation))
	}
	if len(old) > 0 || terminatingPods(seen) > 0 || alivePods(seen) < seen.Replicas || !seen.ready() ||
		unavailablePods(seen) > 0 {
		taken := max(0, seen.Replicas-int32(len(old))-max(0, seen.Replicas-alivePods(seen)))
		d := wait(req, seen, fmt.Sprintf("%s, %d of %d %s", readyOf(seen)+unavailableNote(seen), taken, seen.Replicas,
			pastTense(req.Operation)))
		d.WatchPods = true
		return d
	}
	return finishReplacing(req, seen)
}

// oldPods returns the pods still to be deleted, in deletion order. Pods that are not ready come first, since deleting
// them makes no further pod unavailable (smallest ordinal first, the order in which a StatefulSet creates them again).
// The others follow, largest ordinal first, as in a StatefulSet's own update.
func oldPods(req Request, seen Observed) []workload.Pod {
	old := slices.DeleteFunc(slices.Clone(seen.Pods), func(p workload.Pod) bool {
		return p.Marker == req.Marker || !p.Alive()
	})
	slices.SortFunc(old, func(a, b workload.Pod) int {
		byOrdinal := cmp.Compare(a.Ordinal, b.Ordinal)
		if a.Ready {
			byOrdinal = -byOrdinal
		}
		return cmp.Or(workload.Rank(a.Ready)-workload.Rank(b.Ready), byOrdinal, cmp.Compare(a.Name, b.Name))
	})
	return old
}

// nextPod returns the one pod that SEQUENTIAL may delete now, if any: an unready one, otherwise a ready one if all the
// others exist and are ready.
func nextPod(seen Observed, old []workload.Pod) []workload.Pod {
	if len(old) == 0 || terminatingPods(seen) > 0 {
		return nil
	}
	if old[0].Ready && (alivePods(seen) < seen.Replicas || unavailablePods(seen) > 0 || !seen.ready()) {
		return nil
	}
	return old[:1]
}

// alivePods returns the number of pods that are neither terminating nor finished.
func alivePods(seen Observed) int32 { return seen.CountPods(workload.Pod.Alive) }

func unavailablePods(seen Observed) int32 {
	return seen.CountPods(func(p workload.Pod) bool { return p.Alive() && !p.Available })
}

func podNames(list []workload.Pod) string {
	if len(list) == 1 {
		return "pod " + list[0].Name
	}
	return fmt.Sprintf("%d pods", len(list))
}
