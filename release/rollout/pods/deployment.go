package pods

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Fields of a Deployment that a rollout borrows.
const (
	pathStrategy         = "/spec/strategy"
	pathMinReadySeconds  = "/spec/minReadySeconds"
	pathProgressDeadline = "/spec/progressDeadlineSeconds"
)

// The gate: pods that get ready serve, but never count as available, so that the Deployment's controller waits before it takes the next old one.
// The API server wants progressDeadlineSeconds to be above minReadySeconds.
var (
	gateMinReady = json.RawMessage("2147483646")
	gateDeadline = json.RawMessage("2147483647")
)

// deploymentStrategy is spec.strategy of a Deployment.
type deploymentStrategy struct {
	Type          string             `json:"type,omitempty"`
	RollingUpdate *deploymentRolling `json:"rollingUpdate,omitempty"`
}

type deploymentRolling struct {
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	MaxSurge       *intstr.IntOrString `json:"maxSurge,omitempty"`
}

func rolling(unavailable, surge int32) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%d,"maxUnavailable":%d}}`, surge, unavailable))
}

// limits are a strategy's limits in pods, as the Deployment's controller resolves them (both zero mean one unavailable). Recreate knows no
// limits: its pods are moved by a quarter at a time, which is Kubernetes' own default.
func limits(raw json.RawMessage, size int32) (unavailable, surge int32) {
	var s deploymentStrategy
	if absent(raw) || json.Unmarshal(raw, &s) != nil || s.Type == workloadops.UpdateRecreate || s.RollingUpdate == nil {
		return max(size/4, 1), 0
	}
	quarter := intstr.FromString("25%")
	u, g := &quarter, &quarter
	if s.RollingUpdate.MaxUnavailable != nil {
		u = s.RollingUpdate.MaxUnavailable
	}
	if s.RollingUpdate.MaxSurge != nil {
		g = s.RollingUpdate.MaxSurge
	}
	unavailable, surge = strategy.OwnLimits(*u, *g, size)
	return min(unavailable, size), surge
}

// deployment is what the three styles of a Deployment have in common.
type deployment struct{}

func (deployment) Pointers() []string {
	return []string{pathStrategy, pathMinReadySeconds, pathProgressDeadline}
}

func (deployment) ByPods() bool { return false }

func (deployment) untouched() bool { return false }

// Stable is the ReplicaSet of the live template, once every pod is of it.
func (deployment) Stable(seen Observed) (Revision, bool) {
	r, ok := seen.Made(seen.Template)
	if ok {
		return r, true
	}
	// A template that was defaulted anew since the ReplicaSet was made: the newest ReplicaSet that has all the pods is it.
	for i := len(seen.Revisions) - 1; i >= 0; i-- {
		if r := seen.Revisions[i]; r.Total == seen.Total && r.Total > 0 {
			return r, true
		}
	}
	return Revision{}, false
}

// Refuses a paused Deployment: its own update would never end.
func (deployment) Refuses(seen Observed) string {
	var paused bool
	_ = json.Unmarshal(seen.Settings[pathPaused], &paused)
	if paused {
		return "is paused: resume it with `kubectl rollout resume` first"
	}
	return ""
}

// pathPaused is read, never written.
const pathPaused = "/spec/paused"

// Home gives back what was saved; a type of Recreate comes last, since it would take all old pods down at once.
func (deployment) Home(seen Observed) (first, last []Setting) {
	for _, path := range []string{pathStrategy, pathMinReadySeconds, pathProgressDeadline} {
		own := seen.Saved.Settings[path]
		if path != pathStrategy {
			first = append(first, Setting{path, own})
			continue
		}
		var s deploymentStrategy
		if json.Unmarshal(own, &s) == nil && s.Type == workloadops.UpdateRecreate {
			unavailable, surge := limits(own, seen.Replicas)
			first, last = append(first, Setting{path, rolling(unavailable, surge)}), []Setting{{path, own}}
			continue
		}
		first = append(first, Setting{path, own})
	}
	return first, last
}

func (deployment) Unstick(Revision, Observed) Decision { return Decision{} }

// gated are the borrowed fields while pods move.
func gated(unavailable, surge int32) []Setting {
	return []Setting{{pathStrategy, rolling(unavailable, surge)}, {pathMinReadySeconds, gateMinReady}, {pathProgressDeadline, gateDeadline}}
}

// deploymentPartition replaces a Deployment's own pods: behind the gate no new pod counts as available, so that the controller stops at exactly
// as many new pods as maxUnavailable says.
type deploymentPartition struct{ deployment }

// Next lets the version aimed at grow by the workload's own maxUnavailable at a time; where that is 0, by its own maxSurge: surge, wait until those pods are
// ready, then raise maxUnavailable by them and take the surge back in one write. maxUnavailable never rises while the surge is up but in that write.
func (deploymentPartition) Next(t Task, seen Observed) Decision {
	unavailable, surge := currentLimits(seen)
	switch {
	case !t.Placed:
		return place(t, seen)
	case !sameJSON(seen.Settings[pathMinReadySeconds], gateMinReady):
		return Set("put the gate back, which somebody else has taken away", &Write{Step: "gate", Settings: changed(gated(max(t.Total, 1), 0), seen)})
	case t.Aim.Available > 0:
		// The gate has just been put on pods that were there before; until their ReplicaSet has seen it, more of the others would go than asked.
		return Wait("the gate is not in force yet")
	case surge > 0:
		return endSurge(t, seen, unavailable, surge)
	case asked(seen) > t.Size && unavailable < t.Total && t.Settled(): // it was halted between the two
		return exchange(t, seen)
	case asked(seen) > t.Size:
		return Wait("")
	case t.Total >= t.Target && unavailable <= max(t.Total, 1):
		return Done("")
	case t.Total < unavailable && t.Total < t.Target || !t.Settled():
		return Wait("")
	}
	return grow(t, seen)
}

// asked is how many pods all revisions together are to have.
func asked(seen Observed) int32 {
	n := int32(0)
	for _, r := range seen.Revisions {
		n += r.Asked
	}
	return n
}

// place sets the template together with the gate and the first pods' limits.
func place(t Task, seen Observed) Decision {
	if t.Target == 0 && t.Total == 0 || t.Request.Back && t.Total >= t.Target {
		return Done("no pod is to be moved yet")
	}
	if asked(seen) < t.Size {
		// A pod that somebody else's edit has just taken would come back as one more of the version aimed at.
		return Wait("its controller is still replacing a pod")
	}
	unavailable, surge := next(t, seen)
	if t.Aim.Available > 0 && surge == 0 {
		// Pods that count as available now, and do not once the gate is in force, must not make room for more than one.
		unavailable = 1
	} else if t.Aim.Available > 0 {
		unavailable = 0
	}
	template := t.Template
	return Set(growing(unavailable, surge), &Write{Step: "place", Settings: gated(unavailable, surge), Template: &template})
}

// grow asks for the next pods beyond those there are.
func grow(t Task, seen Observed) Decision {
	unavailable, surge := next(t, seen)
	return Set(growing(unavailable, surge), &Write{Step: "grow", Settings: changed(gated(unavailable, surge), seen)})
}

// next are the limits with which the next pods come.
func next(t Task, seen Observed) (unavailable, surge int32) {
	own, ownSurge := limits(seen.Saved.Settings[pathStrategy], t.Size)
	room, unready := max(t.Target-t.Total, 0), max(t.Total-t.Ready-t.Tolerated, 0)
	unavailable = t.Total
	if own >= 1 {
		unavailable += min(room, max(own-unready, 0))
	} else {
		surge = min(room, ownSurge)
	}
	if unavailable == 0 && surge == 0 {
		unavailable = 1
	}
	return unavailable, surge
}

func growing(unavailable, surge int32) string {
	if surge > 0 {
		return fmt.Sprintf("bring up %d pods of that version beside the others", surge)
	}
	return fmt.Sprintf("replace pods until %d are of that version", unavailable)
}

// endSurge waits until the surged pods are ready, and has as many of the others go.
func endSurge(t Task, seen Observed, unavailable, surge int32) Decision {
	complete := asked(seen) >= t.Size+surge || t.Aim.Asked >= t.Size
	if t.Total < max(unavailable, t.Aim.Asked) || !complete || !t.Settled() {
		return Wait("")
	}
	return exchange(t, seen)
}

// exchange has as many of the others go as there are pods beyond the workload's size.
func exchange(t Task, seen Observed) Decision {
	return Set(fmt.Sprintf("%d pods of that version are ready: as many of the others may go", t.Ready),
		&Write{Step: "exchange", Settings: changed(gated(max(t.Total, 1), 0), seen)})
}

// currentLimits are the limits that stand on the workload now; they are plain numbers, since this rollout wrote them.
func currentLimits(seen Observed) (unavailable, surge int32) {
	return limits(seen.Settings[pathStrategy], seen.Replicas)
}

// Rest leaves the gate only: one pod at a time. Any number up to that of the new pods holds the split, but when the workload is scaled down the new
// pods shrink with it, and only one is never above them. Where the gate stands it is ours to bring to rest, whatever the template is by now. Pods that were
// interrupted while they came beside the others stay there, and none may be out: the first of the others to go would be one that they do not yet stand in for.
func (deploymentPartition) Rest(t Task, seen Observed) []Setting {
	stands := sameJSON(seen.Settings[pathMinReadySeconds], gateMinReady)
	if !t.Placed && !stands {
		return nil
	}
	if _, surge := currentLimits(seen); stands && surge > 0 {
		return gated(0, surge)
	}
	return gated(1, 0)
}

// deploymentBlueGreen adds new pods and keeps every old one.
type deploymentBlueGreen struct{ deployment }

// Next surges by the step's number of pods, in one write.
func (deploymentBlueGreen) Next(t Task, seen Observed) Decision {
	_, surge := currentLimits(seen)
	switch {
	case !t.Placed && t.Target == 0:
		return Done("no pod is asked for yet")
	case !t.Placed, surge < t.Target:
		w := &Write{Step: "grow", Settings: changed(gated(0, max(t.Target, 1)), seen)}
		if !t.Placed {
			template := t.Template
			w.Template = &template
		}
		return Set(fmt.Sprintf("bring up %d new pods beside the others", t.Target), w)
	}
	return Done("")
}

// Rest changes nothing: no old pod goes while maxUnavailable is 0.
func (deploymentBlueGreen) Rest(Task, Observed) []Setting { return nil }

// deploymentExtra runs the new version in a second Deployment; the workload itself is not touched until the end.
type deploymentExtra struct{ deployment }

func (deploymentExtra) Pointers() []string { return nil }

func (deploymentExtra) untouched() bool { return true }

// Home has nothing to give back.
func (deploymentExtra) Home(Observed) (first, last []Setting) { return nil, nil }

// Rest changes nothing.
func (deploymentExtra) Rest(Task, Observed) []Setting { return nil }

// Next sees to the extra Deployment and its size, which only grows: a step back moves traffic, not pods.
func (deploymentExtra) Next(t Task, seen Observed) Decision {
	e, name := seen.Extra, t.Request.Workload.WorkloadRef.Name
	switch {
	case seen.Template != seen.Saved.StableTemplate:
		return Set("give the workload its stable template back", &Write{Step: "put-back", Template: &Template{Revision: seen.Saved.Stable}})
	case e == nil && t.Target == 0:
		return Done("no pod is asked for yet")
	case e == nil:
		size := t.Target
		return Decision{Action: ActExtra, Extra: &ExtraChange{Create: &size}, Reason: fmt.Sprintf("create %s with %d new pods", seen.Saved.CanaryWorkload, size)}
	case e.Of != CanaryOf(name):
		return failf(failure.Refused, "%s: a Deployment %s is there that is not this rollout's: delete or rename it, then retry", t.Request.Workload, e.Name)
	case e.Deleting:
		return Wait("its extra workload of before is being deleted")
	case e.Template != orElse(t.Request.Template, seen.Expected):
		if t.Request.PutBack {
			return Decision{Action: ActExtra, Extra: &ExtraChange{PutBack: true}, Reason: "give " + e.Name + " the rollout's template back"}
		}
		return driftOf(t.Request.Subject, "changed the pod template of "+e.Name, rollout.MoveResult{Replicas: t.Size, Target: t.Target, Updated: t.Total, UpdatedReady: t.Ready})
	case e.Replicas < t.Target:
		size := t.Target
		return Decision{Action: ActExtra, Extra: &ExtraChange{Replicas: &size}, Reason: fmt.Sprintf("grow %s from %d to %d new pods", e.Name, e.Replicas, size)}
	case e.lagging():
		return Wait("the controller of " + e.Name + " has not seen its last change yet")
	case t.Request.PutBack && !stableIsBack(seen):
		return Wait("its own controller is bringing the stable pods back")
	}
	return Done("")
}

// stableIsBack says whether the workload has its stable pods again after somebody's edit, as far as its own limits go: only then may a Service select them alone.
func stableIsBack(seen Observed) bool {
	stable, _ := seen.Find(seen.Saved.Stable)
	total, ready := seen.Count(stable)
	unavailable, _ := limits(seen.Settings[pathStrategy], seen.Replicas)
	return total >= seen.Replicas && ready >= seen.Replicas-unavailable
}

func (e Extra) lagging() bool { return e.ObservedGeneration < e.Generation }
