package workload

import (
	"encoding/json"
	"time"
)

// gapLimit is the maximum time between two reads that counts against the deadline. Beyond it, no worker was running,
// and the time does not count.
const gapLimit = 30 * time.Second

// Progress is the state that an attempt leaves for the next one, and that observers see: the heartbeat details of
// ActivityRun.
type Progress struct {
	// ElapsedSeconds is how much of the deadline is used.
	ElapsedSeconds float64 `json:"elapsedSeconds"`
	// ReadAt is when the workload was last read.
	ReadAt time.Time `json:"readAt"`
	// UnreachableSince is when the first request of an outage failed; nil while the cluster answers.
	UnreachableSince *time.Time `json:"unreachableSince,omitempty"`
	// Message describes the progress: "2 of 3 pods are ready".
	Message string `json:"message,omitempty"`
	// Held means that the operation has held the workload.
	Held bool `json:"held,omitempty"`
	// Ending is the result that is returned once the last write is done.
	Ending *Ending `json:"ending,omitempty"`
	// Data is the result that a rollout's activity returns once its last write is done, as JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Modified means that a traffic change has written something.
	Modified bool `json:"modified,omitempty"`
	// Updated and UpdatedReady are the last counted numbers of new pods of a rollout: all, and ready ones.
	Updated      *int32 `json:"updated,omitempty"`
	UpdatedReady *int32 `json:"updatedReady,omitempty"`
	// LastChangeSeconds is how much of the deadline was used when these numbers last changed.
	LastChangeSeconds float64 `json:"movedSeconds,omitempty"`
}

// StalledFor returns how long the numbers of pods have not changed.
func (p Progress) StalledFor() time.Duration {
	return time.Duration((p.ElapsedSeconds - p.LastChangeSeconds) * float64(time.Second))
}

// Elapsed returns how much of the deadline is used.
func (p Progress) Elapsed() time.Duration {
	return time.Duration(p.ElapsedSeconds * float64(time.Second))
}

// RecordRead records a successful read. The time since the previous read counts, up to gapLimit; after a failed request
// none of it counts.
func (p *Progress) RecordRead(now time.Time) {
	if !p.ReadAt.IsZero() && p.UnreachableSince == nil {
		gap := min(now.Sub(p.ReadAt), gapLimit)
		p.ElapsedSeconds += max(0, gap.Seconds())
	}
	p.ReadAt = now
}

// RecordReachable ends an outage: the cluster has answered all requests after the read, too.
func (p *Progress) RecordReachable() { p.UnreachableSince = nil }

// RecordFailure records a failed request and returns how long the outage has lasted.
func (p *Progress) RecordFailure(now time.Time) time.Duration {
	if p.UnreachableSince == nil {
		p.UnreachableSince = &now
	}
	return max(0, now.Sub(*p.UnreachableSince))
}
