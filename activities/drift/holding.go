package drift

import (
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
)

// Holding is what a rollout holds, as recorded on its workload.
type Holding struct {
	Workload catalog.Workload
	Claim    string
	// Routings are those of its strategy. Services is true when it pins Services and makes canary Services.
	Routings []strategy.Routing
	Services bool
	// Unsettled is true when an edit by another client lets the workload's own controller move pods that should not
	// move.
	Unsettled bool
	// Moving is true when the pods move or the workload is being finalised. ActiveHere is true when an attempt of this
	// process works on the workload; otherwise the deletion of a related object may be another worker's.
	Moving, ActiveHere bool
}

// Holdings finds what the rollouts of a cluster hold.
type Holdings interface {
	// Held returns what the rollout with a claim holds; false when no workload carries that claim.
	Held(claim string) (Holding, bool)
	// OnHolding registers f, which is called when a workload with routings, or its extra workload, has changed. It must
	// be called before the watch starts.
	OnHolding(f func(Holding))
}
