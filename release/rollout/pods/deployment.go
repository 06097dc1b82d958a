package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
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
	pathPaused           = "/spec/paused"
	pathHistory          = "/spec/revisionHistoryLimit"
)

// The gate: pods that get ready serve, but never count as available, so that the Deployment's controller waits before it takes the next old
// one. The API server wants progressDeadlineSeconds to be above minReadySeconds.
var (
	gateMinReady = json.RawMessage("2147483646")
	gateDeadline = json.RawMessage("2147483647")
)

func rolling(unavailable, surge int32) json.RawMessage {
	return rollingShare(intstr.FromInt32(unavailable), surge)
}

func rollingShare(unavailable intstr.IntOrString, surge int32) json.RawMessage {
	share, _ := json.Marshal(unavailable)
	return json.RawMessage(fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%d,"maxUnavailable":%s}}`, surge, share))
}

// recreates says whether a strategy takes all old pods down before new ones come up.
func recreates(raw json.RawMessage) bool {
	var s appsv1.DeploymentStrategy
	return json.Unmarshal(raw, &s) == nil && s.Type == workloadops.UpdateRecreate
}

// rollingUpdateOf are the limits of a strategy; what it does not say is a quarter, Kubernetes' own default.
func rollingUpdateOf(raw json.RawMessage) appsv1.RollingUpdateDeployment {
	quarter := intstr.FromString("25%")
	var s appsv1.DeploymentStrategy
	if workloadops.AbsentJSON(raw) || json.Unmarshal(raw, &s) != nil || s.RollingUpdate == nil {
		none := intstr.FromInt32(0)
		return appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &none}
	}
	return appsv1.RollingUpdateDeployment{MaxUnavailable: cmp.Or(s.RollingUpdate.MaxUnavailable, &quarter),
		MaxSurge: cmp.Or(s.RollingUpdate.MaxSurge, &quarter)}
}

// limits are a strategy's limits in pods, as the Deployment's controller resolves them (both zero mean one unavailable). Recreate knows no
// limits: its pods are moved by a quarter at a time, without a surge.
func limits(raw json.RawMessage, size int32) (unavailable, surge int32) {
	u := rollingUpdateOf(raw)
	unavailable, surge = strategy.OwnLimits(*u.MaxUnavailable, *u.MaxSurge, size)
	return min(unavailable, size), surge
}

type deployment struct{ inPlace }

func (deployment) Pointers() []string {
	return []string{pathStrategy, pathMinReadySeconds, pathProgressDeadline, pathPaused, pathHistory}
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
	if paused(seen) {
		return "is paused: resume it with `kubectl rollout resume` first"
	}
	return ""
}

func paused(seen Observed) bool { return string(seen.Settings[pathPaused]) == "true" }

// home gives back what was saved; a type of Recreate comes last, since it would take all old pods down at once.
func (k deployment) home(seen Observed) (first, last []workloadops.Setting) {
	for _, path := range k.Pointers() {
		if _, saved := seen.Saved.Settings[path]; saved || path == pathPaused { // an earlier version of Slipway has saved fewer
			first = append(first, workloadops.Setting{Path: path, Value: seen.own(path)})
		}
	}
	if own := seen.own(pathStrategy); recreates(own) {
		first[0].Value, last = rolling(limits(own, seen.Replicas)), []workloadops.Setting{first[0]}
	}
	return first, last
}

// gate keeps pods that get ready from counting as available.
var gate = workloadops.Setting{Path: pathMinReadySeconds, Value: gateMinReady}

// moving are the borrowed fields while pods move, but for the pause.
func moving(unavailable, surge int32, seen Observed) []workloadops.Setting {
	return []workloadops.Setting{{Path: pathStrategy, Value: rolling(unavailable, surge)}, gate, {Path: pathProgressDeadline, Value: gateDeadline}, history(seen)}
}

// resting are the borrowed fields at rest, when nothing that could move a pod may stand on the workload: it is paused, and all else is its
// own. Only its surge is the number of pods that stand beyond its size, since a paused Deployment is scaled to its size and its surge; and
// its type stays RollingUpdate, since one that is Recreate is not scaled while it is paused.
func resting(surge int32, seen Observed) []workloadops.Setting {
	own := rollingUpdateOf(seen.own(pathStrategy))
	unavailable := *own.MaxUnavailable
	if surge == 0 && (unavailable == intstr.FromInt32(0) || unavailable == intstr.FromString("0%")) {
		unavailable = intstr.FromInt32(1) // the API server wants one of the two
	}
	return []workloadops.Setting{{Path: pathPaused, Value: json.RawMessage("true")}, {Path: pathStrategy, Value: rollingShare(unavailable, surge)},
		{Path: pathMinReadySeconds, Value: seen.own(pathMinReadySeconds)},
		{Path: pathProgressDeadline, Value: seen.own(pathProgressDeadline)}, history(seen)}
}

// history keeps the stable ReplicaSet for the way back where the workload would keep none: a Deployment that is paused cleans up as well.
func history(seen Observed) workloadops.Setting {
	own, saved := seen.Saved.Settings[pathHistory]
	if !saved { // what an earlier version of Slipway has saved
		own = seen.Settings[pathHistory]
	}
	if string(own) == "0" {
		own = json.RawMessage("1")
	}
	return workloadops.Setting{Path: pathHistory, Value: own}
}

// native are its own fields.
func (k deployment) native(seen Observed) []workloadops.Setting {
	own, _ := k.home(seen)
	own = slices.DeleteFunc(own, func(s workloadops.Setting) bool { return s.Path == pathHistory })
	return append(own, history(seen))
}

// deploymentPartition replaces a Deployment's own pods: behind the gate its controller stops at as many new pods as maxUnavailable says.
type deploymentPartition struct{ deployment }

// next lets the version aimed at grow by the workload's own maxUnavailable at a time; where that is 0, by its maxSurge: surge, wait until
// those pods are ready, then raise maxUnavailable by them and take the surge back in one write. maxUnavailable never rises while the surge
// is up but in that write.
func (deploymentPartition) next(t task, seen Observed) NextAction {
	unavailable, surge := currentLimits(seen)
	switch {
	case paused(seen):
		return wake(t, seen)
	case t.Placed && !seen.has(gate):
		rest := rollout.Rest{Surge: surplusOf(seen)}
		w := t.write("pause", seen.changed(resting(rest.Surge, seen)...))
		w.Annotations = map[string]string{rollout.AnnotationRest: rest.String()}
		return set("pause it: somebody else has taken the gate away", w)
	case !t.Placed:
		return place(t, seen)
	case t.Aim.Available > 0:
		// The gate has just been put on pods that were there before; until their ReplicaSet has seen it, more of the others would go than asked.
		return wait("the gate is not in force yet")
	case surge > 0:
		return endSurge(t, seen, unavailable, surge)
	case asked(seen) > t.Size && unavailable < t.Total && t.settled(): // it was halted between the two
		return exchange(t, seen)
	case asked(seen) > t.Size:
		return wait("")
	case t.Total >= t.Target && unavailable <= max(t.Total, 1) && t.settled():
		return done("")
	case t.Total < unavailable && t.Total < t.Target || !t.settled():
		return hold(t, seen, unavailable, 0)
	}
	return grow(t, seen)
}

// hold pauses a Deployment whose controller has changed the sizes that it was to change, while the pods come. Behind the gate alone whoever
// takes that away has as many of the other pods go at once as there are new ones; of a Deployment that is paused none goes.
func hold(t task, seen Observed, unavailable, surge int32) NextAction {
	if asked(seen) != t.Size+surge || surge == 0 && t.Aim.Asked < min(unavailable, t.Size) {
		return wait("")
	}
	w := t.write("hold", []workloadops.Setting{{Path: pathPaused, Value: json.RawMessage("true")}})
	if surge != surplusAtRest(seen) {
		var rest rollout.Rest
		if seen.Rest != nil {
			rest = *seen.Rest
		}
		rest.Surge = surge
		w.Annotations = map[string]string{rollout.AnnotationRest: rest.String()}
	}
	return set("pause it while its pods come", w)
}

// wake moves on from a rest. The gate comes back while the Deployment is still paused, and the limits with it that count its pods as out,
// so that it stays Available. It is unpaused when its controller is known to have heard of it.
func wake(t task, seen Observed) NextAction {
	surplus := min(surplusAtRest(seen), max(asked(seen)-t.Size, 0))
	unavailable, surge := max(t.Total-surplus, 0), surplus
	if surplus == 0 {
		unavailable = max(t.Total, 1)
	}
	if d, stays := staysAtRest(t, seen, surplus); stays {
		return d
	}
	switch limited := seen.changed(moving(unavailable, surge, seen)...); {
	case asked(seen) > t.Size+surplus && t.Placed && seen.has(gate) && seen.Ready < asked(seen):
		return wait("pods that somebody else's limits have brought up are coming") // it would take those that serve in their stead
	case asked(seen) > t.Size+surplus && t.Placed && seen.has(gate) && len(limited) > 0:
		// A paused Deployment is scaled to its size and its surge: somebody else has set that behind the gate.
		return set("take the pods back that somebody else's limits have brought up", t.write("limits", limited))
	case asked(seen) < t.Size || asked(seen) > t.Size+surplus:
		return wait("its controller is still replacing a pod")
	case !t.Placed, !seen.has(gate):
		w := t.write("gate", seen.changed(moving(unavailable, surge, seen)...))
		if seen.Rest != nil { // what changes from now on is our own doing, and nobody was asked yet
			rest := *seen.Rest
			rest.Template, rest.Settings, rest.GateSeen = "", nil, 0
			w.Annotations = map[string]string{rollout.AnnotationRest: rest.String()}
		}
		return set("put the gate back, before its pods move on", w)
	case seen.Lagging(), t.Aim.Available > 0:
		return wait("the gate is not in force yet")
	case t.Aim.Hash != "" && !heard(t, seen):
		return ask(seen)
	case t.Total != t.Aim.Asked || !t.settled():
		return wait("")
	}
	if surplus == 0 {
		unavailable, surge = nextLimits(t, seen)
	}
	settings := append(moving(unavailable, surge, seen), workloadops.Setting{Path: pathPaused, Value: seen.own(pathPaused)})
	return set(growing(unavailable, surge), t.write("wake", seen.changed(settings...)))
}

// staysAtRest is what is to be done at a rest that goes on: nothing, or what makes it whole again. False: pods are to move.
func staysAtRest(t task, seen Observed, surplus int32) (d NextAction, stays bool) {
	stays = surplus == 0 && t.Total >= t.Target
	switch rested := seen.changed(resting(surplusAtRest(seen), seen)...); {
	case !seen.has(gate) && len(rested) > 0:
		w := &workloadops.Write{Step: "undisturb", Settings: rested, Annotations: map[string]string{}}
		if seen.Rest != nil {
			w.Annotations[rollout.AnnotationRest] = seen.Rest.String()
		}
		return set("give back its own settings, which somebody else has changed", w), true
	case t.Size == 0 && t.Placed && !t.Request.Back:
		return emptied(seen), true
	case stays && (t.Placed || t.Total == 0 || t.Request.Back):
		return done(""), true
	}
	return set("put its template back", t.write("put-back", nil)), stays
}

// surplusAtRest is how many pods beyond the size were left standing when it came to rest.
func surplusAtRest(seen Observed) int32 {
	if seen.Rest == nil {
		return 0
	}
	return seen.Rest.Surge
}

// ask notes on the Deployment that the gate is in force. Deployments and ReplicaSets reach the controller by separate watches, and by a count
// from before the gate it would take up to as many of the other pods as there are of the version aimed at. It copies annotations to the newest
// ReplicaSet, and the API server takes that write only from somebody who has the ReplicaSet as it is: with none of its pods available.
func ask(seen Observed) NextAction {
	if gateSeen(seen) {
		return wait("its controller has not heard of the gate yet")
	}
	var rest rollout.Rest
	if seen.Rest != nil {
		rest = *seen.Rest
	}
	rest.GateSeen = seen.Generation
	return set("ask whether its controller has heard of the gate",
		&workloadops.Write{Step: "ask", Annotations: map[string]string{rollout.AnnotationRest: rest.String()}})
}

// gateSeen says that the controller was asked since the gate was put on.
func gateSeen(seen Observed) bool { return seen.Rest != nil && seen.Rest.GateSeen > 0 }

// heard says that the controller has answered.
func heard(t task, seen Observed) bool { return gateSeen(seen) && t.Aim.Rest == seen.Rest.String() }

// asked is how many pods all revisions together are to have.
func asked(seen Observed) int32 {
	n := int32(0)
	for _, r := range seen.Revisions {
		n += r.Asked
	}
	return n
}

// active is how many revisions are to have pods.
func active(seen Observed) (n int) {
	for _, r := range seen.Revisions {
		if r.Asked > 0 {
			n++
		}
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
	return set(growing(unavailable, surge), t.write("place", moving(unavailable, surge, seen)))
}

func grow(t task, seen Observed) NextAction {
	unavailable, surge := nextLimits(t, seen)
	return set(growing(unavailable, surge), t.write("grow", seen.changed(moving(unavailable, surge, seen)...)))
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
		return hold(t, seen, unavailable, surge)
	}
	return exchange(t, seen)
}

// exchange has as many of the others go as there are pods beyond the workload's size.
func exchange(t task, seen Observed) NextAction {
	return set(fmt.Sprintf("%d pods of that version are ready: as many of the others may go", t.Ready),
		t.write("exchange", seen.changed(moving(max(t.Total, 1), 0, seen)...)))
}

// currentLimits are the limits that stand on the workload now; they are plain numbers, since this rollout wrote them.
func currentLimits(seen Observed) (unavailable, surge int32) {
	return limits(seen.Settings[pathStrategy], seen.Replicas)
}

// rest parks nothing that could move a pod. Where the gate or a pause stands it is ours to bring to rest, whatever the template is.
func (k deploymentPartition) rest(t task, seen Observed) []workloadops.Setting {
	if t.Placed || paused(seen) || seen.has(gate) {
		return resting(k.surplus(seen), seen)
	}
	return nil
}

// surplus are the pods that an interrupted move has brought up beside the others.
func (deploymentPartition) surplus(seen Observed) int32 { return surplusOf(seen) }

func surplusOf(seen Observed) int32 {
	_, surge := currentLimits(seen)
	switch {
	case paused(seen):
		return surplusAtRest(seen)
	case seen.has(gate):
		return surge
	case !seen.Lagging() && active(seen) <= 1:
		return max(asked(seen)-seen.Replicas, 0)
	}
	// Its own controller moves pods, and may have just brought up as many as it may. With fewer allowed, a paused Deployment is scaled down:
	// pods that serve would go for those that have just come.
	return max(asked(seen)-seen.Replicas, surge)
}

// deploymentBlueGreen adds new pods and keeps every old one: at rest none goes, while maxUnavailable is 0.
type deploymentBlueGreen struct{ deployment }

// next surges by the step's number of pods, in one write.
func (deploymentBlueGreen) next(t task, seen Observed) NextAction {
	_, surge := currentLimits(seen)
	switch {
	case !t.Placed && t.Target == 0:
		return done("no pod is asked for yet")
	case t.Placed && !seen.has(gate):
		gated := movingOn(max(surge, t.Target, 1), seen)
		return set("put the gate back, which somebody else has taken away", t.write("gate", seen.changed(gated...)))
	case !t.Placed, surge < t.Target:
		w := t.write("grow", seen.changed(movingOn(max(t.Target, 1), seen)...))
		return set(fmt.Sprintf("bring up %d new pods beside the others", t.Target), w)
	case paused(seen):
		return set("resume it, which somebody else has paused", t.write("resume", seen.changed(movingOn(surge, seen)...)))
	}
	return done("")
}

// movingOn are the settings while a blue-green's pods move. One that somebody else has paused would bring no pod.
func movingOn(surge int32, seen Observed) []workloadops.Setting {
	return append(moving(0, surge, seen), workloadops.Setting{Path: pathPaused, Value: seen.own(pathPaused)})
}

// deploymentExtra runs the new version in a second Deployment; the workload itself is not touched until the end.
type deploymentExtra struct{ deployment }

func (deploymentExtra) Pointers() []string { return nil }

func (deploymentExtra) untouched() bool { return true }

// home ends the pause of calm; nothing else is borrowed.
func (deploymentExtra) home(seen Observed) (first, last []workloadops.Setting) {
	if seen.Rest != nil && string(seen.Rest.Settings[pathPaused]) == "true" {
		first = []workloadops.Setting{{Path: pathPaused, Value: json.RawMessage("null")}}
	}
	return first, nil
}

// rest keeps the pause of calm where the workload is brought to rest meanwhile.
func (k deploymentExtra) rest(_ task, seen Observed) []workloadops.Setting {
	if first, _ := k.home(seen); len(first) > 0 {
		return []workloadops.Setting{{Path: pathPaused, Value: json.RawMessage("true")}}
	}
	return nil
}

// calm pauses the workload, which was not paused when the rollout began; the mark tells it from somebody else's pause.
func (deploymentExtra) calm(_ Revision, seen Observed) (NextAction, bool) {
	pause := workloadops.Setting{Path: pathPaused, Value: json.RawMessage("true")}
	return calmed(seen, rollout.Rest{Settings: map[string]json.RawMessage{pathPaused: pause.Value}}, pause)
}

// putBack gives the workload its stable template back, which somebody else has changed, once its own controller moves no pods; it ends the
// pause of that as well.
func (k deploymentExtra) putBack(seen Observed) (NextAction, bool) {
	resumed, _ := k.home(seen)
	w := &workloadops.Write{Step: "put-back", Settings: resumed}
	if len(resumed) > 0 {
		w.Annotations = map[string]string{rollout.AnnotationRest: rollout.Rest{}.String()}
	}
	if seen.Template != seen.Saved.StableTemplate {
		if d, waits := k.calm(Revision{}, seen); waits {
			return d, true
		}
		w.Template = &workloadops.Template{Revision: seen.Saved.Stable}
	}
	return set("give the workload its stable template back", w), !empty(w)
}

// next sees to the extra Deployment and its size, which only grows: a step back moves traffic, not pods.
func (k deploymentExtra) next(t task, seen Observed) NextAction {
	if d, disturbed := k.putBack(seen); disturbed {
		return d
	}
	e, w := seen.Extra, t.Request.Workload
	switch {
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
