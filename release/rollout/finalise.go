package rollout

import (
	"slices"

	"slipway.io/slipway/release/rollout/strategy"
)

// Ending is what a rollout is finalised to.
type Ending string

// The endings. EndSuccess is the end of the steps, EndNew a stop to new before it, EndRollback a rollback or a stop to
// stable.
const (
	EndNone     Ending = ""
	EndSuccess  Ending = "success"
	EndNew      Ending = "new"
	EndRollback Ending = "rollback"
	EndFrozen   Ending = "frozen"
	// EndDetached restores everything at once and lets the workload's own controller bring its pods to the current
	// template.
	EndDetached Ending = "detached"
	// EndDeleted cleans up after a workload that was deleted.
	EndDeleted Ending = "gone"
)

// Side returns the version that an ending leaves the pods at.
func (e Ending) Side() Side {
	if e == EndSuccess || e == EndNew {
		return SideNew
	}
	return SideStable
}

// Phase returns the phase that an ending ends in.
func (e Ending) Phase() Phase {
	switch e {
	case EndSuccess, EndNew:
		return PhaseHealthy
	case EndRollback:
		return PhaseRolledBack
	default:
		return PhaseCancelled
	}
}

// FinalMove is one move of finalising, by the name that status.finalisingStep shows: a RouteAction, a FinishAction, or
// FinalLeave.
type FinalMove string

const (
	// FinalRelease ends the finalising of a workload.
	FinalRelease = FinishRelease
	// FinalLeave leaves a shared TrafficRouting.
	FinalLeave FinalMove = "LeaveTrafficRouting"
)

// finalising returns the order of finalising, before what was not borrowed is left out.
func finalising(b Borrowed, ending Ending) []FinalMove {
	succeeds := ending == EndSuccess || ending == EndNew
	switch {
	case ending == EndFrozen && b.Untouched: // there is no split to leave
		return []FinalMove{FinalLeave, FinalRelease}
	case ending == EndFrozen:
		return []FinalMove{FinishFreeze}
	case ending == EndDetached:
		return []FinalMove{RouteUnpin, RouteToStable, RouteRemoveCanary, FinalLeave, FinalRelease}
	case ending == EndDeleted:
		return []FinalMove{RouteUnpin, RouteToStable, RouteRemoveCanary, FinalLeave, FinishAutoscalers}
	// Traffic leaves the new version before its pods do, and the stable Service is pinned to the stable pods until no
	// new one is left. The claim is released last, so that nothing borrowed is ever without an owner.
	case ending == EndRollback:
		return []FinalMove{FinalLeave, RouteToStable, FinishResume, RouteUnpin, RouteRemoveCanary, FinalRelease}
	// The extra workload carries its share until the workload itself is of the new version.
	case succeeds && b.Style == strategy.StyleCanary:
		return []FinalMove{RouteUnpin, FinishResume, RouteToStable, RouteRemoveCanary, FinalLeave, FinalRelease}
	case ending == EndSuccess && b.Style == strategy.StyleBlueGreen:
		return []FinalMove{RouteToNew, RouteUnpin, FinishResume, RouteToStable, RouteRemoveCanary, FinalLeave, FinalRelease}
	// In a blue-green that is stopped to new, traffic spreads over all pods too: few may be new yet.
	case succeeds:
		return []FinalMove{RouteUnpin, RouteToStable, RouteRemoveCanary, FinishResume, FinalLeave, FinalRelease}
	}
	return nil
}

// Borrowed is what has to be restored.
type Borrowed struct {
	Style    strategy.Style
	Traffic  bool
	Services bool
	Shared   bool
	// Autoscalers is true if autoscalers may be pinned.
	Autoscalers bool
	// Untouched is true if nothing was changed under the claim.
	Untouched bool
}

// FinalMoves returns the moves of finalising for what was borrowed, in order. Without traffic the pods need only one
// activity.
func FinalMoves(b Borrowed, ending Ending) []FinalMove {
	routed, pinned := b.Traffic, b.Traffic && b.Services
	borrowed := map[FinalMove]bool{RouteToStable: routed, RouteToNew: routed, RouteUnpin: pinned,
		RouteRemoveCanary: pinned, FinalLeave: b.Shared, FinishAutoscalers: b.Autoscalers}
	moves := slices.DeleteFunc(finalising(b, ending), func(move FinalMove) bool {
		needed, optional := borrowed[move]
		return optional && !needed
	})
	if n := len(moves); !b.Traffic && n >= 2 && moves[n-2] == FinishResume && moves[n-1] == FinalRelease {
		return append(moves[:n-2:n-2], FinishResumeAndRelease)
	}
	return moves
}

// RepairMoves returns the moves that bring a workload and its traffic to one version, as read from the workload, in the
// order of finalising. A shared TrafficRouting is left to the engine: only the engine knows its other holders.
func RepairMoves(saved Saved, to Side) []FinalMove {
	ending := EndRollback
	if to == SideNew {
		ending = EndNew
	}
	return FinalMoves(Borrowed{Style: saved.Style, Traffic: len(saved.Routings) > 0,
		Services: !saved.DisableGenerateCanaryService}, ending)
}

// Route returns the traffic change that a move is; false: it is none.
func (f FinalMove) Route() (RouteAction, bool) {
	switch f {
	case RouteUnpin, RouteToStable, RouteToNew, RouteRemoveCanary:
		return f, true
	}
	return "", false
}
