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
	"slipway.io/slipway/release/workload"
)

// Fields of a Deployment that a rollout borrows.
const (
	pathStrategy         = "/spec/strategy"
	pathMinReadySeconds  = "/spec/minReadySeconds"
	pathProgressDeadline = "/spec/progressDeadlineSeconds"
	pathPaused           = "/spec/paused"
	pathHistory          = "/spec/revisionHistoryLimit"
)

// The gate: ready pods serve but never count as available, so the Deployment's controller waits before it removes the
// next old one. The API server requires progressDeadlineSeconds to be greater than minReadySeconds.
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
	return json.RawMessage(fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%s,"maxUnavailable":%s}}`,
		most, share))
}

// recreates reports whether a strategy removes all old pods before new ones start.
func recreates(raw json.RawMessage) bool {
	var s appsv1.DeploymentStrategy
	return json.Unmarshal(raw, &s) == nil && s.Type == workload.UpdateRecreate
}

// rollingUpdateOf returns the limits of a strategy. A missing limit is 25 %, Kubernetes' own default; without
// rollingUpdate there is no surge.
func rollingUpdateOf(raw json.RawMessage) appsv1.RollingUpdateDeployment {
	quarter := intstr.FromString("25%")
	var s appsv1.DeploymentStrategy
	if json.Unmarshal(raw, &s) != nil || s.RollingUpdate == nil {
		none := intstr.FromInt32(0)
		return appsv1.RollingUpdateDeployment{MaxUnavailable: &quarter, MaxSurge: &none}
	}
	return appsv1.RollingUpdateDeployment{MaxUnavailable: cmp.Or(s.RollingUpdate.MaxUnavailable, &quarter),
		MaxSurge: cmp.Or(s.RollingUpdate.MaxSurge, &quarter)}
}

// limits returns a strategy's limits in pods, as the Deployment's controller resolves them (both zero mean one
// unavailable). Recreate has no limits: its pods are moved by a quarter at a time, without a surge.
func limits(raw json.RawMessage, size int32) (unavailable, surge int32) {
	u := rollingUpdateOf(raw)
	unavailable, surge = strategy.ResolveLimits(*u.MaxUnavailable, *u.MaxSurge, size)
	return min(unavailable, size), surge
}

type deployment struct{ defaultTechnique }

func (deployment) Pointers() []string {
	return []string{pathStrategy, pathMinReadySeconds, pathProgressDeadline, pathPaused, pathHistory}
}

// refusalReason refuses a paused Deployment: its own update would never end.
func (deployment) refusalReason(seen Observed) string {
	if paused(seen) {
		return "is paused: resume it with `kubectl rollout resume` first"
	}
	return ""
}

func paused(seen Observed) bool { return string(seen.Settings[pathPaused]) == "true" }

// finalSettings restores what was saved. Strategy type Recreate is restored last, since it would remove all old pods at
// once.
func (k deployment) finalSettings(seen Observed) (first, last []workload.Setting) {
	for _, path := range k.Pointers() {
		// earlier versions of Slipway saved fewer
		if _, saved := seen.Saved.Settings[path]; saved || path == pathPaused {
			first = append(first, workload.Setting{Path: path, Value: seen.savedSetting(path)})
		}
	}
	if own := seen.savedSetting(pathStrategy); recreates(own) {
		first[0].Value, last = rolling(limits(own, seen.Replicas)), []workload.Setting{first[0]}
	}
	return first, last
}

// minReadyGate keeps ready pods from counting as available.
var minReadyGate = workload.Setting{Path: pathMinReadySeconds, Value: gateMinReady}

// movingFields returns the borrowed fields while pods move, except the pause.
func movingFields(unavailable, surge int32, seen Observed) []workload.Setting {
	return []workload.Setting{{Path: pathStrategy, Value: rolling(unavailable, surge)}, minReadyGate,
		{Path: pathProgressDeadline, Value: gateDeadline}, historyLimit(seen)}
}

// pausedFields returns the borrowed fields of a paused step, when nothing on the workload may move a pod: the
// Deployment is paused and everything else has the workload's own value, with two exceptions. The surge is the number
// of pods beyond its size, since a paused Deployment is scaled to its size and its surge. The type stays RollingUpdate,
// since a paused Deployment of type Recreate is not scaled.
func pausedFields(surge int32, seen Observed) []workload.Setting {
	own := rollingUpdateOf(seen.savedSetting(pathStrategy))
	unavailable := *own.MaxUnavailable
	if surge == 0 && (unavailable == intstr.FromInt32(0) || unavailable == intstr.FromString("0%")) {
		unavailable = intstr.FromInt32(1) // the API server requires one of the two
	}
	return []workload.Setting{{Path: pathPaused, Value: json.RawMessage("true")},
		{Path: pathStrategy, Value: rollingShare(unavailable, intstr.FromInt32(surge))},
		{Path: pathMinReadySeconds, Value: seen.savedSetting(pathMinReadySeconds)},
		{Path: pathProgressDeadline, Value: seen.savedSetting(pathProgressDeadline)}, historyLimit(seen)}
}

// historyLimit returns a revisionHistoryLimit of at least 1, so that the stable ReplicaSet stays available for a
// rollback: a paused Deployment cleans up old ReplicaSets too.
func historyLimit(seen Observed) workload.Setting {
	own, saved := seen.Saved.Settings[pathHistory]
	if !saved { // saved by an earlier version of Slipway
		own = seen.Settings[pathHistory]
	}
	if string(own) == "0" {
		own = json.RawMessage("1")
	}
	return workload.Setting{Path: pathHistory, Value: own}
}

// nativeSettings returns the settings with which the workload's own controller brings every pod to the live template,
// while a rollback stays possible.
func nativeSettings(tech Technique, seen Observed) []workload.Setting {
	own, _ := tech.finalSettings(seen)
	if !slices.Contains(tech.Pointers(), pathHistory) {
		return own
	}
	own = slices.DeleteFunc(own, func(s workload.Setting) bool { return s.Path == pathHistory })
	return append(own, historyLimit(seen))
}

// deploymentPartition replaces a Deployment's own pods: with the gate on, its controller stops at as many new pods as
// maxUnavailable.
type deploymentPartition struct{ deployment }

// next adds pods of the target version by the workload's own maxUnavailable at a time. If that is 0, it goes by
// maxSurge: surge, wait until those pods are ready, then raise maxUnavailable by them and remove the surge in one
// write. Outside that write maxUnavailable never rises while there is a surge.
func (deploymentPartition) next(t task, seen Observed) NextAction {
	unavailable, surge := currentLimits(seen)
	switch {
	case heldBeforeFirstPod(t, seen):
		return placeTemplate(t, seen)
	case paused(seen):
		return resumeFromPause(t, seen)
	case t.Placed && !seen.has(minReadyGate):
		rest := rollout.SettledState{Surge: deploymentPartition{}.surplus(seen)}
		w := t.write("pause", seen.settingsToWrite(pausedFields(rest.Surge, seen)...))
		w.Annotations = map[string]string{rollout.AnnotationSettled: rest.String()}
		return set("pause it: another client removed the gate", w)
	case !t.Placed:
		return placeTemplate(t, seen)
	case t.Aim.Available > 0:
		// The gate was just set on pods that existed before. Until their ReplicaSet has seen it, more of the other pods
		// would be removed than requested.
		return wait("the gate is not in force yet")
	case surge > 0:
		return endSurge(t, seen, unavailable, surge)
	case desiredPods(seen) > t.Size && unavailable < t.Total && t.settled(): // it was halted between surge and exchange
		return exchange(t, seen)
	case desiredPods(seen) > t.Size:
		return wait("")
	case t.Total >= t.Target && unavailable <= max(t.Total, 1) && t.settled():
		return done("")
	case t.Total < unavailable && t.Total < t.Target || !t.settled():
		return pauseUntilReady(t, seen, unavailable, 0)
	}
	unavailable, surge = nextLimits(t, seen)
	return set(growReason(unavailable, surge), t.write("grow",
		seen.settingsToWrite(movingFields(unavailable, surge, seen)...)))
}

// heldBeforeFirstPod reports whether the released change of template is held and has no pod yet.
func heldBeforeFirstPod(t task, seen Observed) bool {
	return paused(seen) && t.Placed && t.Aim.Hash == "" && seen.Rest == nil
}

// pauseUntilReady pauses a Deployment while its pods start, once its controller has changed the sizes as requested.
// With the gate alone, a client that removes the gate would cause as many other pods to be removed at once as there are
// new ones; a paused Deployment removes none.
func pauseUntilReady(t task, seen Observed, unavailable, surge int32) NextAction {
	if desiredPods(seen) != t.Size+surge || surge == 0 && t.Aim.Desired < min(unavailable, t.Size) {
		return wait("")
	}
	w := t.write("hold", []workload.Setting{{Path: pathPaused, Value: json.RawMessage("true")}})
	if surge != recordedSurplus(seen) {
		rest := pauseRecord(seen)
		rest.Surge = surge
		w.Annotations = map[string]string{rollout.AnnotationSettled: rest.String()}
	}
	d := set("pause it while its pods start", w)
	d.RemovesNoPod = surge == 0 // with a surge, more than the pause is written
	return d
}

// desiredPods returns the desired pods of all revisions together.
func desiredPods(seen Observed) int32 {
	n := int32(0)
	for _, r := range seen.Revisions {
		n += r.Desired
	}
	return n
}

// activeRevisions returns how many revisions have desired pods.
func activeRevisions(seen Observed) (n int) {
	for _, r := range seen.Revisions {
		if r.Desired > 0 {
			n++
		}
	}
	return n
}

// placeTemplate sets the template together with the gate and the limits for the first pods.
func placeTemplate(t task, seen Observed) NextAction {
	if t.Target == 0 && t.Total == 0 || t.Request.Back && t.Total >= t.Target {
		return done("no pod is to be moved yet")
	}
	if desiredPods(seen) < t.Size {
		// A pod just removed by another client's edit would come back as an extra pod of the target version.
		return wait("its controller is still replacing a pod")
	}
	unavailable, surge := nextLimits(t, seen)
	if t.Aim.Available > 0 && surge == 0 {
		// Pods that count as available now, but not once the gate is in force, must not make room for more than one.
		unavailable = 1
	} else if t.Aim.Available > 0 {
		unavailable = 0
	}
	settings := movingFields(unavailable, surge, seen)
	if paused(seen) {
		settings = append(settings, workload.Setting{Path: pathPaused, Value: seen.savedSetting(pathPaused)})
	}
	w := t.write("place", settings)
	before := pauseRecord(seen)
	rest := before // what was recorded about another version is dropped
	if rest.GateSeen, rest.Settings = 0, nil; t.startsGated(seen) {
		rest.GateSeen = seen.Generation
	}
	if rest.String() != before.String() {
		w.Annotations = map[string]string{rollout.AnnotationSettled: rest.String()}
	}
	return set(growReason(unavailable, surge), w)
}

// pauseRecord returns the Deployment's pause record (rollout.AnnotationSettled), empty if there is none.
func pauseRecord(seen Observed) (rest rollout.SettledState) {
	if seen.Rest != nil {
		rest = *seen.Rest
	}
	return rest
}

// startsGated reports whether the target version has no pods from before the gate. Its controller then puts the gate
// and the Deployment's annotations on the ReplicaSet in one write, before it asks for the first pod, so no probe is
// needed (probeController). A ReplicaSet of unknown version could turn out to be the target's, if the API server
// defaulted its template differently: so only the stable one may have pods.
func (t task) startsGated(seen Observed) bool {
	if t.Aim.Hash != "" {
		return t.Aim.Desired == 0 && t.Aim.Total == 0
	}
	return !slices.ContainsFunc(seen.Revisions, func(r Revision) bool {
		return r.Name != seen.Saved.Stable && (r.Desired > 0 || r.Total > 0)
	})
}

// nextLimits returns the limits that bring the next pods.
func nextLimits(t task, seen Observed) (unavailable, surge int32) {
	own, ownSurge := limits(seen.savedSetting(pathStrategy), t.Size)
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

func growReason(unavailable, surge int32) string {
	if surge > 0 {
		return fmt.Sprintf("bring up %d pods of that version next to the others", surge)
	}
	return fmt.Sprintf("replace pods until %d are of that version", unavailable)
}

// endSurge waits until the surged pods are ready, then removes as many of the others.
func endSurge(t task, seen Observed, unavailable, surge int32) NextAction {
	complete := desiredPods(seen) >= t.Size+surge || t.Aim.Desired >= t.Size
	if t.Total < max(unavailable, t.Aim.Desired) || !complete || !t.settled() {
		return pauseUntilReady(t, seen, unavailable, surge)
	}
	return exchange(t, seen)
}

// exchange removes as many of the other pods as there are pods beyond the workload's size.
func exchange(t task, seen Observed) NextAction {
	return set(fmt.Sprintf("%d pods of that version are ready: as many of the others may go", t.Ready),
		t.write("exchange", seen.settingsToWrite(movingFields(max(t.Total, 1), 0, seen)...)))
}

// currentLimits returns the workload's current limits in pods.
func currentLimits(seen Observed) (unavailable, surge int32) {
	return limits(seen.Settings[pathStrategy], seen.Replicas)
}

// pauseSettings leaves nothing on the workload that could move a pod. If the gate or a pause is set, the engine has to
// settle it, under any template.
func (k deploymentPartition) pauseSettings(t task, seen Observed) []workload.Setting {
	if t.Placed || paused(seen) || seen.has(minReadyGate) {
		return pausedFields(k.surplus(seen), seen)
	}
	return nil
}

// surplus returns the pods that an interrupted move has added to the others.
func (deploymentPartition) surplus(seen Observed) int32 {
	_, surge := currentLimits(seen)
	switch {
	case paused(seen):
		return recordedSurplus(seen)
	case seen.has(minReadyGate):
		return surge
	case !seen.Lagging() && activeRevisions(seen) <= 1:
		return max(desiredPods(seen)-seen.Replicas, 0)
	}
	// Its own controller is moving pods and may have just added as many as it may. With a smaller surge, a paused
	// Deployment is scaled down: serving pods would be removed instead of those that just started.
	return max(desiredPods(seen)-seen.Replicas, surge)
}
