package start

import (
	"context"
	"time"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/v1alpha1"
)

// RecordName is the name of the release's record; without a key each attempt has a new one.
func (s *Start) RecordName() string {
	if s.ID == "" {
		s.ID = s.newID(time.Now().UTC())
	}
	return v1alpha1.RecordName(s.Kind, s.ID)
}

// write writes what the release was asked, before anything of it exists elsewhere.
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
	if failure.Is(err, failure.Conflict) { // a twin with the same key was faster, or chance drew an ID twice
		if s.Key == "" {
			s.ID = ""
		}
		s.doubted = true
		return ErrAgain
	}
	if err != nil {
		return err
	}
	failpoint.Hit("start.record.after")
	s.Written = record
	return nil
}

// keep writes an adopted record again if the one who wrote it first has withdrawn it meanwhile: a release without its record cannot run.
func (s *Start) keep(ctx context.Context) error {
	record := s.Written.DeepCopy()
	record.ResourceVersion, record.UID = "", ""
	err := s.backend.Home.CreateRecord(ctx, record)
	if failure.Is(err, failure.Conflict) {
		return nil
	}
	return err
}

// Withdraw takes back the record of a release that was not started. What an earlier request wrote is that request's to take back. A record
// that stays behind, because the home cluster is away now, reads as a release that was never started.
func (s *Start) Withdraw(ctx context.Context) {
	if s.Adopted {
		s.Forget()
		return
	}
	s.Discard(ctx)
}

// Discard takes back the record of a release that was not started, whoever wrote it.
func (s *Start) Discard(ctx context.Context) {
	if s.Written == nil {
		return
	}
	failpoint.Hit("start.withdraw.before")
	err := failure.Ignore(s.backend.Home.DeleteRelease(ctx, s.Written.Name), failure.NotFound)
	failpoint.Hit("start.withdraw.after")
	if err != nil {
		s.backend.Log.Warn("the record of a release that was not started stays behind", "record", s.Written.Name, "error", err)
	}
	s.Forget()
}

// Forget has the next attempt look for the record anew.
func (s *Start) Forget() {
	s.Written, s.Adopted, s.doubted = nil, false, true
	if s.Key == "" {
		s.ID = ""
	}
}
