package rollout

// RepairMoves are the moves that bring a workload and its traffic home to one version from what stands on the workload, in the order of
// finalising. A shared TrafficRouting is left to the engine, which alone knows its other holders.
func RepairMoves(saved Saved, to Side) []FinalMove {
	ending := EndRollback
	if to == SideNew {
		ending = EndNew
	}
	return finalMoves(borrowed{style: saved.Style, traffic: len(saved.Routings) > 0, services: !saved.DisableGenerateCanaryService}, ending)
}

// Route is the change of the traffic that a move is; false when it is none.
func (f FinalMove) Route() (RouteAction, bool) {
	switch f {
	case finalUnpin, finalStable, finalNew, finalRemove:
		return RouteAction(f), true
	}
	return "", false
}
