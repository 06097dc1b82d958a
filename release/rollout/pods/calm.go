package pods

import (
	"slices"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// calm pauses a Deployment whose own controller is moving pods, as somebody else has let it, before every pod is told to go home. Turned
// round in its middle, the controller goes by counts of ReplicaSets from before: it takes as many pods as it may of each version at once.
func (deployment) calm(_ Revision, seen Observed) (NextAction, bool) {
	surplus := surplusOf(seen)
	return calmed(seen, rollout.Rest{Surge: surplus}, resting(surplus, seen)...)
}

// calmed writes these settings, which pause a Deployment, and waits until no pod is on its way out.
func calmed(seen Observed, rest rollout.Rest, settings ...workloadops.Setting) (NextAction, bool) {
	leaving := slices.ContainsFunc(seen.Revisions, func(r Revision) bool { return r.Total > r.Asked })
	moving := leaving || active(seen) > 1 || seen.Lagging()
	switch {
	case !paused(seen) && (!moving || seen.has(minReadyGate)):
		return NextAction{}, false
	case !paused(seen):
		return set("pause it: its own controller is moving pods, which are to go home", &workloadops.Write{Step: "calm", Settings: seen.changed(settings...),
			Annotations: map[string]string{rollout.AnnotationRest: rest.String()}}), true
	case leaving || seen.Lagging():
		return wait("the update that was under way is coming to a halt"), true
	}
	return NextAction{}, false
}
