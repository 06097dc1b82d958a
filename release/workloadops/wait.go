package workloadops

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// wait decides between waiting on, freeing a stuck pod, and giving up: at the deadline, or earlier when a pod is in trouble that does not
// pass. progress says how far it is, like "2 of 3 pods are ready".
func wait(req Request, seen Observed, progress string) NextAction {
	deadline := time.Duration(req.DeadlineSeconds) * time.Second
	expired := seen.Elapsed >= deadline
	if expired && !seen.PodsSeen {
		return Next(ActLook, "the time is up: see what the pods say")
	}
	var again time.Duration
	if seen.PodsSeen {
		if stuck := stuckPods(req, seen); len(stuck) > 0 && !expired {
			return deletePods(stuck, "delete %s, which is stuck on an older template: a StatefulSet does not replace it by itself", names(stuck))
		}
		left, troubled := patienceLeft(req, seen, deadline)
		if expired || troubled && left <= 0 {
			spent := min(seen.Elapsed, deadline).Round(time.Second)
			return abort(req, seen, failure.New(failure.WorkloadFailed, "%s: %s after %d s: %s",
				req.Workload, progress, int64(spent/time.Second), why(req, seen)))
		}
		if reason := podReason(req, seen); reason != "" {
			progress += ": " + reason
		}
		again = left
	}
	return NextAction{Action: ActWait, Reason: progress + meanwhile(seen), LookAgain: again}
}

// patienceLeft is how long the pod whose trouble lasts longest may still have it, and whether there is such a pod.
func patienceLeft(req Request, seen Observed, deadline time.Duration) (left time.Duration, troubled bool) {
	for _, p := range seen.Pods {
		if !p.Stuck() || !counts(req, p) {
			continue
		}
		if own := seen.PatienceLeft(p, deadline); !troubled || own < left {
			left, troubled = own, true
		}
	}
	return left, troubled
}

// counts says whether a pod's trouble is the operation's: STOP takes every pod away, RESTART and the deploys those from before them.
func counts(req Request, p Pod) bool {
	switch {
	case req.stops():
		return false
	case req.replaces():
		return p.Marker == req.Marker
	default:
		return true
	}
}

// stuckPods are pods of an older template that are in lasting trouble and that a StatefulSet which keeps its order would wait for without
// end. They are out already, so that taking them puts no further pod out; one at a time is taken.
func stuckPods(req Request, seen Observed) []Pod {
	if req.Workload.WorkloadRef.Kind != KindStatefulSet || req.stops() || !seen.OrderedReady || seen.Lagging() ||
		seen.Revision == "" || seen.UpdateType != UpdateRolling || onTheirWayOut(seen) > 0 {
		return nil
	}
	stuck := slices.DeleteFunc(slices.Clone(seen.Pods), func(p Pod) bool {
		return !p.Stuck() || p.Revision == "" || p.Revision == seen.Revision || p.Ordinal < seen.FirstOrdinal+seen.Partition
	})
	slices.SortFunc(stuck, func(a, b Pod) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return stuck[:min(1, len(stuck))]
}

func deletePods(list []Pod, format string, args ...any) NextAction {
	return NextAction{Action: ActDelete, Delete: list, Reason: fmt.Sprintf(format, args...)}
}

// heldUp waits for a PodDisruptionBudget that keeps pods from being taken: within the deadline, which names it when it has passed. A pod that
// does not serve is not held up.
func heldUp(req Request, seen Observed, d NextAction) NextAction {
	progress := fmt.Sprintf("%s, %s still to go", readyOf(seen), names(d.Delete))
	next := wait(req, seen, progress)
	if next.Action == ActWait {
		next.Reason, next.LookAgain, next.WatchPods = progress+": "+seen.HeldUp, AskAgain, true
	}
	return next
}

// why is the best explanation that can be given: a pod's own word, else the workload's, else where to look.
func why(req Request, seen Observed) string {
	if seen.HeldUp != "" {
		return seen.HeldUp
	}
	if reason := podReason(req, seen); reason != "" {
		return reason + meanwhile(seen)
	}
	if seen.Trouble != "" {
		return "its pods cannot be created: " + seen.Trouble + meanwhile(seen)
	}
	if note := meanwhile(seen); note != "" {
		return note[2:]
	}
	if seen.Lagging() {
		return "its controller has not looked at the change: is kube-controller-manager running?"
	}
	return "no pod says why: look at `kubectl describe` of it"
}

// podReason is the word of the pod that is in the worst trouble.
func podReason(req Request, seen Observed) string {
	return WorstPod(seen.Pods, func(p Pod) int { return rank(req, p) })
}

// rank orders pods by how much they explain: trouble of pods that count first.
func rank(req Request, p Pod) int {
	r := int(p.trouble()) * 2
	if counts(req, p) {
		r++
	}
	if req.stops() && p.Deleting {
		r += 10
	}
	return r
}

// meanwhile says what somebody set meanwhile that keeps the workload from moving.
func meanwhile(seen Observed) string {
	switch {
	case seen.Original == nil || seen.Original.Operation == plan.Start || seen.Original.Operation == plan.Stop:
		return ""
	case seen.Paused:
		return "; somebody paused it meanwhile: `kubectl rollout resume` lets it go on"
	case seen.UpdateType == UpdateRolling && seen.Partition > 0:
		return fmt.Sprintf("; somebody set its partition to %d meanwhile: 0 lets it go on", seen.Partition)
	}
	return ""
}
