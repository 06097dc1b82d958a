package pods

import (
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// wake moves on from a rest. The gate comes back while the Deployment is still paused, and the limits with it that count its pods as out,
// so that it stays Available. It is unpaused when its controller is known to have heard of it, and the pods before the next are ready.
func wake(t task, seen Observed) NextAction {
	surplus := min(surplusAtRest(seen), max(asked(seen)-t.Size, 0))
	unavailable, surge := max(t.Total-surplus, 0), surplus
	if surplus == 0 {
		unavailable = max(t.Total, 1)
	}
	if d, stays := staysAtRest(t, seen, surplus); stays {
		return d
	}
	if d, there := takeBack(t, seen, surplus, moving(unavailable, surge, seen)); there {
		return d
	}
	switch {
	case asked(seen) < t.Size || asked(seen) > t.Size+surplus:
		return wait("its controller is still replacing a pod")
	case !t.Placed, !seen.has(minReadyGate):
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

// takeBack has pods go that a paused Deployment was scaled up by, since somebody else has set limits behind the gate: when all are ready, or
// pods that serve would go in the stead of those that are coming.
func takeBack(t task, seen Observed, surplus int32, limits []workloadops.Setting) (d NextAction, there bool) {
	limited := seen.changed(limits...)
	switch {
	case asked(seen) <= t.Size+surplus || !t.Placed || !seen.has(minReadyGate):
	case seen.Ready < asked(seen):
		return wait("pods that somebody else's limits have brought up are coming"), true
	case len(limited) > 0:
		return set("take the pods back that somebody else's limits have brought up", t.write("limits", limited)), true
	}
	return NextAction{}, false
}

// staysAtRest is what is to be done at a rest that goes on: nothing, or what makes it whole again. False: pods are to move.
func staysAtRest(t task, seen Observed, surplus int32) (d NextAction, stays bool) {
	stays = surplus == 0 && t.Total >= t.Target
	switch rested := seen.changed(resting(surplusAtRest(seen), seen)...); {
	case !seen.has(minReadyGate) && len(rested) > 0:
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
func surplusAtRest(seen Observed) int32 { return restOf(seen).Surge }

// ask notes on the Deployment that the gate is in force. Deployments and ReplicaSets reach the controller by separate watches, and by a count
// from before the gate it would take up to as many of the other pods as there are of the version aimed at. It copies annotations to the newest
// ReplicaSet, and the API server takes that write only from somebody who has the ReplicaSet as it is: with none of its pods available.
func ask(seen Observed) NextAction {
	if gateSeen(seen) {
		return wait("its controller has not heard of the gate yet")
	}
	rest := restOf(seen)
	rest.GateSeen = seen.Generation
	return set("ask whether its controller has heard of the gate",
		&workloadops.Write{Step: "ask", Annotations: map[string]string{rollout.AnnotationRest: rest.String()}})
}

// gateSeen says that the controller was asked since the gate was put on.
func gateSeen(seen Observed) bool { return restOf(seen).GateSeen > 0 }

// heard says that the controller has answered.
func heard(t task, seen Observed) bool { return gateSeen(seen) && t.Aim.Rest == seen.Rest.String() }
