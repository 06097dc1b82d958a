package drift

import (
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
)

// Holding is what a rollout holds, as it stands on its workload.
type Holding struct {
	Workload catalog.Workload
	Claim    string
	// Routings are those of its strategy; Services says that it pins Services and makes canary Services.
	Routings []strategy.Routing
	Services bool
	// Loose says that somebody else's edit lets the workload's own controller move pods though they are to rest.
	Loose bool
	// Moves says that it doesn't rest: its pods move, or it goes home. Here says that an attempt of this process is at work on it: what goes away beside it
	// otherwise may be another worker's doing.
	Moves, Here bool
}

// Holdings knows what the rollouts of a cluster hold.
type Holdings interface {
	// Held is what the rollout with a claim holds; false when no workload carries that claim.
	Held(claim string) (Holding, bool)
	// OnHolding has f called whenever a workload with routings, or the extra workload beside it, has changed. It is to be called before the
	// watch begins.
	OnHolding(f func(Holding))
}
