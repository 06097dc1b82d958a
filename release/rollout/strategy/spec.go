package strategy

import (
	"encoding/json"

	"slipway.io/slipway/release/catalog"
)

// Spec is one release of one workload, as it was asked: what the record keeps and the workflow runs.
type Spec struct {
	Party       string              `json:"party"`
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	WorkloadRef catalog.WorkloadRef `json:"workloadRef"`
	Strategy    Strategy            `json:"strategy"`
	Policy      Policy              `json:"policy"`
	Change      Change              `json:"change"`
	// RolloutID is the caller's own number of the release (annotation rollouts.kruise.io/rollout-id); kept and shown.
	RolloutID string `json:"rolloutId,omitempty"`
}

// Workload is the workload as the catalogue would name it.
func (s Spec) Workload() catalog.Workload {
	return catalog.Workload{Party: s.Party, Namespace: s.Namespace, WorkloadRef: s.WorkloadRef}
}

// Change is what the new version differs in: images by container (init containers too), or a patch of the pod template. Exactly one is set.
type Change struct {
	Images map[string]string `json:"images,omitempty"`
	// TemplatePatch is merged into the pod template: a strategic merge patch for kinds of apps/v1, a JSON merge patch otherwise.
	// At most MaxTemplatePatch bytes.
	TemplatePatch json.RawMessage `json:"templatePatch,omitempty"`
}

// MaxTemplatePatch bounds a patch, in bytes: it travels through the workflow's history.
const MaxTemplatePatch = 64 << 10

// OnFailure is what happens when a step fails or an approval expires.
type OnFailure string

// What can happen.
const (
	OnFailurePause    OnFailure = "pause"
	OnFailureRollback OnFailure = "rollback"
)

// Policy is Slipway's own addition beside the strategy. The decoder fills in the defaults.
type Policy struct {
	// StepDeadlineSeconds is how long a step's pods may take to get ready; time in which the cluster cannot be reached does not count. Default 600.
	StepDeadlineSeconds int64 `json:"stepDeadlineSeconds"`
	// SettleSeconds is how long a release waits, before it claims the workload, for the workload's own update to finish; 0: not at all. Default 60.
	SettleSeconds int64     `json:"settleSeconds,omitempty"`
	OnFailure     OnFailure `json:"onFailure"`
	// ApprovalExpiresSeconds is how long a step waits for a person; 0: for ever.
	ApprovalExpiresSeconds int64     `json:"approvalExpiresSeconds,omitempty"`
	OnExpiry               OnFailure `json:"onExpiry"`
	// RollbackInBatches has a rollback go through the steps, pauses included (annotation rollouts.kruise.io/rollback-in-batch). Only with StylePartition.
	RollbackInBatches bool `json:"rollbackInBatches,omitempty"`
}

// What holds when the policy does not say: a step's deadline, and the time for a workload's own update to finish.
const (
	DefaultStepDeadlineSeconds = 600
	DefaultSettleSeconds       = 60
)
