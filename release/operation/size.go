package operation

import (
	"fmt"
	"slices"
	"strconv"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// beginStarting decides on the first step of START: to the remembered size, otherwise to the catalogue's.
func beginStarting(req Request, seen Observed) workload.NextAction {
	target, grow := startSize(req, seen)
	if !grow {
		if seen.ready() {
			return finish(req, seen, workload.Result{Message: "nothing to do: " + readyOf(seen)})
		}
		return write("it has pods already: wait until they are ready", claimWrite(req, seen, Original{}))
	}
	first := target
	if req.Method == plan.Sequential {
		first = seen.Replicas + 1
	}
	w := claimWrite(req, seen, Original{Size: new(target), Requested: new(first), Changed: true})
	w.Replicas, w.ExpectedReplicas = new(first), seen.Replicas
	return write(fmt.Sprintf("scale it from %d to %d%s", seen.Replicas, first, targetNote(first, target)), w)
}

// startSize returns the target size of START, and whether the workload is smaller. RefusalReason has made sure that
// there is one.
func startSize(req Request, seen Observed) (target int32, grow bool) {
	if n, ok := seen.rememberedSize(); ok {
		return n, true
	}
	if seen.Replicas > 0 {
		return seen.Replicas, false
	}
	return *req.Workload.Replicas, true
}

func step(seen Observed, size int32) *workload.Write {
	next := *seen.Original
	next.Requested = new(size)
	return &workload.Write{Step: "step", ExpectedClaim: seen.Claim, Replicas: next.Requested, ExpectedReplicas: seen.Replicas,
		Annotations: map[string]string{workload.AnnotationOriginal: next.String()}}
}

// targetNote returns a note on the final size, if it differs from the size that is set now.
func targetNote(now, target int32) string {
	if now == target {
		return ""
	}
	return fmt.Sprintf(", on the way to %d", target)
}

// readyOf reports how many of the requested pods are available, at most the size: "2 of 3 pods are ready".
func readyOf(seen Observed) string {
	return fmt.Sprintf("%d of %d pods are ready", min(seen.Available, seen.Replicas), seen.Replicas)
}

// beginStopping decides on the first step of STOP: scale to zero and remember the size.
func beginStopping(req Request, seen Observed) workload.NextAction {
	if seen.Replicas == 0 {
		if !seen.PodsSeen {
			return workload.Next(workload.ActReadPods, "its size is zero: check whether a pod is left")
		}
		if remainingPods(seen) == 0 {
			return finish(req, seen, workload.Result{Message: "nothing to do: it is stopped, no pod is left"})
		}
		return write("its size is zero: wait until its pods are deleted",
			claimWrite(req, seen, Original{Requested: new(int32(0))}))
	}
	size, half := seen.rememberedSize()
	if !half {
		size = seen.Replicas
	}
	first := int32(0)
	if req.Method == plan.Sequential {
		first = seen.Replicas - 1
	}
	w := claimWrite(req, seen, Original{Size: new(size), Requested: new(first), Changed: true})
	w.Replicas, w.ExpectedReplicas = new(first), seen.Replicas
	w.Annotations[workload.AnnotationReplicas] = strconv.Itoa(int(size))
	return write(fmt.Sprintf("scale it from %d to %d, remembering %d", seen.Replicas, first, size), w)
}

func continueStopping(req Request, seen Observed) workload.NextAction {
	o := seen.Original
	if o.Requested != nil && *o.Requested != seen.Replicas {
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: another client scaled it from %d to %d while it was being stopped: find out which one (an "+
				"autoscaler?), then stop it again",
			req.Workload, *o.Requested, seen.Replicas))
	}
	if seen.Lagging() || seen.Total > seen.Replicas || seen.terminating() {
		return waitForEnd(req, seen)
	}
	// The status may be outdated, or not count terminating pods: only the pods themselves are authoritative.
	if !seen.PodsSeen && (seen.Replicas == 0 || !countsTerminating(req, seen)) {
		return workload.Next(workload.ActReadPods, "check whether a pod is left")
	}
	if seen.PodsSeen && remainingPods(seen) > seen.Replicas {
		return waitForEnd(req, seen)
	}
	if seen.Replicas > 0 {
		next := seen.Replicas - 1
		return write(fmt.Sprintf("%s left: scale it from %d to %d", podsAre(seen.Replicas), seen.Replicas, next),
			step(seen, next))
	}
	message := "stopped: no pod is left"
	if !o.Changed {
		message = "nothing to do but wait: no pod is left"
	}
	return finish(req, seen, workload.Result{Message: message})
}

// countsTerminating reports whether the status counts terminating pods: a StatefulSet's total includes them; a
// Deployment has a separate number since Kubernetes 1.35.
func countsTerminating(req Request, seen Observed) bool {
	return req.ordered() || seen.Terminating != nil
}

// waitForEnd waits until the pods beyond the size are deleted. An ordered StatefulSet removes them one by one and stops
// at the first that is not ready: the engine then deletes the pods beyond the size itself.
func waitForEnd(req Request, seen Observed) workload.NextAction {
	ordered := req.ordered() && seen.OrderedReady && !seen.Lagging()
	if ordered && (req.Method == plan.Parallel || seen.Ready < seen.Total) {
		if !seen.PodsSeen {
			return workload.Next(workload.ActReadPods, "check which pods are left")
		}
		unready := slices.ContainsFunc(seen.Pods, func(p workload.Pod) bool { return p.Alive() && !p.Ready })
		if extra := beyondSize(seen); len(extra) > 0 && (req.Method == plan.Parallel || unready) {
			return deletePods(extra, "delete %s beyond the size of %d", podNames(extra), seen.Replicas)
		}
	}
	n := seen.Total
	if seen.Terminating != nil {
		n += *seen.Terminating
	}
	if seen.PodsSeen {
		n = remainingPods(seen)
	}
	d := wait(req, seen, fmt.Sprintf("%s left, %d should be", podsAre(n), seen.Replicas))
	d.WatchPods = d.WatchPods || seen.PodsSeen
	return d
}

// remainingPods returns the number of pods that still run or are terminating. Finished pods do not count: they remain
// as records, and no controller removes them.
func remainingPods(seen Observed) int32 {
	return seen.CountPods(func(p workload.Pod) bool { return !p.Finished })
}

// beyondSize returns the StatefulSet's pods beyond its size that are not terminating yet.
func beyondSize(seen Observed) []workload.Pod {
	return slices.DeleteFunc(slices.Clone(seen.Pods), func(p workload.Pod) bool {
		return !p.Alive() || p.Ordinal >= seen.FirstOrdinal && p.Ordinal < seen.FirstOrdinal+seen.Replicas
	})
}

// podsAre formats a number of pods with its verb: "1 pod is", "3 pods are".
func podsAre(n int32) string { return phrase.CountOf(int(n), "pod is", "pods are") }
