package pods

import (
	"cmp"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Fields of a Deployment that a rollout borrows.
const (
	pathStrategy         = "/spec/strategy"
	pathMinReadySeconds  = "/spec/minReadySeconds"
	pathProgressDeadline = "/spec/progressDeadlineSeconds"
	// pathPaused is read, never written.
	pathPaused = "/spec/paused"
)

// The gate: pods that get ready serve, but never count as available, so that the Deployment's controller waits before it takes the next old
// one. The API server wants progressDeadlineSeconds to be above minReadySeconds.
var (
	gateMinReady = json.RawMessage("2147483646")
	gateDeadline = json.RawMessage("2147483647")
)

func rolling(unavailable, surge int32) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%d,"maxUnavailable":%d}}`, surge, unavailable))
}

// recreates says whether a strategy takes all old pods down before new ones come up.
func recreates(raw json.RawMessage) bool {
	var s appsv1.DeploymentStrategy
	return json.Unmarshal(raw, &s) == nil && s.Type == workloadops.UpdateRecreate
}

// limits are a strategy's limits in pods, as the Deployment's controller resolves them (both zero mean one unavailable). Recreate knows no
// limits: its pods are moved by a quarter at a time, which is Kubernetes' own default.
func limits(raw json.RawMessage, size int32) (unavailable, surge int32) {
	var s appsv1.DeploymentStrategy
	if workloadops.AbsentJSON(raw) || json.Unmarshal(raw, &s) != nil || s.Type == workloadops.UpdateRecreate || s.RollingUpdate == nil {
		return max(size/4, 1), 0
	}
	quarter := intstr.FromString("25%")
	unavailable, surge = strategy.OwnLimits(*cmp.Or(s.RollingUpdate.MaxUnavailable, &quarter), *cmp.Or(s.RollingUpdate.MaxSurge, &quarter),
		size)
	return min(unavailable, size), surge
}

type deployment struct{ inPlace }

func (deployment) Pointers() []string {
	return []string{pathStrategy, pathMinReadySeconds, pathProgressDeadline}
}

// stable is the ReplicaSet of the live template, once every pod is of it.
func (deployment) stable(seen Observed) (Revision, bool) {
	r, ok := seen.Made(seen.Template)
	if ok {
		return r, true
	}
	// A template that was defaulted anew since the ReplicaSet was made: the newest ReplicaSet that has all the pods is it.
	return seen.newest(func(r Revision) bool { return r.Total == seen.Total && r.Total > 0 })
}

// refuses a paused Deployment: its own update would never end.
func (deployment) refuses(seen Observed) string {
	if string(seen.Settings[pathPaused]) == "true" {
		return "is paused: resume it with `kubectl rollout resume` first"
	}
	return ""
}

// home gives back what was saved; a type of Recreate comes last, since it would take all old pods down at once.
func (k deployment) home(seen Observed) (first, last []workloadops.Setting) {
	for _, path := range k.Pointers() {
		first = append(first, workloadops.Setting{Path: path, Value: seen.own(path)})
	}
	if own := seen.own(pathStrategy); recreates(own) {
		first[0].Value, last = rolling(limits(own, seen.Replicas)), []workloadops.Setting{first[0]}
	}
	return first, last
}

// gate keeps pods that get ready from counting as available.
var gate = workloadops.Setting{Path: pathMinReadySeconds, Value: gateMinReady}

// gated are the borrowed fields while pods move.
func gated(unavailable, surge int32) []workloadops.Setting {
	return []workloadops.Setting{{Path: pathStrategy, Value: rolling(unavailable, surge)}, gate,
		{Path: pathProgressDeadline, Value: gateDeadline}}
}

// deploymentPartition replaces a Deployment's own pods: behind the gate its controller stops at as many new pods as maxUnavailable says.
type deploymentPartition struct{ deployment }

// next lets the version aimed at grow by the workload's own maxUnavailable at a time; where that is 0, by its maxSurge: surge, wait until
// those pods are ready, then raise maxUnavailable by them and take the surge back in one write. maxUnavailable never rises while the surge
// is up but in that write.
func (deploymentPartition) next(t task, seen Observed) NextAction {
	unavailable, surge := currentLimits(seen)
	switch {
	case !t.Placed:
		return place(t, seen)
	case !seen.has(gate):
		return set("put the gate back, which somebody else has taken away", t.write("gate", seen.changed(gated(max(t.Total, 1), 0)...)))
	case t.Aim.Available > 0:
		// The gate has just been put on pods that were there before; until their ReplicaSet has seen it, more of the others would go than asked.
		return wait("the gate is not in force yet")
	case surge > 0:
		return endSurge(t, seen, unavailable, surge)
	case asked(seen) > t.Size && unavailable < t.Total && t.settled(): // it was halted between the two
		return exchange(t, seen)
	case asked(seen) > t.Size:
		return wait("")
	case t.Total >= t.Target && unavailable <= max(t.Total, 1):
		return done("")
	case t.Total < unavailable && t.Total < t.Target || !t.settled():
		return wait("")
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
func place(t task, seen Observed) NextAction {
	if t.Target == 0 && t.Total == 0 || t.Request.Back && t.Total >= t.Target {
		return done("no pod is to be moved yet")
	}
	if asked(seen) < t.Size {
		// A pod that somebody else's edit has just taken would come back as one more of the version aimed at.
		return wait("its controller is still replacing a pod")
	}
	unavailable, surge := nextLimits(t, seen)
	if t.Aim.Available > 0 && surge == 0 {
		// Pods that count as available now, and do not once the gate is in force, must not make room for more than one.
		unavailable = 1
	} else if t.Aim.Available > 0 {
		unavailable = 0
	}
	return set(growing(unavailable, surge), t.write("place", gated(unavailable, surge)))
}

func grow(t task, seen Observed) NextAction {
	unavailable, surge := nextLimits(t, seen)
	return set(growing(unavailable, surge), t.write("grow", seen.changed(gated(unavailable, surge)...)))
}

// nextLimits are the limits with which the next pods come.
func nextLimits(t task, seen Observed) (unavailable, surge int32) {
	own, ownSurge := limits(seen.own(pathStrategy), t.Size)
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
func endSurge(t task, seen Observed, unavailable, surge int32) NextAction {
	complete := asked(seen) >= t.Size+surge || t.Aim.Asked >= t.Size
	if t.Total < max(unavailable, t.Aim.Asked) || !complete || !t.settled() {
		return wait("")
	}
	return exchange(t, seen)
}

// exchange has as many of the others go as there are pods beyond the workload's size.
func exchange(t task, seen Observed) NextAction {
	return set(fmt.Sprintf("%d pods of that version are ready: as many of the others may go", t.Ready),
		t.write("exchange", seen.changed(gated(max(t.Total, 1), 0)...)))
}

// currentLimits are the limits that stand on the workload now; they are plain numbers, since this rollout wrote them.
func currentLimits(seen Observed) (unavailable, surge int32) {
	return limits(seen.Settings[pathStrategy], seen.Replicas)
}

// rest leaves the gate only: one pod at a time. More would hold the split too, but the new pods shrink when the workload is scaled down,
// and only one is never above them. Where the gate stands it is ours to bring to rest, whatever the template is. Beside interrupted pods
// that surge none may be out: the first to go would be one that they do not stand in for yet.
func (deploymentPartition) rest(t task, seen Observed) []workloadops.Setting {
	stands := seen.has(gate)
	if !t.Placed && !stands {
		return nil
	}
	if _, surge := currentLimits(seen); stands && surge > 0 {
		return gated(0, surge)
	}
	return gated(1, 0)
}

// deploymentBlueGreen adds new pods and keeps every old one: at rest none goes, while maxUnavailable is 0.
type deploymentBlueGreen struct{ deployment }

// next surges by the step's number of pods, in one write.
func (deploymentBlueGreen) next(t task, seen Observed) NextAction {
	_, surge := currentLimits(seen)
	switch {
	case !t.Placed && t.Target == 0:
		return done("no pod is asked for yet")
	case !t.Placed, surge < t.Target:
		return set(fmt.Sprintf("bring up %d new pods beside the others", t.Target), t.write("grow", seen.changed(gated(0, max(t.Target, 1))...)))
	}
	return done("")
}

// deploymentExtra runs the new version in a second Deployment; the workload itself is not touched until the end.
type deploymentExtra struct{ deployment }

func (deploymentExtra) Pointers() []string { return nil }

func (deploymentExtra) untouched() bool { return true }

// home has nothing to give back.
func (deploymentExtra) home(Observed) (first, last []workloadops.Setting) { return nil, nil }

// next sees to the extra Deployment and its size, which only grows: a step back moves traffic, not pods.
func (deploymentExtra) next(t task, seen Observed) NextAction {
	e, w := seen.Extra, t.Request.Workload
	switch {
	case seen.Template != seen.Saved.StableTemplate:
		return set("give the workload its stable template back",
			&workloadops.Write{Step: "put-back", Template: &workloadops.Template{Revision: seen.Saved.Stable}})
	case e == nil && t.Target == 0:
		return done("no pod is asked for yet")
	case e == nil:
		return changeExtra(ExtraChange{Create: &t.Target}, "create %s with %d new pods", seen.Saved.CanaryWorkload, t.Target)
	case e.Of != strategy.CanaryOf(w.WorkloadRef.Name):
		return failf(failure.Refused, "%s: a Deployment %s is there that is not this rollout's: delete or rename it, then retry", w, e.Name)
	case e.Deleting:
		return wait("its extra workload of before is being deleted")
	case e.Template != cmp.Or(t.Request.Template, seen.Expected) && t.Request.PutBack:
		return changeExtra(ExtraChange{PutBack: true}, "give %s the rollout's template back", e.Name)
	case e.Template != cmp.Or(t.Request.Template, seen.Expected):
		return drift(t.Request.Subject, "changed the pod template of "+e.Name)
	case e.Replicas < t.Target:
		return changeExtra(ExtraChange{Replicas: &t.Target}, "grow %s from %d to %d new pods", e.Name, e.Replicas, t.Target)
	case e.Lagging():
		return wait("the controller of " + e.Name + " has not seen its last change yet")
	case t.Request.PutBack && !stableIsBack(seen):
		return wait("its own controller is bringing the stable pods back")
	}
	return done("")
}

// stableIsBack says whether the stable pods are back after somebody's edit, within the workload's limits: then a Service may select them.
func stableIsBack(seen Observed) bool {
	stable, _ := seen.Find(seen.Saved.Stable)
	total, ready := seen.Count(stable)
	unavailable, _ := currentLimits(seen)
	return total >= seen.Replicas && ready >= seen.Replicas-unavailable
}
