package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// wait decides whether to wait, to delete a stuck pod, or to fail: at the deadline, or earlier if a pod has a problem
// that does not pass. progress describes how far the operation is: "2 of 3 pods are ready".
func wait(req Request, seen Observed, progress string) workload.NextAction {
	if req.scalesToZero() { // it needs no new pods
		seen.Creation = workload.CreationFailure{}
	}
	job := workload.Waiting{Snapshot: seen.Snapshot, Workload: req.Workload, Progress: progress,
		Deadline:  time.Duration(req.DeadlineSeconds) * time.Second,
		CanFail:   func(p workload.Pod) bool { return canFailOperation(req, p) },
		PodReason: worstPodReason(req, seen), Explanation: failureReason(req, seen)}
	if stuck := stuckPods(req, seen); len(stuck) > 0 && seen.Elapsed < job.Deadline {
		return deletePods(stuck, "delete %s, which is stuck on an older template: a StatefulSet does not replace "+
			"it by itself", podNames(stuck))
	}
	d := job.Next()
	switch d.Action {
	case workload.ActFail:
		return abort(req, seen, d.Failure)
	case workload.ActWait:
		d.Reason += blockingChange(seen)
		in, troubled := job.ReportIn()
		switch {
		case !troubled || !req.ReportBlocked:
		case in == 0:
			d.Blocked = job.Explanation
		case d.RecheckAfter == 0 || in < d.RecheckAfter:
			d.RecheckAfter = in
		}
	}
	return d
}

// canFailOperation reports whether a problem of this pod can fail the operation. STOP removes every pod, and RESTART
// and deploys remove the older ones, so problems of those do not count.
func canFailOperation(req Request, p workload.Pod) bool {
	switch {
	case req.scalesToZero():
		return false
	case req.replaces():
		return p.Marker == req.Marker
	default:
		return true
	}
}

// stuckPods returns the pods of an older template with a persistent problem, for which an ordered StatefulSet would
// wait forever. They are already unavailable, so that deleting them makes no further pod unavailable; at most one is
// returned.
func stuckPods(req Request, seen Observed) []workload.Pod {
	if !req.ordered() || req.scalesToZero() || !seen.OrderedReady || seen.Lagging() ||
		seen.Revision == "" || seen.UpdateType != workload.UpdateRolling || terminatingPods(seen) > 0 {
		return nil
	}
	stuck := slices.DeleteFunc(slices.Clone(seen.Pods), func(p workload.Pod) bool {
		return !p.Stuck() || p.Revision == "" || p.Revision == seen.Revision ||
			p.Ordinal < seen.FirstOrdinal+seen.Partition
	})
	slices.SortFunc(stuck, func(a, b workload.Pod) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return stuck[:min(1, len(stuck))]
}

func deletePods(list []workload.Pod, format string, args ...any) workload.NextAction {
	return workload.NextAction{Action: workload.ActDelete, Delete: list, Reason: fmt.Sprintf(format, args...)}
}

// waitForBudget waits for a PodDisruptionBudget that refuses evictions, until the deadline, whose failure names it. A
// budget does not block the eviction of an unready pod.
func waitForBudget(req Request, seen Observed, d workload.NextAction) workload.NextAction {
	progress := fmt.Sprintf("%s, %s still to go", readyOf(seen), podNames(d.Delete))
	next := wait(req, seen, progress)
	if next.Action == workload.ActWait {
		next.Reason, next.WatchPods = progress+": "+seen.BlockedByBudget, true
		next.RecheckAfter = workload.BudgetRetryInterval
	}
	return next
}

// failureReason returns the best explanation available: a pod's reason, otherwise the workload's, otherwise where to
// look.
func failureReason(req Request, seen Observed) string {
	reason, note := worstPodReason(req, seen), blockingChange(seen)
	switch {
	case seen.BlockedByBudget != "":
		return seen.BlockedByBudget
	case seen.Creation.Message != "":
		return seen.Creation.String() + note
	case reason != "":
		return reason + note
	case seen.Creation.Unreadable:
		return seen.Creation.String() + note
	case note != "":
		return note[2:]
	case seen.Lagging():
		return "its controller has not processed the change: is kube-controller-manager running?"
	}
	return "no pod reports a reason: check it with `kubectl describe`"
}

// worstPodReason returns the reason of the pod that explains a failure best: the worst problems first, and of equal
// ones those of pods that can fail the operation.
func worstPodReason(req Request, seen Observed) string {
	return workload.WorstPodReason(seen.Pods, func(p workload.Pod) int {
		leaving := workload.Rank(req.scalesToZero() && p.Deleting)
		return leaving*10 + int(p.Severity())*2 + workload.Rank(canFailOperation(req, p))
	})
}

// blockingChange describes a change by another client that keeps the workload from progressing, "" if there is none.
func blockingChange(seen Observed) string {
	switch {
	case seen.Original == nil || seen.Original.Operation == plan.Start || seen.Original.Operation == plan.Stop:
		return ""
	case seen.Paused:
		return "; another client paused it meanwhile: continue it with `kubectl rollout resume`"
	case seen.UpdateType == workload.UpdateRolling && seen.Partition > 0:
		return fmt.Sprintf("; another client set its partition to %d meanwhile: set it to 0 to continue",
			seen.Partition)
	}
	return ""
}

// Restore decides how to restore what an unfinished operation borrowed and to release its claim. It does not change a
// workload that the request does not hold.
func Restore(req Request, seen Observed) workload.NextAction {
	if seen.Claim != req.Claim {
		return workload.NextAction{Action: workload.ActDone, Reason: "nothing to restore",
			Result: &workload.Result{Message: "nothing to restore: this release does not hold the workload"}}
	}
	message := "the claim is released; nothing was borrowed"
	w, notes := restoreWrite(seen, "restore")
	if len(w.Settings) > 0 {
		message = "its own update settings are restored and the claim is released"
	}
	if seen.OriginalProblem != "" {
		message = "the claim is released, but the saved settings cannot be read: check its size and update settings " +
			"by hand"
	}
	return workload.NextAction{Action: workload.ActWrite, Reason: message, Write: w,
		Result: &workload.Result{Message: message + notes, Changed: true}}
}

// finish ends the operation with success. If it holds the workload, the last write restores what was borrowed and
// releases the claim.
func finish(req Request, seen Observed, result workload.Result) workload.NextAction {
	if o := seen.Original; o != nil && o.Begun {
		result.Changed = result.Changed || o.Changed
	}
	to := result.ToRevision
	result.Change = changeOf(req, seen)
	result.ToRevision = cmp.Or(to, result.ToRevision)
	if seen.Claim != req.Claim {
		return workload.NextAction{Action: workload.ActDone, Reason: result.Message, Result: &result}
	}
	w, notes := restoreWrite(seen, "end")
	result.Message += notes
	return workload.NextAction{Action: workload.ActWrite, Reason: result.Message, Write: w, Result: &result}
}

// changeFrom returns what the workload is before the operation. The package is "" if the operation does not change it.
func changeFrom(req Request, seen Observed) revision.Change {
	c := revision.Change{FromRevision: seen.Revision, FromReplicas: sizeOf(req, seen), Before: seen.Template}
	if setsVersion(req.Operation) {
		c.FromPackage = seen.Package
	}
	return c
}

// changeOf returns what the operation has changed so far.
func changeOf(req Request, seen Observed) revision.Change {
	now := changeFrom(req, seen)
	c := now
	if o := seen.Original; o != nil && o.Begun {
		c = o.Change
	}
	c.ToRevision, c.ToReplicas, c.ToPackage, c.After = now.FromRevision, now.FromReplicas, now.FromPackage, now.Before
	return c
}

// abort ends the operation with a failure. If it holds the workload, the last write restores what was borrowed and
// releases the claim; the size and the template stay unchanged.
func abort(req Request, seen Observed, e *failure.Error) workload.NextAction {
	if seen.Claim != req.Claim {
		return workload.Fail(e)
	}
	w, notes := restoreWrite(seen, "fail")
	e.Message += notes
	if o := seen.Original; o != nil && o.Begun {
		e.Effect = &failure.Effect{Changed: o.Changed, Change: changeOf(req, seen)}
	}
	return workload.NextAction{Action: workload.ActWrite, Reason: e.Message, Write: w, Failure: e}
}

// takeOver restores what the previous holder borrowed and replaces its claim with this operation's, in one write. A
// copy of what it had left is removed instead.
func takeOver(req Request, seen Observed, reason string) workload.NextAction {
	w, _ := restoreWrite(seen, "take-over")
	w.Release, w.Claim, w.OnlyIfUnchanged = false, req.Claim, true
	if seen.Copied {
		w.Remove, w.Unlabel = slices.Clone(rollout.LeftAnnotations), []string{rollout.LabelStableRevision}
	}
	w.Remove = slices.DeleteFunc(w.Remove, func(name string) bool {
		return name == workload.AnnotationOriginal || name == workload.AnnotationClaimedBy
	})
	w.Annotations[workload.AnnotationOriginal] = Original{UID: seen.UID, Operation: req.Operation,
		BegunAt: seen.Now.UTC()}.String()
	return write(reason, w)
}

// restoreWrite returns the write that restores all borrowed settings and releases the claim. A setting that no longer
// has the borrowed value was changed by another client: it stays, and the notes report it.
func restoreWrite(seen Observed, step string) (w *workload.Write, notes string) {
	w = &workload.Write{Step: step, ExpectedClaim: seen.Claim, Release: true, Annotations: map[string]string{},
		Remove: []string{workload.AnnotationOriginal}}
	o := seen.Original
	if o == nil {
		return w, ""
	}
	var foreign []string
	for _, b := range o.Borrowed {
		switch now := seen.Settings[b.Path]; {
		case workload.SameJSON(now, b.Temporary):
			w.Settings = append(w.Settings, workload.Setting{Path: b.Path, Value: b.Own, Expected: now})
		case !workload.SameJSON(now, b.Own):
			foreign = append(foreign, b.Path)
		}
	}
	if len(foreign) > 0 {
		notes = fmt.Sprintf("; another client changed %s meanwhile, which is left unchanged",
			strings.Join(foreign, " and "))
	}
	markSize(seen, w)
	return w, notes
}

// markSize writes on the workload what a later START or STOP needs to know of its size (AnnotationReplicas,
// AnnotationLeftAt).
func markSize(seen Observed, w *workload.Write) {
	o := seen.Original
	if o.Size == nil {
		return
	}
	grows := o.Operation == plan.Start || o.Operation == plan.Restore && o.Target != nil && *o.Target > 0
	switch {
	case seen.Replicas == 0:
		w.Annotations[workload.AnnotationReplicas] = strconv.Itoa(int(*o.Size))
		w.Remove = append(w.Remove, workload.AnnotationLeftAt)
	case seen.resized(), grows && seen.Replicas >= *o.Size:
		w.Remove = append(w.Remove, workload.AnnotationReplicas, workload.AnnotationLeftAt)
	default:
		w.Annotations[workload.AnnotationReplicas] = strconv.Itoa(int(*o.Size))
		w.Annotations[workload.AnnotationLeftAt] = strconv.Itoa(int(seen.Replicas))
	}
}

// sizeOf returns the workload's size, nil for a kind without a size.
func sizeOf(req Request, seen Observed) *int32 {
	if !req.Workload.WorkloadRef.Sized() {
		return nil
	}
	return new(seen.Replicas)
}
