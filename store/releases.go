package store

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
)

// GetRelease reads the whole record of that name. One that is kept for its Idempotency-Key only is not found.
func (s *Store) GetRelease(ctx context.Context, name string) (*v1alpha1.ReleaseRecord, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	record, err := s.records.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, failed(err, "record "+name)
	}
	if record.Labels[v1alpha1.LabelKind] == v1alpha1.KindKey {
		return nil, failure.New(failure.NotFound, "record %s is not kept any more", name)
	}
	return record, nil
}

// CompleteRelease writes what became of a release into its record. The first outcome stays: to complete a complete record again changes
// nothing.
func (s *Store) CompleteRelease(ctx context.Context, name string, outcome v1alpha1.ReleaseOutcome) error {
	for range maxAttempts {
		record, err := s.GetRelease(ctx, name)
		if err != nil {
			return err
		}
		if record.Outcome != nil {
			return nil
		}
		err = s.writeOutcome(ctx, record, outcome)
		if !failure.Is(err, failure.Conflict) {
			return err
		}
	}
	return failure.New(failure.Conflict, "record %s keeps being changed by somebody else: repeat", name)
}

// DeleteRelease deletes the record of that name.
func (s *Store) DeleteRelease(ctx context.Context, name string) error {
	call, cancel := bounded(ctx)
	defer cancel()
	if err := s.records.Delete(call, name, metav1.DeleteOptions{}); err != nil {
		return failed(err, "record "+name)
	}
	s.awaitGone(ctx, name)
	return nil
}

// CompleteRollout writes the final status of a rollout into its record and keeps the newest keep records of its name (0: keepRecords).
// Repeating it changes nothing.
func (s *Store) CompleteRollout(ctx context.Context, record string, status rollout.Status, keep int) error {
	body, err := v1alpha1.EncodeBody(status)
	if err != nil {
		return failure.New(failure.Refused, "record %s cannot be written: %v", record, err)
	}
	outcome := v1alpha1.ReleaseOutcome{State: string(status.Phase), Reason: status.Reason, Body: body,
		StartedAt: &metav1.MicroTime{Time: status.CreatedAt}}
	if status.FinishedAt != nil {
		outcome.FinishedAt = &metav1.MicroTime{Time: *status.FinishedAt}
	}
	if status.Workflow != nil {
		outcome.RunID = status.Workflow.RunID
	}
	if err := s.CompleteRelease(ctx, record, outcome); err != nil {
		return err
	}
	subject := v1alpha1.SubjectLabel(v1alpha1.RolloutSubject(status.Party, status.Namespace, status.Name))
	_, err = s.PruneRecords(ctx, v1alpha1.KindRollout, subject, record, keep)
	return err
}
