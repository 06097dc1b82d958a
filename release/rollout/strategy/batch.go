package strategy

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
)

// Target is how many of size pods are new after a step that asks for replicas: a number, or a share rounded up. A share below 100 % always
// keeps one stable pod, unless the workload has only one. It is at least 0 and at most the size.
func Target(replicas intstr.IntOrString, size int32) int32 {
	if size <= 0 {
		return 0
	}
	target := min(podsOf(replicas, size, true), size)
	if isShare(replicas) && !isWhole(replicas) && size > 1 {
		target = min(target, size-1)
	}
	return target
}

// BackTarget is how many of the pods that were new when a rollback in batches began (from) are back at the stable version after a step that
// asks for replicas: a share of them rounded up, or a number, at most all of them. After the last step finalising takes the rest.
func BackTarget(replicas intstr.IntOrString, from int32) int32 {
	from = max(from, 0)
	return min(podsOf(replicas, from, true), from)
}

// OwnLimits are a workload's own maxUnavailable and maxSurge in pods, as the native controllers resolve them: a share of the former is
// rounded down, of the latter up; when both come to 0 one pod may be unavailable, since nothing would ever move.
func OwnLimits(maxUnavailable, maxSurge intstr.IntOrString, size int32) (unavailable, surge int32) {
	size = max(size, 0)
	unavailable, surge = podsOf(maxUnavailable, size, false), podsOf(maxSurge, size, true)
	if unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return unavailable, surge
}

// Tolerated is how many of the target's new pods may be unready for a step to count as done: a number, or a share rounded up; at least one
// pod has to be ready where there is to be any. No threshold tolerates none.
func Tolerated(threshold *intstr.IntOrString, target int32) int32 {
	if threshold == nil || target <= 0 {
		return 0
	}
	return min(podsOf(*threshold, target, true), target-1)
}

// ShareUp is a number of pods as it is, or a share of the whole rounded up.
func ShareUp(n intstr.IntOrString, whole int32) int32 { return podsOf(n, whole, true) }

// podsOf is a number as it is, or a share of the whole; never negative. What is no share is none: decoding lets no such text through.
func podsOf(n intstr.IntOrString, whole int32, roundUp bool) int32 {
	pods, err := intstr.GetScaledValueFromIntOrPercent(&n, int(whole), roundUp)
	if err != nil {
		return 0
	}
	return int32(min(max(pods, 0), math.MaxInt32))
}

func isShare(n intstr.IntOrString) bool { return n.Type == intstr.String }

// isWhole says whether a share is of all pods.
func isWhole(n intstr.IntOrString) bool { return isShare(n) && podsOf(n, 100, true) >= 100 }

// Warnings are sentences on steps that are legal for a workload of that size but probably not meant: a step in place that asks for a part
// of the pods and gets all of them leaves no stable pod to compare with. 20 % of 1 pod is that pod; 5 of 2 pods are both.
func (s Strategy) Warnings(w catalog.Workload, size int32) []string {
	if s.Style != StylePartition || size <= 0 {
		return nil
	}
	var out []string
	for i, step := range s.Steps {
		asked := podsOf(step.Replicas, size, true)
		all := isWhole(step.Replicas) || !isShare(step.Replicas) && asked == size && i == len(s.Steps)-1
		if all || Target(step.Replicas, size) < size {
			continue
		}
		out = append(out, fmt.Sprintf("step %d of %d asks for %s and replaces every pod, since %s has %s: no stable pod is left to go back to "+
			"at once; give the workload more pods, or use an extra workload (enableExtraWorkloadForCanary) or blue-green",
			i+1, len(s.Steps), step.Replicas.String(), w, Plural(int(size), "pod", "pods")))
	}
	return out
}

// Plural counts things in a sentence: "1 pod", "2 pods".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
