package rollout

import (
	"time"

	"slipway.io/slipway/release/rollout/strategy"
)

// The centre's activities for the rollouts of a plan's task, which the task's own workflow starts.
const (
	// ActivityRecordRollout writes the record of a rollout that begins. RecordRequest → Recorded.
	ActivityRecordRollout = "home.RecordRollout"
	// ActivityWithdrawRollout deletes the record of a rollout that was not started after all. WithdrawRequest →
	// nothing.
	ActivityWithdrawRollout = "home.WithdrawRollout"
)

// RecordRequest is a rollout of a task: the one of item Item, counted from 1.
type RecordRequest struct {
	Task string        `json:"task"`
	Item int           `json:"item"`
	Spec strategy.Spec `json:"spec"`
}

// Recorded is what the record contains in addition to the spec.
type Recorded struct {
	Record    string    `json:"record"`
	CreatedAt time.Time `json:"createdAt"`
	// Revision is the release's number in the history of its name.
	Revision int64 `json:"revision"`
	// Actor, Reason and Via are those of the task.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Via    string `json:"via,omitempty"`
}

// WithdrawRequest names a record.
type WithdrawRequest struct {
	Record string `json:"record"`
}
