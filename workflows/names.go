// Package workflows holds the durable processes of Slipway, one file per Temporal workflow type.
// Their code decides nothing by itself: decisions are made in release/, effects in activities, which it knows by name and message only.
package workflows

import (
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/workloadops"
)

// QueueEngine is the task queue of all workflows and of the centre's own activities.
const QueueEngine = catalog.EngineQueue

// The workflow types.
const (
	TypeDeployPlan     = "DeployPlan"
	TypeServiceRelease = "ServiceRelease"
	TypePreflight      = "Preflight"
)

// QueryState answers the whole status of a release: plan.Task for DeployPlan, plan.ServiceStatus for ServiceRelease, rollout.Status for Rollout.
const QueryState = workloadops.QueryState

// KindTask is the SlipwayKind of a task.
const KindTask = "task"

// The search attributes. The worker registers them at its start.
var (
	AttributeKind         = temporal.NewSearchAttributeKeyKeyword("SlipwayKind")
	AttributeState        = temporal.NewSearchAttributeKeyKeyword(workloadops.SearchAttributeState)
	AttributeName         = temporal.NewSearchAttributeKeyKeyword("SlipwayName")
	AttributeNamespace    = temporal.NewSearchAttributeKeyKeyword("SlipwayNamespace")
	AttributeWaitingFor   = temporal.NewSearchAttributeKeyKeyword("SlipwayWaitingFor")
	AttributeWaitingSince = temporal.NewSearchAttributeKeyTime("SlipwayWaitingSince")
	AttributeParties      = temporal.NewSearchAttributeKeyKeywordList("SlipwayParties")
	AttributeServices     = temporal.NewSearchAttributeKeyKeywordList("SlipwayServices")
)

// SearchAttributes are what lists and filters are made of.
var SearchAttributes = []temporal.SearchAttributeKey{
	AttributeKind, AttributeState, AttributeName, AttributeNamespace, AttributeWaitingFor, AttributeWaitingSince, AttributeParties, AttributeServices,
}
