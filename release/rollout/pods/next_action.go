package pods

import (
	"cmp"
	"fmt"
	"time"

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
	// ActNumber labels the pods of NextAction.Number.
	ActNumber workloadops.Action = "number"
)

// NextAction is what to do next with a workload, and why.
type NextAction struct {
	workloadops.NextAction
	Extra      *ExtraChange
	Autoscaler *AutoscalerChange
	Number     *PodNumbers
	// Ends says that the move ends well once the write is done, or the pods are numbered.
	Ends bool
	// Holds says that the write lets no pod go, whatever has become of the revisions since they were seen. It may go by what a watch has told.
	Holds bool
	// Numbers are what the pods are like.
	Numbers rollout.MoveResult
	// Begun is the answer of Begin.
	Begun *rollout.BeginResult
}

// PodNumbers are the labels of the pods that a step has brought.
type PodNumbers struct {
	Pods             []workloadops.Pod
	RolloutID, Batch string
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

// duel fails since somebody else goes on changing the fields by which the pods move.
func duel(s rollout.Subject, d Duel) NextAction {
	return failf(failure.Drift, "%s: somebody else has changed %s for the %dth time while its pods move (field manager %s): have it leave these "+
		"fields alone", s.Workload, d.Fields, d.Times, cmp.Or(d.By, "unknown"))
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

// guard decides on a workload that this rollout does not hold, or that cannot be gone on with.
func guard(s rollout.Subject, seen Observed) (NextAction, bool) {
	switch {
	case seen.Deleting:
		return failf(failure.Gone, "%s is being deleted by somebody else: nothing more is done to it", s.Workload), true
	case s.UID != "" && seen.UID != "" && seen.UID != s.UID:
		return failf(failure.Gone, "%s was deleted by somebody else, and is another of the same name now: nothing is done to that one",
			s.Workload), true
	case seen.Claim == s.Claim && seen.SavedProblem != "":
		return failf(failure.Refused, "%s: the annotation %s cannot be read (%s): put it right by hand, or bring the workload home as %s says",
			s.Workload, rollout.AnnotationSaved, seen.SavedProblem, rollout.AnnotationRecover), true
	case seen.Claim == s.Claim && seen.Saved == nil:
		return failf(failure.ClaimLost,
			"%s: somebody removed the annotation %s, so what was borrowed is not known: look at its template and update settings by hand",
			s.Workload, rollout.AnnotationSaved), true
	case seen.Repairer != "" && (seen.Claim == s.Claim || s.TakeOver != "" && seen.Claim == s.TakeOver):
		return next(workloadops.Fail(rollout.Repaired(s.Workload.String(), seen.Repairer))), true
	case seen.Claim == s.Claim:
		return NextAction{}, false
	case workloadops.MayTakeOver(s.Claim, s.TakeOver, seen.Claim):
		return takeOver(s, seen), true
	}
	return failf(failure.ClaimLost, "%s: somebody took this rollout's claim away (annotation %s): %s. Nothing more is done to it; "+
		"look at its template and update settings by hand", s.Workload, workloadops.AnnotationClaimedBy,
		workloadops.HolderNow(s.Claim, seen.Claim)), true
}

// takeOver puts our claim in the place of another; what was saved stays.
func takeOver(s rollout.Subject, seen Observed) NextAction {
	reason := "take the claim"
	if seen.Claim != "" {
		reason = fmt.Sprintf("take over from %s, which has ended", workloadops.ParseHolder(seen.Claim).WorkflowID)
	}
	return set(reason, &workloadops.Write{Step: "take-over", Held: seen.Claim, Fresh: true, Claim: s.Claim})
}

func deadlineOf(s rollout.Subject) time.Duration {
	return time.Duration(s.DeadlineSeconds) * time.Second
}

// judge decides between waiting on and giving up: at the deadline, or earlier when a pod of the version aimed at is in trouble that does
// not pass (workloadops.Snapshot.PatienceLeft). hash is that version's, progress says how far it is.
func judge(s rollout.Subject, seen Observed, hash, progress string, tolerated int32) NextAction {
	deadline := deadlineOf(s)
	expired := seen.Elapsed >= deadline
	switch {
	case !seen.PodsSeen && expired:
		return look("the time is up: see what the pods say")
	case !seen.PodsSeen:
		return wait(progress)
	}
	left, troubled := trouble(seen, hash, tolerated, deadline)
	if expired || troubled && left <= 0 {
		return failf(failure.WorkloadFailed, "%s: %s after %d s: %s",
			s.Workload, progress, int64(min(seen.Elapsed, deadline)/time.Second), why(seen, hash))
	}
	if word := podStatusReason(seen, hash); word != "" {
		progress += ": " + word
	}
	d := wait(progress)
	if troubled {
		d.LookAgain = left
	}
	return d
}

// trouble is how long the trouble of the version's pods may still last; false when no more of them are in trouble than are tolerated.
func trouble(seen Observed, hash string, tolerated int32, deadline time.Duration) (left time.Duration, troubled bool) {
	left, stuck := workloadops.PatienceLimit, int32(0)
	for _, p := range seen.allPods() {
		if p.Stuck() && p.Revision == hash {
			stuck++
			left = min(left, seen.PatienceLeft(p, deadline))
		}
	}
	return left, stuck > tolerated
}

// why is the best explanation that can be given: a pod's own word, else the workload's, else where to look.
func why(seen Observed, hash string) string {
	if word := podStatusReason(seen, hash); word != "" {
		return word
	}
	if seen.Trouble != "" {
		return "its pods cannot be created: " + seen.Trouble
	}
	if seen.Extra != nil && seen.Extra.Trouble != "" {
		return "the pods of " + seen.Extra.Name + " cannot be created: " + seen.Extra.Trouble
	}
	if seen.Lagging() {
		return "its controller has not looked at the change: is it running?"
	}
	if paused(seen) {
		return "somebody has paused it: resume it with `kubectl rollout resume`, then retry"
	}
	return "no pod says why: look at `kubectl describe` of it"
}

// podStatusReason is the word of a pod that is not ready; one of the version aimed at in trouble goes first.
func podStatusReason(seen Observed, hash string) string {
	return workloadops.WorstPod(seen.allPods(), func(p workloadops.Pod) int {
		rank := 0
		if !p.Deleting {
			rank++
		}
		if p.Revision == hash {
			rank += 2
		}
		if p.Stuck() {
			rank += 4
		}
		return rank
	})
}
