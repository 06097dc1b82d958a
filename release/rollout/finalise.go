package rollout

// Ending is where a rollout is brought to at its end.
type Ending string

// The endings. EndSuccess is the end of the steps, EndNew a stop to new before it, EndRollback a rollback or a stop to stable.
const (
	EndNone     Ending = ""
	EndSuccess  Ending = "success"
	EndNew      Ending = "new"
	EndRollback Ending = "rollback"
	EndFrozen   Ending = "frozen"
	// EndGone cleans up after a workload that was deleted.
	EndGone Ending = "gone"
)

// side is the version that an ending leaves the pods at.
func (e Ending) side() Side {
	if e == EndSuccess || e == EndNew {
		return SideNew
	}
	return SideStable
}

// phase is the phase that an ending ends in.
func (e Ending) phase() Phase {
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
	finalRelease = FinalMove(FinishRelease)
	finalFreeze  = FinalMove(FinishFreeze)
	finalBoth    = FinalMove(FinishResumeAndRelease)
	finalScalers = FinalMove(FinishAutoscalers)
	// finalLeave leaves a shared TrafficRouting.
	finalLeave FinalMove = "LeaveTrafficRouting"
)

// finaliseBack is the order of every rollback: traffic leaves the new version before its pods do, and the stable Service is pinned to the
// stable pods until no new one is left. The claim goes last: what is not yet given back stays somebody's.
var finaliseBack = []FinalMove{finalLeave, finalStable, finalResume, finalUnpin, finalRemove, finalRelease}

// finalising is the order of finalising by style and ending (kruise-semantics §2.3).
var finalising = map[Style]map[Ending][]FinalMove{
	StylePartition: {
		EndSuccess:  {finalUnpin, finalStable, finalRemove, finalResume, finalLeave, finalRelease},
		EndNew:      {finalUnpin, finalStable, finalRemove, finalResume, finalLeave, finalRelease},
		EndRollback: finaliseBack,
	},
	StyleCanary: {
		// The extra workload carries its share until the workload itself is of the new version.
		EndSuccess:  {finalUnpin, finalResume, finalStable, finalRemove, finalLeave, finalRelease},
		EndNew:      {finalUnpin, finalResume, finalStable, finalRemove, finalLeave, finalRelease},
		EndRollback: finaliseBack,
	},
	StyleBlueGreen: {
		EndSuccess: {finalNew, finalUnpin, finalResume, finalStable, finalRemove, finalLeave, finalRelease},
		// A stop may come while there are few new pods: traffic spreads over all of them instead of going to the new ones.
		EndNew:      {finalUnpin, finalStable, finalRemove, finalResume, finalLeave, finalRelease},
		EndRollback: finaliseBack,
	},
}

var (
	finaliseFrozen = []FinalMove{finalFreeze}
	// finaliseUntouched is a stop to frozen before the first change: there is no split to be left.
	finaliseUntouched = []FinalMove{finalLeave, finalRelease}
	finaliseGone      = []FinalMove{finalUnpin, finalStable, finalRemove, finalLeave, finalScalers}
)

// borrowed is what there is to be given back.
type borrowed struct {
	style    Style
	traffic  bool
	services bool
	shared   bool
	// autoscalers says that autoscalers may be pinned.
	autoscalers bool
	// untouched says that nothing was changed under the claim.
	untouched bool
}

// finalMoves lists the moves of finalising for what was borrowed, in their order. Without traffic the pods cost one activity.
func finalMoves(b borrowed, ending Ending) []FinalMove {
	table := finalising[b.style][ending]
	switch {
	case ending == EndFrozen && !b.untouched:
		return finaliseFrozen
	case ending == EndFrozen:
		table = finaliseUntouched
	case ending == EndGone:
		table = finaliseGone
	}
	var moves []FinalMove
	for _, move := range table {
		switch move {
		case finalStable, finalNew:
			if !b.traffic {
				continue
			}
		case finalUnpin, finalRemove:
			if !b.traffic || !b.services {
				continue
			}
		case finalLeave:
			if !b.shared {
				continue
			}
		case finalScalers:
			if !b.autoscalers {
				continue
			}
		}
		moves = append(moves, move)
	}
	if n := len(moves); !b.traffic && n >= 2 && moves[n-2] == finalResume && moves[n-1] == finalRelease {
		return append(moves[:n-2:n-2], finalBoth)
	}
	return moves
}
