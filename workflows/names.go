// Package workflows holds the durable processes of Slipway, one file per Temporal workflow type.
// Their code decides nothing by itself: decisions are made in release/, effects in activities, which it knows by name and message only.
package workflows

import (
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

// QueueEngine is the task queue of all workflows and of the centre's own activities.
const QueueEngine = catalog.EngineQueue

// The workflow types.
const (
	TypeDeployPlan     = "DeployPlan"
	TypeServiceRelease = "ServiceRelease"
	TypePreflight      = "Preflight"
	TypeRollout        = "Rollout"
	TypeServing        = "Serving"
	TypeServingStatus  = serving.TypeStatus
	// TypeServingCheck has a party's worker that has just started look for what should be there.
	TypeServingCheck = serving.TypeCheck
)

// The error types with which a DeployPlan whose task failed and a Rollout that closes in phase Failed end, so that Temporal shows them as
// failed.
const (
	TypeTaskFailed    = "TaskFailed"
	TypeRolloutFailed = "RolloutFailed"
)

// The SlipwayKind of each. Its SlipwayState is the task's state, the rollout's phase, the stage of an operation on a serving; SlipwayName
// the name, or ID.
const (
	KindTask    = "task"
	KindRollout = "rollout"
	KindServing = "serving"
)

// QueryState answers the whole status: plan.Task for DeployPlan, plan.ServiceStatus for ServiceRelease, rollout.Status for Rollout,
// ServingState for Serving.
const QueryState = workloadops.QueryState
