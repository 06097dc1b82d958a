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

// The moves of finalising.
const (
	finalUnpin            = FinalMove(RouteUnpin)
	finalStable           = FinalMove(RouteToStable)
	finalNew              = FinalMove(RouteToNew)
	finalRemove           = FinalMove(RouteRemoveCanary)
	finalResume           = FinalMove(FinishResume)
	FinalRelease          = FinalMove(FinishRelease)
	finalFreeze           = FinalMove(FinishFreeze)
	finalResumeAndRelease = FinalMove(FinishResumeAndRelease)
	finalAutoscalers      = FinalMove(FinishAutoscalers)
	// FinalLeave leaves a shared TrafficRouting.
	FinalLeave FinalMove = "LeaveTrafficRouting"
)

// finaliseInPlace ends a rollout without a rollback. In a blue-green that is stopped to new, traffic spreads over all
// pods too: few may be new yet.
var finaliseInPlace = []FinalMove{finalUnpin, finalStable, finalRemove, finalResume, FinalLeave, FinalRelease}

// finaliseRollback is the order of every rollback: traffic leaves the new version before its pods do, and the stable
// Service is pinned to the stable pods until no new one is left. The claim is released last, so that nothing borrowed
// is ever without an owner.
var finaliseRollback = []FinalMove{FinalLeave, finalStable, finalResume, finalUnpin, finalRemove, FinalRelease}

// finalising is the order of finalising by style and ending.
var finalising = map[strategy.Style]map[Ending][]FinalMove{
	strategy.StylePartition: {EndSuccess: finaliseInPlace, EndNew: finaliseInPlace, EndRollback: finaliseRollback},
	strategy.StyleCanary: {
		// The extra workload carries its share until the workload itself is of the new version.
		EndSuccess:  {finalUnpin, finalResume, finalStable, finalRemove, FinalLeave, FinalRelease},
		EndNew:      {finalUnpin, finalResume, finalStable, finalRemove, FinalLeave, FinalRelease},
		EndRollback: finaliseRollback,
	},
	strategy.StyleBlueGreen: {
		EndSuccess:  {finalNew, finalUnpin, finalResume, finalStable, finalRemove, FinalLeave, FinalRelease},
		EndNew:      finaliseInPlace,
		EndRollback: finaliseRollback,
	},
}

var (
	finaliseFrozen = []FinalMove{finalFreeze}
	// finaliseUntouched is a stop to frozen before the first change: there is no split to leave.
	finaliseUntouched = []FinalMove{FinalLeave, FinalRelease}
	finaliseDetached  = []FinalMove{finalUnpin, finalStable, finalRemove, FinalLeave, FinalRelease}
	finaliseDeleted   = []FinalMove{finalUnpin, finalStable, finalRemove, FinalLeave, finalAutoscalers}
)

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
	table := finalising[b.Style][ending]
	switch {
	case ending == EndFrozen && !b.Untouched:
		return finaliseFrozen
	case ending == EndFrozen:
		table = finaliseUntouched
	case ending == EndDetached:
		table = finaliseDetached
	case ending == EndDeleted:
		table = finaliseDeleted
	}
	routed, pinned := b.Traffic, b.Traffic && b.Services
	borrowed := map[FinalMove]bool{finalStable: routed, finalNew: routed, finalUnpin: pinned, finalRemove: pinned,
		FinalLeave:       b.Shared,
		finalAutoscalers: b.Autoscalers}
	moves := slices.DeleteFunc(slices.Clone(table), func(move FinalMove) bool {
		needed, optional := borrowed[move]
		return optional && !needed
	})
	if n := len(moves); !b.Traffic && n >= 2 && moves[n-2] == finalResume && moves[n-1] == FinalRelease {
		return append(moves[:n-2:n-2], finalResumeAndRelease)
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
	case finalUnpin, finalStable, finalNew, finalRemove:
		return RouteAction(f), true
	}
	return "", false
}
