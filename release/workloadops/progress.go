package workloadops

import (
	"encoding/json"
	"time"
)

// gapLimit is the most that counts against the deadline between two reads: time in which no worker ran does not count, beyond that.
const gapLimit = 30 * time.Second

// Progress is what an attempt hands on to the next one, and what somebody who watches sees: the heartbeat details of ActivityRun.
type Progress struct {
	// ElapsedSeconds is how much of the deadline is used.
	ElapsedSeconds float64 `json:"elapsedSeconds"`
	// ReadAt is when the workload was last read.
	ReadAt time.Time `json:"readAt"`
	// UnreachableSince is when the cluster first did not answer; nil while the cluster answers.
	UnreachableSince *time.Time `json:"unreachableSince,omitempty"`
	// Message is what it waits for: "2 of 3 pods are ready".
	Message string `json:"message,omitempty"`
	// Held says that the operation was seen to hold the workload.
	Held bool `json:"held,omitempty"`
	// Ending is the answer that is given once the last write is done.
	Ending *Ending `json:"ending,omitempty"`
	// Data is the answer that a rollout's activity gives once its last write is done, as JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Modified says that a change of the traffic has written something.
	Modified bool `json:"modified,omitempty"`
	// Updated and UpdatedReady are how many pods of a rollout's new version there are, and how many are ready, as they were last counted.
	Updated      *int32 `json:"updated,omitempty"`
	UpdatedReady *int32 `json:"updatedReady,omitempty"`
}

// Elapsed is how much of the deadline is used.
func (p Progress) Elapsed() time.Duration {
	return time.Duration(p.ElapsedSeconds * float64(time.Second))
}

// Read counts a read that succeeded. The time since the one before counts, gapLimit at most; none of it after a request that was not
// answered.
func (p *Progress) Read(now time.Time) {
	if !p.ReadAt.IsZero() && p.UnreachableSince == nil {
		gap := min(now.Sub(p.ReadAt), gapLimit)
		p.ElapsedSeconds += max(0, gap.Seconds())
	}
	p.ReadAt = now
}

// Reached ends an outage: whatever was asked of the cluster after the read was answered too.
func (p *Progress) Reached() { p.UnreachableSince = nil }

// Failed counts a request that was not answered, and returns since how long that is so.
func (p *Progress) Failed(now time.Time) time.Duration {
	if p.UnreachableSince == nil {
		p.UnreachableSince = &now
	}
	return max(0, now.Sub(*p.UnreachableSince))
}
