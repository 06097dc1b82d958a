package rollout

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
	case FinalUnpin, FinalStable, FinalNew, FinalRemove:
		return RouteAction(f), true
	}
	return "", false
}
