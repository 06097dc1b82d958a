package trafficrouting

import (
	"slices"
	"strings"

	"slipway.io/slipway/release/v1alpha1"
)

// Finalizers that the controller of Kruise Rollouts leaves on TrafficRoutings when it is removed: its own, and one for each of its Rollouts.
const (
	finalizerReference         = "rollouts.kruise.io/trafficrouting"
	finalizerReferenceProgress = "progressing.rollouts.kruise.io/"
)

// IsLeftover says whether a finalizer is one that the controller of Kruise Rollouts has left behind.
func IsLeftover(finalizer string) bool {
	return finalizer == finalizerReference || strings.HasPrefix(finalizer, finalizerReferenceProgress)
}

// AtRest are the phase and the message of a TrafficRouting that nobody holds.
func AtRest() (v1alpha1.TrafficRoutingPhase, string) {
	return v1alpha1.TrafficHealthy, "no rollout holds it"
}

// Held are the phase and the message of one that is held.
func Held(t *v1alpha1.TrafficRouting, holders string) (v1alpha1.TrafficRoutingPhase, string) {
	if t.Deleting {
		return v1alpha1.TrafficTerminating, "deleted: it goes when it isn't held any more; held by " + holders
	}
	return v1alpha1.TrafficProgressing, "held by " + holders
}

// Unattended is what is to be done about a TrafficRouting that somebody has made, edited or deleted while no release changes it.
type Unattended struct {
	// Show says that Phase and Message are to be written; Free that nothing keeps one that was deleted.
	Show, Free bool
	Phase      v1alpha1.TrafficRoutingPhase
	Message    string
}

// Look decides what is to be done about a TrafficRouting as it stands; holders are those that hold it, as messages name them.
func Look(t *v1alpha1.TrafficRouting, holders string) Unattended {
	held := len(t.Status.Holders) > 0
	kept := slices.ContainsFunc(t.Finalizers, func(f string) bool { return f == v1alpha1.FinalizerTrafficRouting || IsLeftover(f) })
	switch {
	case t.Deleting && !held:
		return Unattended{Free: kept}
	case t.Status.Phase == v1alpha1.TrafficFinalizing: // its last holder writes what comes next
		return Unattended{}
	case held && t.Deleting && t.Status.Phase != v1alpha1.TrafficTerminating:
		phase, message := Held(t, holders)
		return Unattended{Show: true, Phase: phase, Message: message}
	case held:
		return Unattended{}
	}
	phase, message := AtRest()
	return Unattended{Show: t.Status.Phase != phase || t.Status.ObservedGeneration != t.Generation, Phase: phase, Message: message}
}
