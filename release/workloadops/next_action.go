package workloadops

import (
	"bytes"
	"encoding/json"
	"time"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
)

// Action is what is to be done next.
type Action string

// The actions that operations and rollouts have in common.
const (
	// ActWrite makes NextAction.Write, which may end the job.
	ActWrite Action = "write"
	// ActDelete deletes the pods of NextAction.Delete, each only as it was seen.
	ActDelete Action = "delete"
	// ActLook asks for the workload's pods: the next snapshot must have PodsSeen.
	ActLook Action = "look"
	// ActWait waits until something changes.
	ActWait Action = "wait"
	// ActDone ends the job well.
	ActDone Action = "done"
	// ActFail ends it with Failure.
	ActFail Action = "fail"
)

// NextAction is what to do next with a workload, and why.
type NextAction struct {
	Action Action
	// Reason is a sentence for people; it is what a heartbeat says.
	Reason string
	Write  *Write
	Delete []Pod
	// WatchPods says that it is the pods, not the workload, whose change ends the waiting.
	WatchPods bool
	// LookAgain is after how long the pods are to be looked at again though nothing changes; 0: no need.
	LookAgain time.Duration
	// Result and Failure are what an operation ends with, after the write where there is one.
	Result  *Result
	Failure *failure.Error
}

// Ending is what the operation ends with; false when it goes on.
func (a NextAction) Ending() (Ending, bool) {
	return Ending{Result: a.Result, Failure: a.Failure}, a.Result != nil || a.Failure != nil
}

// Write is one change of the workload, made as a whole or not at all.
type Write struct {
	// Step names the write; it is part of the failpoints' names.
	Step string
	// Held is the claim that must be on the workload for the write to be made; "" none.
	Held string
	// Fresh says that the write may be made only on the very version that was seen.
	Fresh bool
	// Claim is the claim to set with its label, "" leaves them; Release takes both away.
	Claim   string
	Release bool
	// Annotations to set, and those to take away.
	Annotations map[string]string
	Remove      []string
	// Labels to set, and those to take away, beside those of the claim.
	Labels  map[string]string
	Unlabel []string
	// Replicas is the size to ask for, nil leaves it. WasReplicas is what it must be for the write to be made: a late write does not undo a
	// later one.
	Replicas    *int32
	WasReplicas int32
	Settings    []Setting
	// Stamp is the marker to put on the pod template, "" leaves it.
	Stamp string
	// Template is the pod template that a rollout sets, nil leaves it.
	Template *Template
	// KeepTemplate is the annotation under which a template is kept as JSON, "": none is. It is the one that stands, or that of the revision
	// KeepRevision.
	KeepTemplate string
	KeepRevision string
}

// Setting is one field to set, by JSON Pointer; a Value that is empty or null takes the field away. Was is what it must be for the write to
// be made; empty: it is not looked at.
type Setting struct {
	Path  string
	Value json.RawMessage
	Was   json.RawMessage
}

// Template says where a pod template comes from.
type Template struct {
	// Revision is the revision that it is taken from; "": the request's Change is applied to that of the stable revision.
	Revision string
}

// Next is an action that needs nothing but its reason.
func Next(action Action, reason string) NextAction { return NextAction{Action: action, Reason: reason} }

// Fail ends the job with a failure.
func Fail(e *failure.Error) NextAction {
	return NextAction{Action: ActFail, Reason: e.Message, Failure: e}
}

// Claimed fails a job whose workload another release holds.
func Claimed(w catalog.Workload, ours, theirs string) NextAction {
	e := failure.New(failure.Claimed, "%s is being released by %s: wait until that has ended or stop it, then run this again",
		w, Told(ours, theirs))
	e.Holder = theirs
	return Fail(e)
}

// HolderNow says who holds a workload whose claim was taken away from a release.
func HolderNow(ours, claim string) string {
	if claim == "" {
		return "nobody holds it now"
	}
	return Told(ours, claim) + " holds it now"
}

func write(reason string, w *Write) NextAction {
	return NextAction{Action: ActWrite, Reason: reason, Write: w}
}

// SameJSON says whether two JSON values mean the same; null and absent are one.
func SameJSON(a, b json.RawMessage) bool {
	if AbsentJSON(a) || AbsentJSON(b) {
		return AbsentJSON(a) == AbsentJSON(b)
	}
	return bytes.Equal(Canonical(a), Canonical(b))
}

// Canonical is JSON with its keys in order and without blanks; null for nothing, and what is no JSON as it is.
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

// AbsentJSON says whether a value says that a field is not set.
func AbsentJSON(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
