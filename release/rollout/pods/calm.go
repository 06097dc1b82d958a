package pods

import (
	"slices"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// haltUpdate pauses a Deployment whose own controller is moving pods because of another client, before all pods move to
// the stable version. If the direction changed halfway, the controller would act on outdated counts of its ReplicaSets
// and remove as many pods of each version as it may at once.
func (deployment) haltUpdate(_ Revision, seen Observed) (NextAction, bool) {
	surplus := surplusOf(seen)
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
