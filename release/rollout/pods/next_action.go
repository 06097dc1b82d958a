package pods

import (
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// The actions beside those of workloadops.
const (
	// ActExtra makes NextAction.Extra: a change of the extra Deployment.
	ActExtra workloadops.Action = "extra"
	// ActAutoscaler makes NextAction.Autoscaler: pins or restores one.
	ActAutoscaler workloadops.Action = "autoscaler"
)

// NextAction is what to do next with a workload, and why.
type NextAction struct {
	workloadops.NextAction
	Extra      *ExtraChange
	Autoscaler *AutoscalerChange
	// Ends says that the move ends well once the write is done.
	Ends bool
	// Numbers are what the pods are like.
	Numbers rollout.MoveResult
	// Begun is the answer of Begin.
	Begun *rollout.BeginResult
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

func next(a workloadops.NextAction) NextAction { return NextAction{NextAction: a} }

func look(reason string) NextAction { return next(workloadops.Next(workloadops.ActLook, reason)) }

// done says that the pods are where the technique should bring them, or that the move is over.
func done(reason string) NextAction { return next(workloadops.Next(workloadops.ActDone, reason)) }

// wait says that the technique waits for the cluster; the framework adds what the pods say, and judges their trouble and the deadline.
func wait(reason string) NextAction { return next(workloadops.Next(workloadops.ActWait, reason)) }

func set(reason string, w *workloadops.Write) NextAction {
	return next(workloadops.NextAction{Action: workloadops.ActWrite, Reason: reason, Write: w})
}

func remove(list []workloadops.Pod, format string, args ...any) NextAction {
	return next(workloadops.NextAction{Action: workloadops.ActDelete, Delete: list, Reason: fmt.Sprintf(format, args...)})
}

func changeExtra(change ExtraChange, format string, args ...any) NextAction {
	a := next(workloadops.Next(ActExtra, fmt.Sprintf(format, args...)))
	a.Extra = &change
	return a
}

func changeAutoscaler(change AutoscalerChange, format string, args ...any) NextAction {
	a := next(workloadops.Next(ActAutoscaler, fmt.Sprintf(format, args...)))
	a.Autoscaler = &change
	return a
}

func failf(kind failure.Kind, format string, args ...any) NextAction {
	return next(workloadops.Fail(failure.New(kind, format, args...)))
}

// drift fails since somebody else has done something to the workload.
func drift(s rollout.Subject, what string) NextAction {
	return failf(failure.Drift, "%s: somebody else %s in the middle of the rollout", s.Workload, what)
}

// nothing ends a Finish that has nothing to do.
func nothing(seen Observed, message string) NextAction {
	return done(message).with(rollout.MoveResult{Replicas: seen.Replicas, Generation: seen.Generation, Message: message})
}

// with adds what the pods are like, also to the failures that tell it.
func (a NextAction) with(numbers rollout.MoveResult) NextAction {
	a.Numbers = numbers
	if f := a.Failure; f != nil && (f.Kind == failure.WorkloadFailed || f.Kind == failure.Drift) {
		f.Data = numbers
	}
	return a
}
