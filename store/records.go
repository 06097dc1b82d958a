package store

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/v1alpha1"
)

// keepRecords is how many records of one subject are kept unless told otherwise.
const keepRecords = 50

var recordResource = v1alpha1.GroupVersion.WithResource("releaserecords")

// CreateRecord writes the record of a release that begins. A record of that name that is already there is a Conflict.
func (s *Store) CreateRecord(ctx context.Context, record *v1alpha1.ReleaseRecord) error {
	call, cancel := bounded(ctx)
	defer cancel()
	created, err := s.records.Create(call, record, metav1.CreateOptions{})
	if err != nil {
		return failed(err, "record "+record.Name)
	}
	s.awaitSeen(ctx, created.Name, created.ResourceVersion)
	return nil
}

// GetRecord reads the whole record of a task.
func (s *Store) GetRecord(ctx context.Context, task string) (*v1alpha1.ReleaseRecord, error) {
	record, err := s.GetRelease(ctx, v1alpha1.RecordName(v1alpha1.KindTask, task))
	if failure.Is(err, failure.NotFound) {
		return nil, failure.New(failure.NotFound, "task %s does not exist, or its record is not kept any more", task)
	}
	return record, err
}

// GetRelease reads the whole record of that name. One that is kept for its Idempotency-Key only is not found.
func (s *Store) GetRelease(ctx context.Context, name string) (*v1alpha1.ReleaseRecord, error) {
	record, err := s.records.get(ctx, name)
	if err == nil && record.Labels[v1alpha1.LabelKind] == v1alpha1.KindKey {
		return nil, failure.New(failure.NotFound, "record %s is not kept any more", name)
	}
	return record, err
}

// ListRecords lists the records with these labels, newest first, without Snapshot and Body. Once Run keeps up with the records the
// answer comes from memory; what this store wrote itself is always in it. Whoever lists changes none of them: memory is everybody's.
func (s *Store) ListRecords(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	found, err := s.known(ctx, with)
	return newestFirst(found), err
}

// ListNewest is ListRecords with the newest record of each subject alone.
func (s *Store) ListNewest(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	found, err := s.known(ctx, with)
	return newestFirst(newestOfEach(found)), err
}

// known are the records with these labels in any order, from memory if there can be.
func (s *Store) known(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	if s.Watching() {
		return s.seenRecords(with), nil
	}
	return s.FindRecords(ctx, with)
}

// FindRecords is ListRecords from the API server itself: it sees what any other process wrote up to now.
func (s *Store) FindRecords(ctx context.Context, with map[string]string) ([]*v1alpha1.ReleaseRecord, error) {
	selector := labels.SelectorFromSet(with).String()
	found, err := all(func(cursor string) ([]*v1alpha1.ReleaseRecord, string, error) {
		ctx, cancel := bounded(ctx)
		defer cancel()
		list, err := s.records.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: pageSize, Continue: cursor})
		if err != nil {
			return nil, "", failed(err, "the list of records")
		}
		items := make([]*v1alpha1.ReleaseRecord, len(list.Items))
		for i := range list.Items {
			items[i] = &list.Items[i]
			dropBodies(items[i])
		}
		return items, list.Continue, nil
	})
	return newestFirst(found), err
}

// CompleteRelease writes what became of a release into its record. The first outcome stays: to complete a complete record again changes
// nothing.
func (s *Store) CompleteRelease(ctx context.Context, kind, name string, outcome v1alpha1.ReleaseOutcome) error {
	if written, err := s.addOutcome(ctx, kind, name, outcome); written || err != nil {
		return err
	}
	return failure.UntilNoConflict("record "+name, func() error {
		record, err := s.GetRelease(ctx, name)
		if err != nil || record.Outcome != nil {
			return err
		}
		return s.writeOutcome(ctx, record, outcome)
	})
}

// addOutcome writes what became of a release into a record that does not say so yet, without a look at it. written is false when the record is not such a
// one, or is not there.
func (s *Store) addOutcome(ctx context.Context, kind, name string, outcome v1alpha1.ReleaseOutcome) (written bool, err error) {
	call, cancel := bounded(ctx)
	defer cancel()
	patch, err := json.Marshal([]jsonpatch.Op{jsonpatch.Test("/outcome", nil),
		jsonpatch.Test("/metadata/labels/"+jsonpatch.Escape(v1alpha1.LabelKind), kind), jsonpatch.Add("/outcome", outcome),
		jsonpatch.Add("/metadata/labels/"+jsonpatch.Escape(v1alpha1.LabelState), outcome.State)})
	if err != nil {
		return false, failed(err, "record "+name)
	}
	record, err := s.records.Patch(call, name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err == nil {
		s.awaitSeen(ctx, record.Name, record.ResourceVersion)
		return true, nil
	}
	switch kube.Classify(err) {
	case kube.Rejected, kube.Missing, kube.Changed, kube.Refused:
		return false, nil
	default:
		return false, failed(err, "record "+name)
	}
}

func (s *Store) writeOutcome(ctx context.Context, record *v1alpha1.ReleaseRecord, outcome v1alpha1.ReleaseOutcome) error {
	call, cancel := bounded(ctx)
	defer cancel()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": record.ResourceVersion,
			"labels": map[string]string{v1alpha1.LabelState: outcome.State}},
		"outcome": outcome,
	})
	if err != nil {
		return failed(err, "record "+record.Name)
	}
	written, err := s.records.Patch(call, record.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return failed(err, "record "+record.Name)
	}
	s.awaitSeen(ctx, written.Name, written.ResourceVersion)
	return nil
}

// DeleteRecord deletes the record of a task.
func (s *Store) DeleteRecord(ctx context.Context, task string) error {
	return s.DeleteRelease(ctx, v1alpha1.RecordName(v1alpha1.KindTask, task))
}

// DeleteRelease deletes the record of that name.
func (s *Store) DeleteRelease(ctx context.Context, name string) error {
	err := s.records.delete(ctx, name, nil)
	if err == nil {
		s.awaitGone(ctx, name)
	}
	return err
}

func newestFirst(records []*v1alpha1.ReleaseRecord) []*v1alpha1.ReleaseRecord {
	slices.SortFunc(records, byAge)
	return records
}

// byAge has a newer record before an older one.
func byAge(a, b *v1alpha1.ReleaseRecord) int {
	return cmp.Or(b.Spec.CreatedAt.Compare(a.Spec.CreatedAt.Time), cmp.Compare(b.Name, a.Name))
}

// newestOfEach are the newest records of their subjects, in any order.
func newestOfEach(records []*v1alpha1.ReleaseRecord) []*v1alpha1.ReleaseRecord {
	newest := map[string]*v1alpha1.ReleaseRecord{}
	for _, record := range records {
		if other, is := newest[record.Spec.Subject]; !is || byAge(record, other) < 0 {
			newest[record.Spec.Subject] = record
		}
	}
	return slices.Collect(maps.Values(newest))
}

// PruneRecords keeps the newest keep (0: keepRecords) complete records of a subject, and of the older ones nothing but what an
// Idempotency-Key needs for as long as it stands for its task. It says how many it pruned. Never pruned are an incomplete record, since
// its release may be running, and except, the one that has just been completed.
func (s *Store) PruneRecords(ctx context.Context, kind, subject, except string, keep int) (int, error) {
	complete, err := s.completeRecords(ctx, kind, subject)
	if err != nil {
		return 0, err
	}
	keep = cmp.Or(keep, keepRecords)
	pruned := 0
	for _, old := range complete[min(keep, len(complete)):] {
		if old.Name == except {
			continue
		}
		if err := failure.Ignore(s.prune(ctx, old), failure.NotFound); err != nil {
			return pruned, err
		}
		pruned++
	}
	return pruned, s.dropOldKeys(ctx, subject)
}

// completeRecords are the completed records of a subject, newest first, without their bodies. Creation timestamps are of whole seconds: of
// releases within one, their numbers tell which is older.
func (s *Store) completeRecords(ctx context.Context, kind, subject string) ([]metav1.PartialObjectMetadata, error) {
	selector := labels.SelectorFromSet(map[string]string{v1alpha1.LabelKind: kind, v1alpha1.LabelSubject: subject}).String() + "," +
		v1alpha1.LabelState
	call, cancel := bounded(ctx)
	defer cancel()
	list, err := s.metadata.Resource(recordResource).Namespace(s.namespace).List(call, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, failed(err, "the list of records")
	}
	slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(v1alpha1.RevisionOf(&b), v1alpha1.RevisionOf(&a)),
			cmp.Compare(b.Name, a.Name))
	})
	return list.Items, nil
}

// emptied takes the place of a body: the definition wants one.
var emptied = []byte("-")

// prune deletes a record, or takes all but its key from it.
func (s *Store) prune(ctx context.Context, old metav1.PartialObjectMetadata) error {
	if old.Labels[v1alpha1.LabelIdempotencyKey] == "" || time.Since(old.CreationTimestamp.Time) > v1alpha1.KeyLifetime {
		return s.records.delete(ctx, old.Name, nil)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]string{v1alpha1.LabelKind: v1alpha1.KindKey}},
		"spec":     map[string]any{"snapshot": emptied},
		"outcome":  map[string]any{"body": emptied, "packages": nil},
	})
	if err != nil {
		return failed(err, "record "+old.Name)
	}
	call, cancel := bounded(ctx)
	defer cancel()
	_, err = s.records.Patch(call, old.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return failed(err, "record "+old.Name)
}

// dropOldKeys deletes what was left of a subject's pruned records once their keys stand for nothing any more.
func (s *Store) dropOldKeys(ctx context.Context, subject string) error {
	left, err := s.completeRecords(ctx, v1alpha1.KindKey, subject)
	if err != nil {
		return err
	}
	for _, old := range left {
		if time.Since(old.CreationTimestamp.Time) <= v1alpha1.KeyLifetime {
			continue
		}
		if err := failure.Ignore(s.prune(ctx, old), failure.NotFound); err != nil {
			return err
		}
	}
	return nil
}
