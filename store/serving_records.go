package store

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
)

// RecordServing writes the record of an operation on a serving that begins. One that is already there is its own.
func (s *Store) RecordServing(ctx context.Context, asked serving.Asked) error {
	name := v1alpha1.RecordName(v1alpha1.KindServing, asked.RunID)
	snapshot, err := v1alpha1.EncodeBody(asked)
	if err != nil {
		return failure.New(failure.Refused, "record %s cannot be written: %v", name, err)
	}
	in := asked.Input
	err = s.CreateRecord(ctx, &v1alpha1.ReleaseRecord{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelKind: v1alpha1.KindServing, v1alpha1.LabelSubject: v1alpha1.SubjectLabel(in.ID)}},
		Spec: v1alpha1.ReleaseRecordSpec{Kind: v1alpha1.KindServing, Subject: in.ID,
			Comment:    fmt.Sprintf("%s, generation %d", in.Kind, in.Generation),
			WorkflowID: asked.WorkflowID, CreatedAt: metav1.MicroTime{Time: asked.StartedAt}, Snapshot: snapshot},
	})
	if failure.Is(err, failure.Conflict) {
		return nil
	}
	return err
}

// CompleteServing writes how an operation on a serving ended into its record and keeps the newest keep records of that serving (0:
// keepRecords). Repeating it changes nothing; an ending with more decisions than the record has takes its place.
func (s *Store) CompleteServing(ctx context.Context, name string, end serving.Ending, keep int) error {
	for range maxAttempts {
		record, err := s.GetRelease(ctx, name)
		if err != nil {
			return err
		}
		err = s.endServing(ctx, record, end)
		if failure.Is(err, failure.Conflict) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = s.PruneRecords(ctx, v1alpha1.KindServing, record.Labels[v1alpha1.LabelSubject], name, keep)
		return err
	}
	return failure.New(failure.Conflict, "record %s keeps being changed by somebody else: repeat", name)
}

// endServing writes an ending into a record as it was read.
func (s *Store) endServing(ctx context.Context, record *v1alpha1.ReleaseRecord, end serving.Ending) error {
	var asked serving.Asked
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &asked); err != nil {
		return failure.New(failure.Refused, "record %s: %v", record.Name, err)
	}
	release := asked.Release()
	if record.Outcome != nil {
		if err := v1alpha1.DecodeBody(record.Outcome.Body, &release); err != nil {
			return failure.New(failure.Refused, "record %s: %v", record.Name, err)
		}
		if release.Knows(end) {
			return nil
		}
	}
	body, err := v1alpha1.EncodeBody(release.Ended(end))
	if err != nil {
		return failure.New(failure.Refused, "record %s cannot be written: %v", record.Name, err)
	}
	return s.writeOutcome(ctx, record, v1alpha1.ReleaseOutcome{State: string(end.State), Reason: end.Reason, RunID: asked.RunID, Body: body,
		StartedAt: &metav1.MicroTime{Time: asked.StartedAt}, FinishedAt: &metav1.MicroTime{Time: end.At}})
}
