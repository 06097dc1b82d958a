package start

import (
	"context"
	"slices"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/release/v1alpha1"
)

// KeyRecords are the records of a kind that an Idempotency-Key stands for, newest first: a key of a task means nothing to rollouts.
func KeyRecords(ctx context.Context, b *backend.Backend, kind, key string) ([]v1alpha1.ReleaseRecord, error) {
	records, err := b.Home.FindRecords(ctx, map[string]string{v1alpha1.LabelIdempotencyKey: KeyLabel(key)})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(records, func(record v1alpha1.ReleaseRecord) bool { return record.Spec.Kind != kind }), nil
}
