package store

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// Snapshot is what a task runs, from its record.
func (s *Store) Snapshot(ctx context.Context, task string) (plan.Snapshot, error) {
	record, err := s.GetRecord(ctx, task)
	if err != nil {
		return plan.Snapshot{}, err
	}
	var snapshot plan.Snapshot
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &snapshot); err != nil {
		return plan.Snapshot{}, failure.New(failure.Refused, "the record of task %s cannot be read: %v", task, err)
	}
	return snapshot, nil
}

// PlanOfTask is the plan that a task executes, "" when the task has no record any more.
func (s *Store) PlanOfTask(ctx context.Context, task string) (string, error) {
	record, err := s.GetRecord(ctx, task)
	if failure.Is(err, failure.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return record.Spec.Subject, nil
}

// Live is which task has taken a plan, and the plan's version when that was read.
type Live struct {
	// Task is the newest task of the plan, "" when the plan has none or is gone.
	Task            string
	ResourceVersion string
}

// LiveTask reads which task has taken a plan.
func (s *Store) LiveTask(ctx context.Context, name string) (Live, error) {
	found, err := s.GetPlan(ctx, name)
	if failure.Is(err, failure.NotFound) {
		return Live{}, nil
	}
	if err != nil {
		return Live{}, err
	}
	return Live{Task: found.Status.Task, ResourceVersion: found.ResourceVersion}, nil
}

// CompleteTask writes the final task into its record and keeps the newest keep records of its plan (0: keepRecords). Repeating it changes
// nothing.
func (s *Store) CompleteTask(ctx context.Context, task plan.Task, keep int) error {
	body, err := v1alpha1.EncodeBody(task)
	if err != nil {
		return failure.New(failure.Refused, "the record of task %s cannot be written: %v", task.ID, err)
	}
	outcome := v1alpha1.ReleaseOutcome{State: string(task.State), Reason: task.Reason, Body: body}
	if task.StartedAt != nil {
		outcome.StartedAt = &metav1.MicroTime{Time: *task.StartedAt}
	}
	if task.FinishedAt != nil {
		outcome.FinishedAt = &metav1.MicroTime{Time: *task.FinishedAt}
	}
	if task.Workflow != nil {
		outcome.RunID = task.Workflow.RunID
	}
	if err := s.CompleteRecord(ctx, task.ID, outcome); err != nil {
		return err
	}
	_, err = s.PruneRecords(ctx, v1alpha1.KindTask, task.Plan, v1alpha1.RecordName(v1alpha1.KindTask, task.ID), keep)
	return err
}
