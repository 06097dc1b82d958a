package operation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// wait decides whether to wait, to delete a stuck pod, or to fail: at the deadline, or earlier if a pod has a problem
// that does not pass. progress describes how far the operation is: "2 of 3 pods are ready".
func wait(req Request, seen Observed, progress string) workload.NextAction {
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
		next.Reason, next.RecheckAfter, next.WatchPods = progress+": "+seen.BlockedByBudget, workload.BudgetRetryInterval, true
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
	case reason != "":
		return reason + note
	case seen.CreationProblem != "":
		return "its pods cannot be created: " + seen.CreationProblem + note
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
