package start

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/v1alpha1"
)

// adoptWindow is how long after its record was written a release without a workflow may still be started by a repeat of
// its request. Later, a missing workflow may also be one that Temporal has deleted, and the release must not run twice.
const adoptWindow = time.Hour

// lookUpKey finds the release that the key already belongs to. done means that nothing remains to be done: s.ID is that
// release. A release that was recorded but never started is adopted: the process that recorded it died before starting
// it.
func (s *Start) lookUpKey(ctx context.Context) (done bool, err error) {
	records, err := s.keyRecords(ctx)
	if err != nil {
		return false, err
	}
	after := ""
	if len(records) > 0 {
		newest := records[0]
		if keyIsCurrent(newest) {
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

// keyIsCurrent reports whether a key still refers to the release of its record.
func keyIsCurrent(record *v1alpha1.ReleaseRecord) bool {
	return time.Since(record.Spec.CreatedAt.Time) < v1alpha1.KeyLifetime
}

// keyRecords returns the records of the key, newest first, restricted to releases of this kind. They come from this
// server's cache until bypassCache is set: the API server would have to scan all records to find them.
func (s *Start) keyRecords(ctx context.Context) ([]*v1alpha1.ReleaseRecord, error) {
	find := s.backend.Home.ListRecords
	if s.bypassCache {
		find = s.backend.Home.FindRecords
	}
	records, err := find(ctx, map[string]string{v1alpha1.LabelIdempotencyKey: KeyLabel(s.Key)})
	return slices.DeleteFunc(records, func(record *v1alpha1.ReleaseRecord) bool {
		return record.Spec.Kind != s.Kind
	}), err
}

// hasTwin reports whether a concurrent request with the same key has recorded its release and this server's cache does
// not have it yet. It is called before a refusal, because the reason of the refusal may be that very release, or a
// newer one.
func (s *Start) hasTwin(ctx context.Context) (bool, error) {
	if s.Key == "" || s.Written != nil || s.bypassCache {
		return false, nil
	}
	s.bypassCache = true
	records, err := s.keyRecords(ctx)
	return len(records) > 0 && keyIsCurrent(records[0]), err
}

// repeat handles a request whose key has a release: the same request is answered with that release, another one is
// refused.
func (s *Start) repeat(ctx context.Context, record *v1alpha1.ReleaseRecord) (done bool, err error) {
	other := record.Spec.Subject != s.Subject || record.Spec.RequestDigest != s.digest()
	full, err := s.backend.Home.GetRelease(ctx, record.Name)
	withdrawn := failure.Is(err, failure.NotFound) && record.Labels[v1alpha1.LabelKind] != v1alpha1.KindKey
	if other && !withdrawn {
		return false, s.usedFor(record, full)
	}
	if s.ID = s.idOf(record); record.Spec.Subject != s.Subject {
		s.ID = s.keyedID("")
	}
	if failure.Is(err, failure.NotFound) {
		if withdrawn {
			return false, nil // it was refused before it began; the ID belongs to the key nevertheless
		}
		s.Pruned = record
		return true, nil
	}
	if err != nil {
		return false, err
	}
	s.Written, s.Adopted = full, true
	if full.Outcome != nil {
		return true, nil
	}
	started, err := s.release.HasWorkflow(ctx, full)
	if started || err != nil || s.Age() > adoptWindow {
		return err == nil, err
	}
	return false, s.release.Adopt(ctx)
}

// usedFor refuses a request whose key another one has used. full is the complete record of that one's release, nil if
// it is no longer kept.
func (s *Start) usedFor(record, full *v1alpha1.ReleaseRecord) error {
	ended := ""
	if full != nil && full.Outcome != nil {
		ended = fmt.Sprintf(", which ended as %s (%s)", full.Outcome.State, full.Outcome.Reason)
	}
	return s.release.Name(problem.Conflict.Because(
		"the key was used for another request: %s %s of %s at %s%s; nothing was done: send this request with a new key",
		s.Kind, s.idOf(record), record.Spec.Subject, phrase.Time(record.Spec.CreatedAt.Time), ended),
		record.Spec.WorkflowID)
}

// Age is the time since the record was written.
func (s *Start) Age() time.Duration { return time.Since(s.Written.Spec.CreatedAt.Time) }

// digest distinguishes requests with the same key; the formatting of the body does not matter.
func (s *Start) digest() string {
	canonical, err := json.Marshal(s.DigestInput)
	if err != nil {
		return "" // it was decoded from JSON or YAML and always encodes
	}
	return digest.Of(string(canonical))
}

// KeyLabel returns the digest of an Idempotency-Key for use as a label, which has at most 63 characters.
func KeyLabel(key string) string { return digest.Of(key)[:40] }

func (s *Start) idOf(record *v1alpha1.ReleaseRecord) string {
	return strings.TrimPrefix(record.Name, s.Kind+"-")
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newID returns an unused ID: "<prefix>-<yyyymmddhhmmss>-<5 random letters and digits>".
func (s *Start) newID(now time.Time) string {
	return s.prefix() + "-" + now.Format("20060102150405") + "-" + strings.ToLower(rand.Text()[:5])
}

// keyedID returns the ID that belongs to an Idempotency-Key, so that concurrent requests with one key create one
// release. after is the previous release of the key if that is older than 30 days: the key then refers to a new
// release.
func (s *Start) keyedID(after string) string {
	digest := sha256.Sum256([]byte(s.Key + "\n" + s.Subject + "\n" + after))
	return s.prefix() + "-" + lowerBase32.EncodeToString(digest[:10])
}

// prefix is the readable part of an ID: the lower-case name, truncated to 40 characters.
func (s *Start) prefix() string {
	const longest = 40
	name := strings.ToLower(s.Prefix)
	return strings.TrimRight(name[:min(len(name), longest)], "-.")
}
