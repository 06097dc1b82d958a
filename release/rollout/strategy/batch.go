package strategy

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
)

// Target returns how many of size pods are new after a step with these replicas: a number, or a percentage rounded up.
// A percentage below 100 % always keeps one stable pod, unless the workload has only one pod, or has an extra workload
// beside all stable ones. The result is between 0 and size.
func Target(style Style, replicas intstr.IntOrString, size int32) int32 {
	if size <= 0 {
		return 0
	}
	target := min(podsOf(replicas, size, true), size)
	if style != StyleCanary && isPercent(replicas) && !isAllPods(replicas) && size > 1 {
		target = min(target, size-1)
	}
	return target
}

// RollbackTarget returns how many pods are back at the stable version after a step with these replicas, in a rollback
// in batches. from is the number of pods that were new when the rollback began. replicas is a number, or a percentage
// of from rounded up; the result is at most from. Finalising rolls back the remaining pods after the last step.
func RollbackTarget(replicas intstr.IntOrString, from int32) int32 {
	from = max(from, 0)
	return min(podsOf(replicas, from, true), from)
}

// ResolveLimits converts a workload's maxUnavailable and maxSurge to numbers of pods, as the native controllers do: a
// percentage of maxUnavailable is rounded down, one of maxSurge up. If both are 0, one pod may be unavailable, because
// otherwise the update would never progress.
func ResolveLimits(maxUnavailable, maxSurge intstr.IntOrString, size int32) (unavailable, surge int32) {
	size = max(size, 0)
	unavailable, surge = podsOf(maxUnavailable, size, false), podsOf(maxSurge, size, true)
	if unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return unavailable, surge
}

// ToleratedUnready returns how many of the target's new pods may be unready while the step still counts as complete: a
// number, or a percentage rounded up. At least one pod has to be ready if target is positive. Without a threshold, no
// pod may be unready.
func ToleratedUnready(threshold *intstr.IntOrString, target int32) int32 {
	if threshold == nil || target <= 0 {
		return 0
	}
	return min(podsOf(*threshold, target, true), target-1)
}

// PodsRoundedUp returns a number of pods unchanged, or a percentage of total rounded up.
func PodsRoundedUp(n intstr.IntOrString, total int32) int32 { return podsOf(n, total, true) }

// podsOf returns a number unchanged, or a percentage of total; never negative. An invalid percentage yields 0; the
// decoder refuses such text.
func podsOf(n intstr.IntOrString, total int32, roundUp bool) int32 {
	pods, err := intstr.GetScaledValueFromIntOrPercent(&n, int(total), roundUp)
	if err != nil {
		return 0
	}
	return int32(min(max(pods, 0), math.MaxInt32))
}

func isPercent(n intstr.IntOrString) bool { return n.Type == intstr.String }

// isAllPods reports whether n is a percentage that covers all pods.
func isAllPods(n intstr.IntOrString) bool { return isPercent(n) && podsOf(n, 100, true) >= 100 }

// Warnings returns a sentence for each step that is legal for a workload of this size but probably not intended: a step
// of the partition style that requests a part of the pods but replaces all of them leaves no stable pod to compare
// with. Examples: 20 % of 1 pod; 5 of 2 pods.
func (s Strategy) Warnings(w catalog.Workload, size int32) []string {
	if s.Style != StylePartition || size <= 0 {
		return nil
	}
	var out []string
	for i, step := range s.Steps {
		requested := podsOf(step.Replicas, size, true)
		all := isAllPods(step.Replicas) || !isPercent(step.Replicas) && requested == size && i == len(s.Steps)-1
		if all || Target(s.Style, step.Replicas, size) < size {
			continue
		}
		out = append(out, fmt.Sprintf("step %d of %d asks for %s and replaces every pod, since %s has %s: no stable "+
			"pod is left for an immediate rollback; give the workload more pods, or use an extra workload "+
			"(enableExtraWorkloadForCanary) or blue-green", i+1, len(s.Steps), step.Replicas.String(), w,
			phrase.Count(int(size), "pod")))
	}
	return out
}
