package pods

import (
	"slices"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// resumeFromPause continues after a pause. The gate is set while the Deployment is still paused, with limits that count
// its pods as unavailable, so that it stays Available. It is settings once its controller is known to have seen the
// gate, and the pods before the next ones are ready.
func resumeFromPause(t task, seen Observed) NextAction {
	surplus := min(recordedSurplus(seen), max(desiredPods(seen)-t.Size, 0))
	unavailable, surge := max(t.Total-surplus, 0), surplus
	if surplus == 0 {
		unavailable = max(t.Total, 1)
	}
	if d, stays := stayPaused(t, seen, surplus); stays {
		return d
	}
	if d, there := removeExcess(t, seen, surplus, movingFields(unavailable, surge, seen)); there {
		return d
	}
	rest := pauseRecord(seen)
	switch {
	case desiredPods(seen) < t.Size || desiredPods(seen) > t.Size+surplus:
		return wait("its controller is still replacing a pod")
	case !t.Placed, !seen.has(minReadyGate):
		w := t.write("gate", seen.settingsToWrite(movingFields(unavailable, surge, seen)...))
		if seen.Rest != nil { // later changes are the rollout's own, and the controller was not probed yet
			rest.Template, rest.Settings, rest.GateSeen = "", nil, 0
			w.Annotations = map[string]string{rollout.AnnotationSettled: rest.String()}
		}
		return set("restore the gate before its pods move on", w)
	case seen.Lagging(), t.Aim.Available > 0:
		return wait("the gate is not in force yet")
	case t.Aim.Hash != "" && (rest.GateSeen == 0 || t.Aim.Rest != rest.String()): // the probe was not answered
		return probeController(seen)
	case t.Total != t.Aim.Desired || !t.settled():
		return wait("")
	}
	if surplus == 0 || seen.Saved.Over != "" && t.Total == 0 { // then the surplus is of the update that hung, and goes
		unavailable, surge = nextLimits(t, seen)
	}
	settings := append(movingFields(unavailable, surge, seen),
		workload.Setting{Path: pathPaused, Value: seen.savedSetting(pathPaused)})
	return set(growReason(unavailable, surge), t.write("wake", seen.settingsToWrite(settings...)))
}

// removeExcess removes pods by which a paused Deployment was scaled up because another client set limits while the gate
// was on. It waits until all are ready: otherwise serving pods would be removed instead of those that are starting.
func removeExcess(t task, seen Observed, surplus int32, limits []workload.Setting) (d NextAction, there bool) {
	limited := seen.settingsToWrite(limits...)
	switch {
	case desiredPods(seen) <= t.Size+surplus || !t.Placed || !seen.has(minReadyGate):
	case seen.Ready < desiredPods(seen):
		return wait("pods added by another client's limits are starting"), true
	case len(limited) > 0:
		return set("remove the pods added by another client's limits", t.write("limits", limited)), true
	}
	return NextAction{}, false
}

// stayPaused returns what to do if the pause continues: nothing, or a write that repairs it. stays is false if pods
// have to move.
func stayPaused(t task, seen Observed, surplus int32) (d NextAction, stays bool) {
	stays = surplus == 0 && t.Total >= t.Target
	switch settings := seen.settingsToWrite(pausedFields(recordedSurplus(seen), seen)...); {
	case !seen.has(minReadyGate) && len(settings) > 0:
		w := &workload.Write{Step: "undisturb", Settings: settings, Annotations: map[string]string{}}
		if seen.Rest != nil {
			w.Annotations[rollout.AnnotationSettled] = seen.Rest.String()
		}
		return set("restore its own settings, which another client changed", w), true
	case t.Size == 0 && t.Placed && !t.Request.Back:
		return stableWhileEmpty(seen), true
	case stays && (t.Placed || t.Total == 0 || t.Request.Back):
		return done(""), true
	}
	return set("restore its template", t.write("put-back", nil)), stays
}

// recordedSurplus returns how many pods beyond the size it had when it was paused.
func recordedSurplus(seen Observed) int32 { return pauseRecord(seen).Surge }

// probeController records on the Deployment that the gate is in force. Deployments and ReplicaSets reach its controller
// by separate watches; acting on a count from before the gate, it would remove up to as many of the other pods as there
// are of the target version. It copies annotations to the newest ReplicaSet, and the API server accepts that write only
// if the controller has the latest ReplicaSet: the one with none of its pods available.
func probeController(seen Observed) NextAction {
	rest := pauseRecord(seen)
	if rest.GateSeen > 0 {
		return wait("its controller has not seen the gate yet")
	}
	rest.GateSeen = seen.Generation
	return set("probe whether its controller has seen the gate",
		&workload.Write{Step: "ask", Annotations: map[string]string{rollout.AnnotationSettled: rest.String()}})
}

// haltUpdate pauses a Deployment whose own controller is moving pods because of another client, before all pods move to
// the stable version. If the direction changed halfway, the controller would act on outdated counts of its ReplicaSets
// and remove as many pods of each version as it may at once.
func (deployment) haltUpdate(_ Revision, seen Observed) (NextAction, bool) {
	surplus := deploymentPartition{}.surplus(seen)
	return pauseAndSettle(seen, rollout.SettledState{Surge: surplus}, pausedFields(surplus, seen)...)
}

// pauseAndSettle writes these settings, which pause a Deployment, and waits until no pod is being removed.
func pauseAndSettle(seen Observed, rest rollout.SettledState, settings ...workload.Setting) (NextAction, bool) {
	leaving := slices.ContainsFunc(seen.Revisions, func(r Revision) bool { return r.Total > r.Desired })
	moving := leaving || activeRevisions(seen) > 1 || seen.Lagging()
	switch {
	case !paused(seen) && (!moving || seen.has(minReadyGate)):
		return NextAction{}, false
	case !paused(seen):
		return set("pause it before finalising: its own controller is moving pods",
			&workload.Write{Step: "calm", Settings: seen.settingsToWrite(settings...),
				Annotations: map[string]string{rollout.AnnotationSettled: rest.String()}}), true
	case leaving || seen.Lagging():
		return wait("the update that was under way is stopping"), true
	}
	return NextAction{}, false
}
