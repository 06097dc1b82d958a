package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

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
	return rollingShare(intstr.FromInt32(unavailable), intstr.FromInt32(surge))
}

func rollingShare(unavailable, surge intstr.IntOrString) json.RawMessage {
	most, _ := json.Marshal(surge)
	share, _ := json.Marshal(unavailable)
	return json.RawMessage(fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%s,"maxUnavailable":%s}}`, most, share))
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

// minReadyGate keeps pods that get ready from counting as available.
var minReadyGate = workloadops.Setting{Path: pathMinReadySeconds, Value: gateMinReady}

// moving are the borrowed fields while pods move, but for the pause.
func moving(unavailable, surge int32, seen Observed) []workloadops.Setting {
	return []workloadops.Setting{{Path: pathStrategy, Value: rolling(unavailable, surge)}, minReadyGate, {Path: pathProgressDeadline, Value: gateDeadline}, history(seen)}
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
	return []workloadops.Setting{{Path: pathPaused, Value: json.RawMessage("true")}, {Path: pathStrategy, Value: rollingShare(unavailable, intstr.FromInt32(surge))},
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
	case heldAtFirst(t, seen):
		return place(t, seen)
	case paused(seen):
		return wake(t, seen)
	case t.Placed && !seen.has(minReadyGate):
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

// heldAtFirst says that the change of template that is released was held, and that no pod of it has come yet.
func heldAtFirst(t task, seen Observed) bool {
	return paused(seen) && t.Placed && t.Aim.Hash == "" && seen.Rest == nil
}

// hold pauses a Deployment whose controller has changed the sizes that it was to change, while the pods come. Behind the gate alone whoever
// takes that away has as many of the other pods go at once as there are new ones; of a Deployment that is paused none goes.
func hold(t task, seen Observed, unavailable, surge int32) NextAction {
	if asked(seen) != t.Size+surge || surge == 0 && t.Aim.Asked < min(unavailable, t.Size) {
		return wait("")
	}
	w := t.write("hold", []workloadops.Setting{{Path: pathPaused, Value: json.RawMessage("true")}})
	if surge != surplusAtRest(seen) {
		rest := restOf(seen)
		rest.Surge = surge
		w.Annotations = map[string]string{rollout.AnnotationRest: rest.String()}
	}
	d := set("pause it while its pods come", w)
	d.Holds = surge == 0 // with a surge more is written than the pause
	return d
}

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
	settings := moving(unavailable, surge, seen)
	if paused(seen) {
		settings = append(settings, workloadops.Setting{Path: pathPaused, Value: seen.own(pathPaused)})
	}
	w := t.write("place", settings)
	before := restOf(seen)
	if note := t.gateNote(seen); note.String() != before.String() {
		w.Annotations = map[string]string{rollout.AnnotationRest: note.String()}
	}
	return set(growing(unavailable, surge), w)
}

// gateNote is the rest with the word on the gate that is true of the version that is set now, whatever was found out about another one.
func (t task) gateNote(seen Observed) rollout.Rest {
	rest := restOf(seen)
	if rest.GateSeen, rest.Settings = 0, nil; t.comesGated(seen) {
		rest.GateSeen = seen.Generation
	}
	return rest
}

// restOf is the rest that stands on the Deployment, empty where none does.
func restOf(seen Observed) (rest rollout.Rest) {
	if seen.Rest != nil {
		rest = *seen.Rest
	}
	return rest
}

// comesGated says that the version aimed at has no pods before the gate: its controller puts the gate and the annotations of the Deployment on the ReplicaSet
// in one write, before it asks for the first pod, so that it need not be asked whether it has heard (ask). A ReplicaSet that is not known to be that version's
// could turn out to be it, where the API server has completed its template otherwise: none but the stable one may have pods then.
func (t task) comesGated(seen Observed) bool {
	if t.Aim.Hash != "" {
		return t.Aim.Asked == 0 && t.Aim.Total == 0
	}
	return !slices.ContainsFunc(seen.Revisions, func(r Revision) bool {
		return r.Name != seen.Saved.Stable && (r.Asked > 0 || r.Total > 0)
	})
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
	if t.Placed || paused(seen) || seen.has(minReadyGate) {
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
	case seen.has(minReadyGate):
		return surge
	case !seen.Lagging() && active(seen) <= 1:
		return max(asked(seen)-seen.Replicas, 0)
	}
	// Its own controller moves pods, and may have just brought up as many as it may. With fewer allowed, a paused Deployment is scaled down:
	// pods that serve would go for those that have just come.
	return max(asked(seen)-seen.Replicas, surge)
}
