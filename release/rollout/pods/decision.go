package pods

import (
	"encoding/json"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// Action is what is to be done next.
type Action string

// The actions of a Decision.
const (
	// ActWrite makes Decision.Write on the workload. When Ends is set, the move ends with it.
	ActWrite Action = "write"
	// ActDelete deletes the pods of Decision.Delete, each only as it was seen.
	ActDelete Action = "delete"
	// ActExtra makes Decision.Extra: a change of the extra Deployment.
	ActExtra Action = "extra"
	// ActAutoscaler makes Decision.Autoscaler: pins or restores one.
	ActAutoscaler Action = "autoscaler"
	// ActLook asks for the workload's pods: the next look must have PodsSeen.
	ActLook Action = "look"
	// ActWait waits until something changes.
	ActWait Action = "wait"
	// ActDone ends the move well, with Numbers.
	ActDone Action = "done"
	// ActFail ends it with Failure.
	ActFail Action = "fail"
)

// Decision is what to do next, and why.
type Decision struct {
	Action Action
	// Reason is a sentence for people; it is what a heartbeat says.
	Reason     string
	Write      *Write
	Delete     []workloadops.Pod
	Extra      *ExtraChange
	Autoscaler *AutoscalerChange
	// Ends says that the move ends well once the write is done.
	Ends bool
	// LookAgain is after how long the pods are to be looked at again though nothing changes; 0: no need.
	LookAgain time.Duration
	// Numbers are what the pods are like.
	Numbers rollout.MoveResult
	// Begun is the answer of Begin.
	Begun   *rollout.BeginResult
	Failure *failure.Error
}

// Write is one change of the workload, made as a whole or not at all. It is made only on the spec that was seen (its generation is tested) and while
// the claim Held is there.
type Write struct {
	// Step names the write; it is part of the failpoints' names.
	Step string
	// Held is the claim that must be on the workload; "" none.
	Held string
	// Fresh says that the write may be made only on the very version that was seen.
	Fresh bool
	// Claim is the claim to set with its label, "" leaves them; Release takes both away.
	Claim   string
	Release bool
	// Annotations to set, and those to take away.
	Annotations map[string]string
	Remove      []string
	Settings    []Setting
	// Template is the pod template to set, nil leaves it.
	Template *Template
}

// Setting is one field to set, by JSON Pointer. A Value that is empty or null takes the field away.
type Setting struct {
	Path  string
	Value json.RawMessage
}

// Template says where a pod template comes from.
type Template struct {
	// Revision is the revision that it is taken from; "": the request's Change is applied to that of the stable revision.
	Revision string
}

// ExtraChange is one change of the extra Deployment. Exactly one field is set.
type ExtraChange struct {
	// Create makes it, of so many pods, as the workload's spec with the new template.
	Create *int32
	// Replicas scales it.
	Replicas *int32
	// PutBack sets its template to ours again.
	PutBack bool
	// Delete deletes it with its pods; UID is the one that was seen.
	Delete string
}

// AutoscalerChange is one change of an autoscaler.
type AutoscalerChange struct {
	Name string
	// Pin has it keep the workload at so many pods; nil: restore what it was.
	Pin *int32
}

func look(reason string) Decision { return Decision{Action: ActLook, Reason: reason} }

// Done says that the pods are where the technique should bring them.
func Done(reason string) Decision { return Decision{Action: ActDone, Reason: reason} }

// Wait says that the technique waits for the cluster; the framework adds what the pods say, and judges their trouble and the deadline.
func Wait(reason string) Decision { return Decision{Action: ActWait, Reason: reason} }

// Set is a write of the technique; the framework adds the claim.
func Set(reason string, w *Write) Decision {
	return Decision{Action: ActWrite, Reason: reason, Write: w}
}

func fail(e *failure.Error) Decision {
	return Decision{Action: ActFail, Reason: e.Message, Failure: e}
}

func failf(kind failure.Kind, format string, args ...any) Decision {
	return fail(failure.New(kind, format, args...))
}
