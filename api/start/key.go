package start

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
)

// adoptWindow is how long after its record was written a release without a workflow may still be started by a repeat of its request.
// After that a missing workflow may as well be one that Temporal has forgotten, and must not run twice.
const adoptWindow = time.Hour

// lookUpKey finds the release that the key already stands for. done says that there is nothing left to do: ID is that release's. One that
// was recorded but never started is taken on: whoever began it died in between.
func (s *Start) lookUpKey(ctx context.Context) (done bool, err error) {
	records, err := s.keyRecords(ctx)
	if err != nil {
		return false, err
	}
	after := ""
	if len(records) > 0 {
		newest := records[0]
		if isKept(newest) {
			return s.repeat(ctx, newest)
		}
		after = s.idOf(newest)
	}
	for s.ID = s.keyedID(after); ; s.ID = s.keyedID(s.ID) {
		if deleted, err := s.release.Deleted(ctx, s.ID); !deleted || err != nil {
			return false, err
		}
	}
}

// isKept says that a key still stands for the release of a record.
func isKept(record *v1alpha1.ReleaseRecord) bool {
	return time.Since(record.Spec.CreatedAt.Time) < v1alpha1.KeyLifetime
}

// keyRecords are the records that the key stands for, newest first: a key of a task means nothing to rollouts. They are those that this
// server has heard of, until something says that there may be more: the API server goes through all records of everybody to find them.
func (s *Start) keyRecords(ctx context.Context) ([]*v1alpha1.ReleaseRecord, error) {
	find := s.backend.Home.ListRecords
	if s.doubted {
		find = s.backend.Home.FindRecords
	}
	records, err := find(ctx, map[string]string{v1alpha1.LabelIdempotencyKey: KeyLabel(s.Key)})
	return slices.DeleteFunc(records, func(record *v1alpha1.ReleaseRecord) bool { return record.Spec.Kind != s.Kind }), err
}

// twin says whether a request with the same key has recorded its release without this server having heard of it. It is asked before a
// refusal: what refuses may be that very release, or a newer one.
func (s *Start) twin(ctx context.Context) (bool, error) {
	if s.Key == "" || s.Written != nil || s.doubted {
		return false, nil
	}
	s.doubted = true
	records, err := s.keyRecords(ctx)
	return len(records) > 0 && isKept(records[0]), err
}

// repeat answers a request whose key has a release: the same request is answered with that release, another one is refused.
func (s *Start) repeat(ctx context.Context, record *v1alpha1.ReleaseRecord) (done bool, err error) {
	if record.Spec.Subject != s.Subject || record.Spec.RequestDigest != s.digest() {
		return false, s.release.Name(problem.Conflict.Because("the key was used for another request: %s %s of %s at %s; take a new key", s.Kind,
			s.idOf(record),
			record.Spec.Subject, record.Spec.CreatedAt.UTC().Format(time.RFC3339)), record.Spec.WorkflowID)
	}
	s.ID = s.idOf(record)
	whole, err := s.backend.Home.GetRelease(ctx, record.Name)
	if failure.Is(err, failure.NotFound) {
		if record.Labels[v1alpha1.LabelKind] != v1alpha1.KindKey {
			return false, nil // its twin has withdrawn it; the ID is the key's all the same
		}
		s.Pruned = record
		return true, nil
	}
	if err != nil {
		return false, err
	}
	s.Written, s.Adopted = whole, true
	if whole.Outcome != nil {
		return true, nil
	}
	began, err := s.release.Began(ctx, whole)
	if began || err != nil || s.Age() > adoptWindow {
		return err == nil, err
	}
	return false, s.release.Adopt(ctx)
}

// Age is how long ago the record was written.
func (s *Start) Age() time.Duration { return time.Since(s.Written.Spec.CreatedAt.Time) }

// digest tells two requests under one key apart; the spelling of the body means nothing.
func (s *Start) digest() string {
	canonical, err := json.Marshal(s.Asked)
	if err != nil {
		return "" // it came from JSON or YAML and always encodes
	}
	digest := sha256.Sum256(canonical)
	return hex.EncodeToString(digest[:])
}

// KeyLabel is the digest of an Idempotency-Key as a record carries it; a label has at most 63 characters.
func KeyLabel(key string) string {
	digest := sha256.Sum256([]byte(key))
	return hex.EncodeToString(digest[:20])
}

func (s *Start) idOf(record *v1alpha1.ReleaseRecord) string {
	return strings.TrimPrefix(record.Name, s.Kind+"-")
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newID is an ID that no release has: "<prefix>-<yyyymmddhhmmss>-<5 random letters and digits>".
func (s *Start) newID(now time.Time) string {
	return s.prefix() + "-" + now.Format("20060102150405") + "-" + strings.ToLower(rand.Text()[:5])
}

// keyedID is the ID that belongs to an Idempotency-Key, so that two requests at once make one release. after is the release that the key
// made more than 30 days ago, if any: the key then stands for a new one.
func (s *Start) keyedID(after string) string {
	digest := sha256.Sum256([]byte(s.Key + "\n" + s.Subject + "\n" + after))
	return s.prefix() + "-" + lowerBase32.EncodeToString(digest[:10])
}

// prefix is the part of an ID that people recognise: a name, as far as it fits and as names of objects are spelled.
func (s *Start) prefix() string {
	const longest = 40
	name := strings.ToLower(s.Prefix)
	return strings.TrimRight(name[:min(len(name), longest)], "-.")
}
