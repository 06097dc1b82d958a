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
	// Blocked is what keeps the pods from coming, once it has lasted for long enough to be reported; "" before, and if
	// the request does not want to know it.
	Blocked string
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
		"this again", w, HolderName(ours, theirs))
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
	// Blocked is set if the operation has not ended because pods are not created or do not start, and says why.
	// SpentSeconds is how much of the deadline it has used.
	Blocked      string `json:"blocked,omitempty"`
	SpentSeconds int64  `json:"spentSeconds,omitempty"`
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

// BudgetRetryInterval is the time between two attempts of an eviction that a PodDisruptionBudget refuses: budgets are
// not watched.
const BudgetRetryInterval = 2 * time.Second

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
