package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
)

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
		if err := s.prune(ctx, old); err != nil && !failure.Is(err, failure.NotFound) {
			return pruned, err
		}
		pruned++
	}
	return pruned, s.dropOldKeys(ctx, subject)
}

// completeRecords are the completed records of a subject, newest first, without their bodies.
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
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
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
		"outcome":  map[string]any{"body": emptied},
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
		if err := s.prune(ctx, old); err != nil && !failure.Is(err, failure.NotFound) {
			return err
		}
	}
	return nil
}
