package trafficrouting

import (
	"slices"
	"strings"

	"slipway.io/slipway/release/v1alpha1"
)

// The finalizers that the controller of Kruise Rollouts leaves on TrafficRoutings when it is removed: its own, and one
// for each of its Rollouts.
const (
	finalizerReference         = "rollouts.kruise.io/trafficrouting"
	finalizerReferenceProgress = "progressing.rollouts.kruise.io/"
)

// IsLeftover reports whether a finalizer was left behind by the controller of Kruise Rollouts.
func IsLeftover(finalizer string) bool {
	return finalizer == finalizerReference || strings.HasPrefix(finalizer, finalizerReferenceProgress)
}

// IdleStatus returns the phase and the message of a TrafficRouting that no rollout holds.
func IdleStatus() (v1alpha1.TrafficRoutingPhase, string) {
	return v1alpha1.TrafficHealthy, "no rollout holds it"
}

// HeldStatus returns the phase and the message of a TrafficRouting that rollouts hold.
func HeldStatus(t *v1alpha1.TrafficRouting, holders string) (v1alpha1.TrafficRoutingPhase, string) {
	if t.Deleting {
		return v1alpha1.TrafficTerminating, "deleted: removed once no rollout holds it; held by " + holders
	}
	return v1alpha1.TrafficProgressing, "held by " + holders
}

// Action is what to do about a TrafficRouting that a client created, edited or deleted while no release changes it.
type Action struct {
	// WriteStatus is true if Phase and Message must be written. RemoveFinalizers is true if the engine must remove its
	// finalizers from a deleted one.
	WriteStatus, RemoveFinalizers bool
	Phase                         v1alpha1.TrafficRoutingPhase
	Message                       string
}

// Decide returns the action for a TrafficRouting; holders are its holders as messages name them.
func Decide(t *v1alpha1.TrafficRouting, holders string) Action {
	held := len(t.Status.Holders) > 0
	kept := slices.ContainsFunc(t.Finalizers, func(f string) bool {
		return f == v1alpha1.FinalizerTrafficRouting || IsLeftover(f)
	})
	switch {
	case t.Deleting && !held:
		return Action{RemoveFinalizers: kept}
	case t.Status.Phase == v1alpha1.TrafficFinalizing: // its last holder writes the next phase
		return Action{}
	case held && t.Deleting && t.Status.Phase != v1alpha1.TrafficTerminating:
		phase, message := HeldStatus(t, holders)
		return Action{WriteStatus: true, Phase: phase, Message: message}
	case held:
		return Action{}
	}
	phase, message := IdleStatus()
	return Action{WriteStatus: t.Status.Phase != phase || t.Status.ObservedGeneration != t.Generation, Phase: phase,
		Message: message}
}
