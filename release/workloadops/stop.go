package workloadops

import (
	"fmt"
	"slices"
	"strconv"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// beginStopping decides on the first step of STOP: down to zero, with the size remembered.
func beginStopping(req Request, seen Observed) NextAction {
	if seen.Replicas == 0 {
		if !seen.PodsSeen {
			return Next(ActLook, "its size is zero: see whether a pod is left")
		}
		if left(seen) == 0 {
			return finish(req, seen, Result{Message: "nothing to do: it is stopped, no pod is left"})
		}
		return write("its size is zero: wait until its pods are gone", hold(req, seen, Original{Asked: new(int32(0))}))
	}
	size, half := seen.remembered()
	if !half {
		size = seen.Replicas
	}
	first := int32(0)
	if req.Method == plan.Sequential {
		first = seen.Replicas - 1
	}
	w := hold(req, seen, Original{Size: new(size), Asked: new(first), Changed: true})
	w.Replicas, w.WasReplicas = new(first), seen.Replicas
	w.Annotations[AnnotationReplicas] = strconv.Itoa(int(size))
	return write(fmt.Sprintf("scale it from %d to %d, remembering %d", seen.Replicas, first, size), w)
}

func goOnStopping(req Request, seen Observed) NextAction {
	o := seen.Original
	if o.Asked != nil && *o.Asked != seen.Replicas {
		return abort(req, seen, failure.New(failure.WorkloadFailed,
			"%s: somebody else scaled it from %d to %d while it was being stopped: find out who does (an autoscaler?), then stop it again",
			req.Workload, *o.Asked, seen.Replicas))
	}
	if seen.Lagging() || seen.Total > seen.Replicas || seen.terminating() {
		return waitForEnd(req, seen)
	}
	// The status may be older than the last pod, or leave out those on their way out: the pods themselves have the last word.
	if !seen.PodsSeen && (seen.Replicas == 0 || !countsTerminating(req, seen)) {
		return Next(ActLook, "see whether a pod is left")
	}
	if seen.PodsSeen && left(seen) > seen.Replicas {
		return waitForEnd(req, seen)
	}
	if seen.Replicas > 0 {
		next := seen.Replicas - 1
		return write(fmt.Sprintf("%s left: scale it from %d to %d", pods(seen.Replicas), seen.Replicas, next), step(seen, next))
	}
	message := "stopped: no pod is left"
	if !o.Changed {
		message = "nothing to do but wait: no pod is left"
	}
	return finish(req, seen, Result{Message: message})
}

// countsTerminating says whether the status counts pods on their way out: a StatefulSet's total does, a Deployment's has a number of its
// own since Kubernetes 1.35.
func countsTerminating(req Request, seen Observed) bool {
	return req.Workload.WorkloadRef.Kind == KindStatefulSet || seen.Terminating != nil
}

// waitForEnd waits until the pods beyond the size are gone. A StatefulSet that keeps its order takes them down one by one, and stops at the
// first that is not ready: those that should go are then deleted here.
func waitForEnd(req Request, seen Observed) NextAction {
	ordered := req.Workload.WorkloadRef.Kind == KindStatefulSet && seen.OrderedReady && !seen.Lagging()
	if ordered && (req.Method == plan.Parallel || seen.Ready < seen.Total) {
		if !seen.PodsSeen {
			return Next(ActLook, "see which pods are left")
		}
		if extra := beyondSize(seen); len(extra) > 0 && (req.Method == plan.Parallel || unready(seen) > 0) {
			return deletePods(extra, "delete %s beyond the size of %d", names(extra), seen.Replicas)
		}
	}
	n := seen.Total
	if seen.Terminating != nil {
		n += *seen.Terminating
	}
	if seen.PodsSeen {
		n = left(seen)
	}
	d := wait(req, seen, fmt.Sprintf("%s left, %d should be", pods(n), seen.Replicas))
	d.WatchPods = d.WatchPods || seen.PodsSeen
	return d
}

// left is the number of pods that still run or are on their way out. Pods that have run to their end stay as records; nobody takes them
// away.
func left(seen Observed) int32 { return seen.CountPods(func(p Pod) bool { return !p.Finished }) }

func unready(seen Observed) int32 {
	return seen.CountPods(func(p Pod) bool { return p.Alive() && !p.Ready })
}

// beyondSize are a StatefulSet's pods that its size leaves no place for and that nobody is taking away yet.
func beyondSize(seen Observed) []Pod {
	return slices.DeleteFunc(slices.Clone(seen.Pods), func(p Pod) bool {
		return !p.Alive() || p.Ordinal >= seen.FirstOrdinal && p.Ordinal < seen.FirstOrdinal+seen.Replicas
	})
}

// pods says a number of pods with its verb: "1 pod is", "3 pods are".
func pods(n int32) string {
	if n == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", n)
}
