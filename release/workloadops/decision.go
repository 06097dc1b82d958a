package workloadops

import (
	"encoding/json"
	"time"

	"slipway.io/slipway/release/failure"
)

// Action is what is to be done next.
type Action string

// The actions of a Decision.
const (
	// ActWrite makes one write. When the Decision carries a Result or a Failure, the operation ends with it once the write is done.
	ActWrite Action = "write"
	// ActDelete deletes pods.
	ActDelete Action = "delete"
	// ActLook asks for the workload's pods: the next look must have PodsSeen.
	ActLook Action = "look"
	// ActWait waits until something changes.
	ActWait Action = "wait"
	// ActDone ends the operation with Result.
	ActDone Action = "done"
	// ActFail ends the operation with Failure.
	ActFail Action = "fail"
)

// Decision is what to do next, and why.
type Decision struct {
	Action Action
	// Reason is a sentence for people.
	Reason string
	Write  *Write
	Delete []Pod
	// WatchPods says that it is the pods, not the workload, whose change ends the waiting.
	WatchPods bool
	// LookAgain is after how long the pods are to be looked at again though nothing changes; 0: no need.
	LookAgain time.Duration
	Result    *Result
	Failure   *failure.Error
}

// Ends says whether the operation ends with this decision, and with what.
func (d Decision) Ends() (Ending, bool) {
	return Ending{Result: d.Result, Failure: d.Failure}, d.Result != nil || d.Failure != nil
}

// Write is one change of the workload, made as a whole or not at all.
type Write struct {
	// Step names the write: begin, step, end, fail, restore or take-over.
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
	// Replicas is the size to ask for, nil leaves it. WasReplicas is what it must be for the write to be made: a late write does not undo a later one.
	Replicas    *int32
	WasReplicas int32
	Settings    []Setting
	// Stamp is the marker to put on the pod template, "" leaves it.
	Stamp string
}

// Setting is one field to set, as JSON. Was is what it must be for the write to be made.
type Setting struct {
	Path  string
	Value json.RawMessage
	Was   json.RawMessage
}

func look(reason string) Decision { return Decision{Action: ActLook, Reason: reason} }

func write(reason string, w *Write) Decision {
	return Decision{Action: ActWrite, Reason: reason, Write: w}
}
