package workloadops

import (
	"fmt"
	"sort"

	"slipway.io/slipway/release/plan"
)

// goOnDeleting decides on a RESTART that deletes the pods itself. Only pods that were not made from the marked template are deleted, and only after the
// workload's controller has seen that template, so that no pod is restarted twice.
func goOnDeleting(req Request, seen Observed) Decision {
	if seen.lagging() {
		return wait(req, seen, "its controller has not seen the change yet")
	}
	if !seen.PodsSeen {
		return look("see which pods are still to be restarted")
	}
	old := oldPods(req, seen)
	next := old
	if req.Method == plan.Sequential {
		next = nextPod(seen, old)
	}
	if len(next) > 0 {
		return Decision{Action: ActDelete, Delete: next, Reason: fmt.Sprintf("delete %s, %d still to be restarted", names(next), len(old))}
	}
	if len(old) > 0 || onTheirWayOut(seen) > 0 || alive(seen) < seen.Replicas || !seen.ready() || unavailable(seen) > 0 {
		done := max(0, seen.Replicas-int32(len(old))-missing(seen))
		d := wait(req, seen, fmt.Sprintf("%s, %d of %d restarted", readyOf(seen), done, seen.Replicas))
		d.WatchPods = true
		return d
	}
	return ended(req, seen)
}

// oldPods are the pods still to be deleted, in the order in which they are taken: those that are not ready first, since taking them puts no further pod out
// (from the smallest ordinal, the order in which a StatefulSet makes them again); then from the largest ordinal, as a StatefulSet's own update does.
func oldPods(req Request, seen Observed) []Pod {
	var old []Pod
	for _, p := range seen.Pods {
		if p.Marker != req.Marker && !p.Deleting && !p.Finished {
			old = append(old, p)
		}
	}
	sort.Slice(old, func(i, j int) bool {
		a, b := old[i], old[j]
		switch {
		case a.Ready != b.Ready:
			return !a.Ready
		case a.Ordinal != b.Ordinal:
			return (a.Ordinal > b.Ordinal) == a.Ready
		}
		return a.Name < b.Name
	})
	return old
}

// nextPod is the one pod that SEQUENTIAL may take now, if any: one that is out already, else one of the ready ones when all the others are there and ready.
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
func alive(seen Observed) int32 {
	n := int32(0)
	for _, p := range seen.Pods {
		if !p.Deleting && !p.Finished {
			n++
		}
	}
	return n
}

func missing(seen Observed) int32 { return max(0, seen.Replicas-alive(seen)) }

func unavailable(seen Observed) int {
	n := 0
	for _, p := range seen.Pods {
		if !p.Available && !p.Deleting && !p.Finished {
			n++
		}
	}
	return n
}

func names(list []Pod) string {
	if len(list) == 1 {
		return "pod " + list[0].Name
	}
	return fmt.Sprintf("%d pods", len(list))
}
