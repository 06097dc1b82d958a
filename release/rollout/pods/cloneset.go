package pods

import (
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// cloneSetBlueGreen adds new pods to a CloneSet and keeps every old one: a surge, behind the gate that keeps new pods from counting as
// available.
type cloneSetBlueGreen struct{ partitioned }

func (cloneSetBlueGreen) Pointers() []string {
	return []string{pathUpdateStrategy, pathMinReadySeconds}
}

// next surges by the step's number of pods, in one write. A CloneSet's controller never surges by more pods than are still to be updated,
// so that the new pods can grow to a number beyond that only at once: what it could not do is refused before it is written.
func (k cloneSetBlueGreen) next(t task, seen Observed) NextAction {
	if !t.Placed && t.Target == 0 {
		return done("no pod is asked for yet")
	}
	if t.Total >= t.Target && t.Placed {
		return done("")
	}
	surge := withFields(seen.own(pathUpdateStrategy), map[string]any{"partition": 0, "maxSurge": t.Target, "maxUnavailable": 0})
	w := t.write("grow", seen.changed(workloadops.Setting{Path: pathUpdateStrategy, Value: surge}, gate))
	switch {
	case empty(w):
		return wait("")
	case len(w.Settings) > 0 && t.Placed && t.Total > 0 && t.Total+t.Target > t.Size:
		return failf(failure.Refused, "%s: with %d of %d pods new, a CloneSet does not surge to %d, only to %d: a blue-green of a CloneSet "+
			"grows beyond a half only in its first step. Roll back, then begin with a step of that size",
			t.Request.Workload, t.Total, t.Size, t.Target, max(t.Size-t.Total, t.Total))
	}
	return set(fmt.Sprintf("bring up %d new pods beside the others", t.Target), w)
}

// rest changes nothing: no old pod goes for those that come beside it.
func (cloneSetBlueGreen) rest(task, Observed) []workloadops.Setting { return nil }

// home gives the strategy back and opens the gate.
func (k cloneSetBlueGreen) home(seen Observed) (first, last []workloadops.Setting) {
	first, last = k.partitioned.home(seen)
	return append(first, workloadops.Setting{Path: pathMinReadySeconds, Value: seen.own(pathMinReadySeconds)}), last
}

// RefusesSteps says which step a workload of so many pods cannot make, and why; "" when it can make all of them.
func RefusesSteps(tech Technique, steps []strategy.Step, size int32) (step int, reason string) {
	if _, ok := tech.(cloneSetBlueGreen); !ok {
		return 0, ""
	}
	before := int32(0)
	for i, s := range steps {
		target := strategy.Target(s.Replicas, size)
		if before > 0 && target > before && before+target > size {
			return i, fmt.Sprintf("a CloneSet with %d of %d pods new does not surge to %d: beyond a half a blue-green of it grows in its first "+
				"step only. Begin with %s, or keep every step at or below a half", before, size, target, s.Replicas.String())
		}
		before = max(before, target)
	}
	return 0, ""
}
