package rollout

import (
	"fmt"

	"slipway.io/slipway/release/phrase"
)

const (
	// MaxReasons is the maximum number of refusals, and of notices, in the answer to a preflight of one rollout, and of
	// what an answer lists about one item of a plan.
	MaxReasons = 20
	// MaxReason is the maximum length of one of them in the answer of a party's worker, in bytes.
	MaxReason = 1000
)

// MoreReasons says that n further reasons are not listed.
func MoreReasons(n int) string {
	return fmt.Sprintf("and %s, not listed here", phrase.CountOf(n, "more reason", "more reasons"))
}

// ReasonBytes is the size of all refusals and notices of the result.
func (r PreflightResult) ReasonBytes() (size int) {
	for _, refusal := range r.Refusals {
		size += len(refusal.Reason)
	}
	for _, notice := range r.Notices {
		size += len(notice)
	}
	return size
}

// Limited returns the result with at most so many refusals and notices, each of at most MaxReason; the last ones give
// the number of the others.
func (r PreflightResult) Limited(most int) PreflightResult {
	refusals, notices := r.Refusals, r.Notices
	r.Refusals, r.Notices = nil, nil
	for _, refusal := range refusals[:min(most, len(refusals))] {
		r.Refusals = append(r.Refusals, Refusal{Field: refusal.Field, Reason: phrase.Cut(refusal.Reason, MaxReason)})
	}
	if more := len(refusals) - most; more > 0 {
		r.Refusals = append(r.Refusals, Refusal{Reason: MoreReasons(more)})
	}
	for _, notice := range notices[:min(most, len(notices))] {
		r.Notices = append(r.Notices, phrase.Cut(notice, MaxReason))
	}
	if more := len(notices) - most; more > 0 {
		r.Notices = append(r.Notices, MoreReasons(more))
	}
	return r
}
