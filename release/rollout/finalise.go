package rollout

import (
	"slices"

	"slipway.io/slipway/release/rollout/strategy"
)

// Ending is where a rollout is brought to at its end.
type Ending string

// The endings. EndSuccess is the end of the steps, EndNew a stop to new before it, EndRollback a rollback or a stop to stable.
const (
	EndNone     Ending = ""
	EndSuccess  Ending = "success"
	EndNew      Ending = "new"
	EndRollback Ending = "rollback"
	EndFrozen   Ending = "frozen"
	// EndDetached lets go: everything is given back at once, and the workload's own controller brings its pods to the template that stands.
	EndDetached Ending = "detached"
	// EndGone cleans up after a workload that was deleted.
	EndGone Ending = "gone"
)

// Side is the version that an ending leaves the pods at.
func (e Ending) Side() Side {
	if e == EndSuccess || e == EndNew {
		return SideNew
	}
	return SideStable
}

// Phase is the phase that an ending ends in.
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

// FinalMove is one move of finalising, by the name that status.finalisingStep shows: a RouteAction, a FinishAction, or FinalLeave.
type FinalMove string

// The moves of finalising.
const (
	finalUnpin   = FinalMove(RouteUnpin)
	finalStable  = FinalMove(RouteToStable)
	finalNew     = FinalMove(RouteToNew)
	finalRemove  = FinalMove(RouteRemoveCanary)
	finalResume  = FinalMove(FinishResume)
	FinalRelease = FinalMove(FinishRelease)
	finalFreeze  = FinalMove(FinishFreeze)
	finalBoth    = FinalMove(FinishResumeAndRelease)
	finalScalers = FinalMove(FinishAutoscalers)
	// finalLeave leaves a shared TrafficRouting.
	FinalLeave FinalMove = "LeaveTrafficRouting"
)

// finaliseInPlace ends a rollout in place. In a blue-green that is stopped to new, traffic spreads over all pods too: few may be new yet.
var finaliseInPlace = []FinalMove{finalUnpin, finalStable, finalRemove, finalResume, FinalLeave, FinalRelease}

// finaliseBack is the order of every rollback: traffic leaves the new version before its pods do, and the stable Service is pinned to the
// stable pods until no new one is left. The claim goes last: what is not yet given back stays somebody's.
var finaliseBack = []FinalMove{FinalLeave, finalStable, finalResume, finalUnpin, finalRemove, FinalRelease}

// finalising is the order of finalising by style and ending.
var finalising = map[strategy.Style]map[Ending][]FinalMove{
	strategy.StylePartition: {EndSuccess: finaliseInPlace, EndNew: finaliseInPlace, EndRollback: finaliseBack},
	strategy.StyleCanary: {
		// The extra workload carries its share until the workload itself is of the new version.
		EndSuccess:  {finalUnpin, finalResume, finalStable, finalRemove, FinalLeave, FinalRelease},
		EndNew:      {finalUnpin, finalResume, finalStable, finalRemove, FinalLeave, FinalRelease},
		EndRollback: finaliseBack,
	},
	strategy.StyleBlueGreen: {
		EndSuccess:  {finalNew, finalUnpin, finalResume, finalStable, finalRemove, FinalLeave, FinalRelease},
		EndNew:      finaliseInPlace,
		EndRollback: finaliseBack,
	},
}

var (
	finaliseFrozen = []FinalMove{finalFreeze}
	// finaliseUntouched is a stop to frozen before the first change: there is no split to be left.
	finaliseUntouched = []FinalMove{FinalLeave, FinalRelease}
	finaliseDetached  = []FinalMove{finalUnpin, finalStable, finalRemove, FinalLeave, FinalRelease}
	finaliseGone      = []FinalMove{finalUnpin, finalStable, finalRemove, FinalLeave, finalScalers}
)

// Borrowed is what there is to be given back.
type Borrowed struct {
	Style    strategy.Style
	Traffic  bool
	Services bool
	Shared   bool
	// autoscalers says that autoscalers may be pinned.
	Autoscalers bool
	// untouched says that nothing was changed under the claim.
	Untouched bool
}

// FinalMoves lists the moves of finalising for what was borrowed, in their order. Without traffic the pods cost one activity.
func FinalMoves(b Borrowed, ending Ending) []FinalMove {
	table := finalising[b.Style][ending]
	switch {
	case ending == EndFrozen && !b.Untouched:
		return finaliseFrozen
	case ending == EndFrozen:
		table = finaliseUntouched
	case ending == EndDetached:
		table = finaliseDetached
	case ending == EndGone:
		table = finaliseGone
	}
	routed, pinned := b.Traffic, b.Traffic && b.Services
	borrowed := map[FinalMove]bool{finalStable: routed, finalNew: routed, finalUnpin: pinned, finalRemove: pinned, FinalLeave: b.Shared,
		finalScalers: b.Autoscalers}
	moves := slices.DeleteFunc(slices.Clone(table), func(move FinalMove) bool {
		needed, optional := borrowed[move]
		return optional && !needed
	})
	if n := len(moves); !b.Traffic && n >= 2 && moves[n-2] == finalResume && moves[n-1] == FinalRelease {
		return append(moves[:n-2:n-2], finalBoth)
	}
	return moves
}

// RepairMoves are the moves that bring a workload and its traffic home to one version from what stands on the workload, in the order of
// finalising. A shared TrafficRouting is left to the engine, which alone knows its other holders.
func RepairMoves(saved Saved, to Side) []FinalMove {
	ending := EndRollback
	if to == SideNew {
		ending = EndNew
	}
	return FinalMoves(Borrowed{Style: saved.Style, Traffic: len(saved.Routings) > 0, Services: !saved.DisableGenerateCanaryService}, ending)
}

// Route is the change of the traffic that a move is; false when it is none.
func (f FinalMove) Route() (RouteAction, bool) {
	switch f {
	case finalUnpin, finalStable, finalNew, finalRemove:
		return RouteAction(f), true
	}
	return "", false
}
