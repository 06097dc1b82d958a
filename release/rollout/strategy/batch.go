package strategy

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Target is how many of size pods are new after a step that asks for replicas: a number, or a share rounded up. A share below 100 % never takes
// the last stable pod; the only pod it takes. It is at least 0 and at most the size.
func Target(replicas intstr.IntOrString, size int32) int32 {
	if size <= 0 {
		return 0
	}
	target := min(podsOf(replicas, size, up), size)
	if isShare(replicas) && shareOf(replicas) < 100 && size > 1 {
		target = min(target, size-1)
	}
	return target
}

// BackTarget is how many of the pods that were new when a rollback in batches began (from) are back at the stable version after a step that asks
// for replicas: a share of them rounded up, or a number, at most all of them. After the last step finalising takes the rest.
func BackTarget(replicas intstr.IntOrString, from int32) int32 {
	from = max(from, 0)
	return min(podsOf(replicas, from, up), from)
}

// OwnLimits are a workload's own maxUnavailable and maxSurge in pods, as the native controllers resolve them: a share of the former is rounded
// down, of the latter up; when both come to 0 one pod may be unavailable, since nothing would ever move.
func OwnLimits(maxUnavailable, maxSurge intstr.IntOrString, size int32) (unavailable, surge int32) {
	size = max(size, 0)
	unavailable, surge = podsOf(maxUnavailable, size, down), podsOf(maxSurge, size, up)
	if unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return unavailable, surge
}

// Tolerated is how many of the target's new pods may be unready for a step to count as done: a number, or a share rounded up; at least one pod
// has to be ready where there is to be any. No threshold tolerates none.
func Tolerated(threshold *intstr.IntOrString, target int32) int32 {
	if threshold == nil || target <= 0 {
		return 0
	}
	return min(podsOf(*threshold, target, up), target-1)
}

// ShareUp is a number of pods as it is, or a share of the whole rounded up.
func ShareUp(n intstr.IntOrString, whole int32) int32 { return podsOf(n, whole, up) }

type rounding bool

const (
	down rounding = false
	up   rounding = true
)

// podsOf is a number as it is, or a share of the whole; never negative. The arithmetic is in whole numbers, so that 7 % of 100 is exactly 7.
func podsOf(n intstr.IntOrString, whole int32, round rounding) int32 {
	if !isShare(n) {
		return max(n.IntVal, 0)
	}
	scaled := int64(shareOf(n)) * int64(whole)
	if round == up {
		scaled += 99
	}
	return int32(min(max(scaled/100, 0), math.MaxInt32))
}

func isShare(n intstr.IntOrString) bool { return n.Type == intstr.String }

// shareOf is N of "N%"; what is no share is none. Decoding lets no such text through.
func shareOf(n intstr.IntOrString) int32 {
	value, err := strconv.ParseInt(strings.TrimSuffix(n.StrVal, "%"), 10, 32)
	if err != nil {
		return 0
	}
	return int32(max(value, 0))
}
