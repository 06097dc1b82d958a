package start

import (
	"context"
	"time"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/v1alpha1"
)

// RecordName is the name of the release's record. Without a key, each attempt uses a new one.
func (s *Start) RecordName() string {
	if s.ID == "" {
		s.ID = s.newID(time.Now().UTC())
	}
	return v1alpha1.RecordName(s.Kind, s.ID)
}

// write creates the release's record, before anything else of the release exists.
func (s *Start) write(ctx context.Context) error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	name := s.RecordName()
	record, err := s.release.Record(s.ID, now)
	if err != nil {
		return err
	}
	record.Name = name
	record.Labels[v1alpha1.LabelKind], record.Labels[v1alpha1.LabelVia] = s.Kind, s.Via
	if s.Key != "" {
		record.Labels[v1alpha1.LabelIdempotencyKey] = KeyLabel(s.Key)
	}
	record.Spec.Kind, record.Spec.Subject, record.Spec.CreatedAt = s.Kind, s.Subject, instant.MicroOf(now)
	record.Spec.Actor, record.Spec.Reason, record.Spec.RequestDigest = s.Actor, s.Reason, s.digest()
	failpoint.Hit("start.record.before")
	err = s.backend.Home.CreateRecord(ctx, record)
	// a concurrent request with the same key was faster, or the random ID is in use
	if failure.Is(err, failure.Conflict) {
		if s.Key == "" {
			s.ID = ""
		}
		s.bypassCache = true
		return ErrRetry
	}
	if err != nil {
		return err
	}
	failpoint.Hit("start.record.after")
	s.Written = record
	return nil
}

// ensureRecord creates an adopted record again if the request that wrote it has withdrawn it in the meantime: a release
// cannot run without its record.
func (s *Start) ensureRecord(ctx context.Context) error {
	record := s.Written.DeepCopy()
	record.ResourceVersion, record.UID = "", ""
	err := s.backend.Home.CreateRecord(ctx, record)
	if failure.Is(err, failure.Conflict) {
		return nil
	}
	return err
}

// Withdraw deletes the record of a release that was not started. It leaves a record that an earlier request wrote to
// that request. A record that remains, because the home cluster is unreachable, reads as a release that was never
// started.
func (s *Start) Withdraw(ctx context.Context) {
	if s.Adopted {
		s.Reset()
		return
	}
	s.Discard(ctx)
}

// Discard deletes the record of a release that was not started, even if another request wrote it.
func (s *Start) Discard(ctx context.Context) {
	if s.Written == nil {
		return
	}
	failpoint.Hit("start.withdraw.before")
	err := failure.Ignore(s.backend.Home.DeleteRelease(ctx, s.Written.Name), failure.NotFound)
	failpoint.Hit("start.withdraw.after")
	if err != nil {
		s.backend.Log.Warn("the record of a release that was not started could not be deleted", "record",
			s.Written.Name, "error", err)
	}
	s.Reset()
}

// Reset makes the next attempt look for the record again, bypassing the cache.
func (s *Start) Reset() {
	s.Written, s.Adopted, s.bypassCache = nil, false, true
	if s.Key == "" {
		s.ID = ""
	}
}
