package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
)

// PatienceLimit is how long a pod may have a problem that rarely passes by itself, before the job fails early. It is
// half the deadline if that is shorter.
const PatienceLimit = 60 * time.Second

// Waiting is a job that waits until the pods of a workload are as it needs them. Its Pods may include those of another
// workload, and its Creation is that of the pods that it waits for.
type Waiting struct {
	Snapshot
	Workload fmt.Stringer
	Deadline time.Duration
	// Progress is how far the job is: "2 of 3 pods are ready".
	Progress string
	// CanFail reports whether a problem of a pod can fail the job; Tolerated is how many such pods may be stuck.
	CanFail   func(Pod) bool
	Tolerated int32
	// PodReason is the reason of the worst pod, "" if none has one; Explanation says why the job has come no further.
	PodReason, Explanation string
}

// Next decides whether to wait or to fail: at the deadline, or earlier if a pod has a problem that does not pass or
// cannot be created.
func (w Waiting) Next() NextAction {
	expired := w.Elapsed >= w.Deadline
	creationLeft, creationEnds := w.Creation.PatienceLeft(w.Snapshot, w.Deadline)
	uncreated := creationEnds && creationLeft <= 0
	if !w.PodsSeen && (expired || uncreated) {
		return Next(ActReadPods, "read the pods' status before it ends")
	}
	stuckLeft, stuck := w.stuck()
	switch {
	case uncreated:
		return w.fail(w.Creation.String())
	case stuck && stuckLeft <= 0 && w.Creation.Message != "":
		return w.fail(cmp.Or(w.PodReason, w.Explanation))
	case expired || stuck && stuckLeft <= 0:
		return w.fail(w.Explanation)
	}
	d := Next(ActWait, w.Progress)
	if reason := cmp.Or(w.Creation.reason(w.PodReason), w.PodReason); reason != "" {
		d.Reason += ": " + reason
	}
	if stuck {
		d.RecheckAfter = stuckLeft
	}
	if creationEnds && (!stuck || creationLeft < stuckLeft) {
		d.RecheckAfter = creationLeft
	}
	return d
}

// fail ends the job.
func (w Waiting) fail(why string) NextAction {
	return Fail(failure.New(failure.WorkloadFailed, "%s: %s after %d s: %s", w.Workload, w.Progress,
		int64(min(w.Elapsed, w.Deadline)/time.Second), why))
}

// stuck reports whether more pods are stuck than the job tolerates, and how long it still waits for them.
func (w Waiting) stuck() (left time.Duration, is bool) {
	left = PatienceLimit
	n := int32(0)
	for _, p := range w.Pods {
		if p.Stuck() && w.CanFail(p) {
			n++
			left = min(left, w.PatienceLeft(p, w.Deadline))
		}
	}
	return left, n > w.Tolerated
}

// ReportAfter is how long a problem that the cluster names may last before it is reported: many pass within seconds,
// such as a quota while the pods that are being replaced end.
const ReportAfter = 4 * time.Second

// ReportIn returns in how long a problem of the pods has lasted for long enough to be reported while the job waits; is
// is false if there is none. A stuck pod is reported at once.
func (w Waiting) ReportIn() (in time.Duration, is bool) {
	if _, stuck := w.stuck(); stuck {
		return 0, true
	}
	lasted := time.Duration(-1)
	if w.Creation.Reported() {
		lasted = w.Creation.lasted(w.Snapshot)
	}
	for _, p := range w.Pods {
		if p.Severity() == blocked && w.CanFail(p) {
			lasted = max(lasted, min(w.StalledFor, w.Now.Sub(p.Since)))
		}
	}
	return max(ReportAfter-lasted, 0), lasted >= 0
}

// Rank returns a rank by what holds, the most important first.
func Rank(holds ...bool) (rank int) {
	for _, is := range holds {
		if rank *= 2; is {
			rank++
		}
	}
	return rank
}

// gapLimit is the maximum time between two reads that counts against the deadline. Beyond it, no worker was running,
// and the time does not count.
const gapLimit = 30 * time.Second

// Progress is the state that an attempt leaves for the next one, and that observers see: the heartbeat details of
// operation.ActivityRun and of a rollout's activities.
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
	// Blocked means that an event has reported why pods are not created.
	Blocked bool `json:"blocked,omitempty"`
	// Ending is the result that is returned once the last write is done.
	Ending *Ending `json:"ending,omitempty"`
	// Data is the result that a rollout's activity returns once its last write is done, as JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Modified means that a traffic change has written something.
	Modified bool `json:"modified,omitempty"`
	// Updated and UpdatedReady are the last counted numbers of new pods: all, and ready ones.
	Updated      *int32 `json:"updated,omitempty"`
	UpdatedReady *int32 `json:"updatedReady,omitempty"`
	// LastChangeSeconds is how much of the deadline was used when these numbers last changed.
	LastChangeSeconds float64 `json:"movedSeconds,omitempty"`
}

// RecordPods records the numbers of new pods, and reports whether they have changed since they were last recorded.
func (p *Progress) RecordPods(updated, ready int32) (changed bool) {
	changed = p.UpdatedReady != nil && (*p.Updated != updated || *p.UpdatedReady != ready)
	if p.Updated, p.UpdatedReady = &updated, &ready; changed {
		p.LastChangeSeconds = p.ElapsedSeconds
	}
	return changed
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

// PatienceLeft returns how long a stuck pod may remain stuck; 0 if its problem cannot pass. A problem from before the
// job counts from the start of the job.
func (s Snapshot) PatienceLeft(p Pod, deadline time.Duration) time.Duration {
	if p.Severity() == fatal {
		return 0
	}
	patience := min(deadline/2, PatienceLimit)
	return min(patience, patience-min(s.Elapsed, s.Now.Sub(p.Since)))
}
