package workload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/revision"
)

// FieldChange is a field of a pod template that an operation would change.
type FieldChange struct {
	// Field is its path: "spec.containers[app].image".
	Field string `json:"field"`
	// From and To are its values, "" where there is none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Hidden means that the values may be secret and are left out.
	Hidden bool `json:"hidden,omitempty"`
}

// Action is the kind of the next action.
type Action string

// The actions that operations and rollouts have in common.
const (
	// ActWrite performs NextAction.Write, which may end the job.
	ActWrite Action = "write"
	// ActDelete deletes the pods of NextAction.Delete, each only at the version that was read.
	ActDelete Action = "delete"
	// ActReadPods requests the workload's pods: the next snapshot must have PodsSeen.
	ActReadPods Action = "look"
	// ActWait waits until something changes.
	ActWait Action = "wait"
	// ActDone ends the job with success.
	ActDone Action = "done"
	// ActFail ends the job with Failure.
	ActFail Action = "fail"
)

// NextAction is the next action on a workload, with its reason.
type NextAction struct {
	Action Action
	// Reason is a sentence for users; heartbeats carry it.
	Reason string
	Write  *Write
	Delete []Pod
	// WatchPods means that a change of a pod, not of the workload, ends the wait.
	WatchPods bool
	// RecheckAfter is the time after which the pods are read again even if nothing changed; 0: never.
	RecheckAfter time.Duration
	// Result and Failure are the outcome of an operation that ends with this action (after its write, if any).
	Result  *Result
	Failure *failure.Error
}

// Ending returns the outcome of the operation; false if it continues.
func (a NextAction) Ending() (Ending, bool) {
	return Ending{Result: a.Result, Failure: a.Failure}, a.Result != nil || a.Failure != nil
}

// Write is one atomic change of the workload.
type Write struct {
	// Step names the write; failpoint names contain it.
	Step string
	// ExpectedClaim is a precondition of the write: the workload's claim; "" for none.
	ExpectedClaim string
	// OnlyIfUnchanged is a precondition of the write: the workload still has the version that was read.
	OnlyIfUnchanged bool
	// Claim is the claim to set, with its label; "" leaves them. Release removes both.
	Claim   string
	Release bool
	// Annotations are set; those in Remove are removed.
	Annotations map[string]string
	Remove      []string
	// Labels are set and those in Unlabel removed, in addition to the claim's label.
	Labels  map[string]string
	Unlabel []string
	// Replicas is the size to set, nil leaves it. ExpectedReplicas is a precondition of the write: the current size. It
	// keeps a late write from undoing a later one.
	Replicas         *int32
	ExpectedReplicas int32
	Settings         []Setting
	// Stamp is the marker to set on the pod template, "" leaves it.
	Stamp string
	// Template is the pod template that a rollout sets, nil leaves it.
	Template *Template
	// KeepTemplate is the annotation that stores a pod template as JSON, "" for none: the current template, or the one
	// of revision KeepRevision.
	KeepTemplate string
	KeepRevision string
}

// Setting is one field to set, by JSON Pointer; an empty or null Value removes the field. Expected is a precondition of
// the write: the field's current value; if it is empty, it is not checked.
type Setting struct {
	Path     string
	Value    json.RawMessage
	Expected json.RawMessage
}

// Template is the source of a pod template.
type Template struct {
	// Revision is the revision whose template is used; "": the request's Change is applied to the stable revision's
	// template.
	Revision string
}

// Next returns an action that has only a reason.
func Next(action Action, reason string) NextAction { return NextAction{Action: action, Reason: reason} }

// Fail returns an action that ends the job with a failure.
func Fail(e *failure.Error) NextAction {
	return NextAction{Action: ActFail, Reason: e.Message, Failure: e}
}

// FailClaimed returns an action that fails a job because another release holds its workload.
func FailClaimed(w fmt.Stringer, ours, theirs string) NextAction {
	e := failure.New(failure.Claimed, "%s is being released by %s: wait until that has ended or stop it, then run "+
		"this again",
		w, HolderName(ours, theirs))
	e.Holder = theirs
	return Fail(e)
}

// CurrentHolder describes who holds a workload whose claim a release has lost.
func CurrentHolder(ours, claim string) string {
	if claim == "" {
		return "no release holds it now"
	}
	return HolderName(ours, claim) + " holds it now"
}

// SameJSON reports whether two JSON values are equal; null and absent are equal.
func SameJSON(a, b json.RawMessage) bool { return bytes.Equal(Canonical(a), Canonical(b)) }

// Canonical returns JSON with sorted keys and without blanks; null for an empty value, and invalid JSON unchanged.
func Canonical(raw json.RawMessage) json.RawMessage {
	var v any
	if AbsentJSON(raw) {
		return json.RawMessage("null")
	}
	if json.Unmarshal(raw, &v) != nil {
		return raw
	}
	out, _ := json.Marshal(v)
	return out
}

// AbsentJSON reports whether a value means that a field is not set.
func AbsentJSON(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// Result is the result of an operation on a workload.
type Result struct {
	// Message is a sentence on what was done: "started: 3 of 3 pods are ready", "nothing to do: …".
	Message string `json:"message"`
	Changed bool   `json:"changed"`
	revision.Change
}

// Ending is the result of an operation. The activity stores it in its heartbeat before the last write, so that it
// survives a crash. One of the fields is set.
type Ending struct {
	Result  *Result        `json:"result,omitempty"`
	Failure *failure.Error `json:"failure,omitempty"`
}

// Borrowed is one setting that is changed during an operation: its own value and the temporary one, as JSON.
type Borrowed struct {
	Path      string          `json:"path"`
	Own       json.RawMessage `json:"own"`
	Temporary json.RawMessage `json:"lent"`
}

// PatienceLimit is how long a pod may have a problem that rarely passes by itself, before the job fails early. It is
// half the deadline if that is shorter.
const PatienceLimit = 60 * time.Second

// BudgetRetryInterval is the time between two attempts of an eviction that a PodDisruptionBudget refuses: budgets are
// not watched.
const BudgetRetryInterval = 2 * time.Second

// Waiting is a job that waits until the pods of a workload are as it needs them. Its Pods may include those of another
// workload.
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

// Next decides whether to wait or to fail: at the deadline, or earlier if a pod has a problem that does not pass.
func (w Waiting) Next() NextAction {
	expired := w.Elapsed >= w.Deadline
	switch {
	case !w.PodsSeen && expired:
		return Next(ActReadPods, "the deadline has passed: read the pods' status")
	case !w.PodsSeen:
		return Next(ActWait, w.Progress)
	}
	left, stuck := PatienceLimit, int32(0)
	for _, p := range w.Pods {
		if p.Stuck() && w.CanFail(p) {
			stuck++
			left = min(left, w.PatienceLeft(p, w.Deadline))
		}
	}
	troubled := stuck > w.Tolerated
	if expired || troubled && left <= 0 {
		return Fail(failure.New(failure.WorkloadFailed, "%s: %s after %d s: %s", w.Workload, w.Progress,
			int64(min(w.Elapsed, w.Deadline)/time.Second), w.Explanation))
	}
	d := Next(ActWait, w.Progress)
	if w.PodReason != "" {
		d.Reason += ": " + w.PodReason
	}
	if troubled {
		d.RecheckAfter = left
	}
	return d
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

// WorstPodReason returns the reason of the pod with the highest rank: "pod order-abc: ImagePullBackOff: Back-off
// pulling"; "" if no pod has one.
func WorstPodReason(pods []Pod, rank func(Pod) int) string {
	var worst *Pod
	for i := range pods {
		p := &pods[i]
		if p.Reason != "" && (!p.Ready || p.Deleting) && !p.Finished && (worst == nil || rank(*p) > rank(*worst)) {
			worst = p
		}
	}
	if worst == nil {
		return ""
	}
	text := "pod " + worst.Name + ": " + worst.Reason
	if worst.Message != "" {
		text += ": " + worst.Message
	}
	return text
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
