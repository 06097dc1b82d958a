package pods

import (
	"cmp"
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// The actions in addition to those of release/workload.
const (
	// ActExtra executes NextAction.Extra: a change of the extra Deployment.
	ActExtra workload.Action = "extra"
	// ActAutoscaler executes NextAction.Autoscaler: pins or restores one.
	ActAutoscaler workload.Action = "autoscaler"
	// ActNumber labels the pods of NextAction.Number.
	ActNumber workload.Action = "number"
)

// NextAction is what to do next with a workload, and why.
type NextAction struct {
	workload.NextAction
	Extra      *ExtraChange
	Autoscaler *AutoscalerChange
	Number     *PodNumbers
	// Ends is true if the move ends successfully once the write is done, or the pods are numbered.
	Ends bool
	// RemovesNoPod is true if the write removes no pod, even if the revisions have changed since they were read. It may
	// be decided on a cached read.
	RemovesNoPod bool
	// Numbers are the pod counts.
	Numbers rollout.MoveResult
	// Begun is the answer of Begin.
	Begun *rollout.BeginResult
}

// ExtraChange is one change of the extra Deployment. Exactly one field is set.
type ExtraChange struct {
	// Create creates it with this many pods, from the workload's spec with the new template.
	Create *int32
	// Replicas scales it.
	Replicas *int32
	// PutBack restores the rollout's template.
	PutBack bool
	// Delete deletes it with its pods; the value is the UID that was read.
	Delete string
}

// AutoscalerChange is one change of an autoscaler.
type AutoscalerChange struct {
	Name string
	// Pin is the number of pods to keep the workload at; nil restores the autoscaler's own limits.
	Pin *int32
}

func next(a workload.NextAction) NextAction { return NextAction{NextAction: a} }

func readPods(reason string) NextAction {
	return next(workload.Next(workload.ActReadPods, reason))
}

// done reports that the pods are as the technique requires, or that the move has ended.
func done(reason string) NextAction { return next(workload.Next(workload.ActDone, reason)) }

// wait reports that the technique waits for the cluster. The caller adds the pods' status and decides by their problems
// and the deadline.
func wait(reason string) NextAction { return next(workload.Next(workload.ActWait, reason)) }

func set(reason string, w *workload.Write) NextAction {
	return next(workload.NextAction{Action: workload.ActWrite, Reason: reason, Write: w})
}

func remove(list []workload.Pod, format string, args ...any) NextAction {
	return next(workload.NextAction{Action: workload.ActDelete, Delete: list, Reason: fmt.Sprintf(format, args...)})
}

func changeExtra(change ExtraChange, format string, args ...any) NextAction {
	a := next(workload.Next(ActExtra, fmt.Sprintf(format, args...)))
	a.Extra = &change
	return a
}

func changeAutoscaler(change AutoscalerChange, format string, args ...any) NextAction {
	a := next(workload.Next(ActAutoscaler, fmt.Sprintf(format, args...)))
	a.Autoscaler = &change
	return a
}

func failf(kind failure.Kind, format string, args ...any) NextAction {
	return next(workload.Fail(failure.New(kind, format, args...)))
}

// failDrift fails because another client has changed the workload.
func failDrift(s rollout.Subject, what string) NextAction {
	return failf(failure.Drift, "%s: another client %s during the rollout", s.Workload, what)
}

// failEditConflict fails because another client keeps changing the fields that move the pods.
func failEditConflict(s rollout.Subject, d EditConflict) NextAction {
	return failf(failure.Drift, "%s: another client has changed %s for the %dth time while its pods move (field "+
		"manager %s): stop it from writing these fields", s.Workload, d.Fields, d.Times, cmp.Or(d.By, "unknown"))
}

// nothingToDo ends a Finish that has nothing to do.
func nothingToDo(seen Observed, message string) NextAction {
	return done(message).withNumbers(rollout.MoveResult{Replicas: seen.Replicas, Generation: seen.Generation,
		Message: message})
}

// withNumbers adds the pod counts, also to failures that carry them.
func (a NextAction) withNumbers(numbers rollout.MoveResult) NextAction {
	a.Numbers = numbers
	if f := a.Failure; f != nil && (f.Kind == failure.WorkloadFailed || f.Kind == failure.Drift) {
		f.Data = numbers
	}
	return a
}

// checkClaim decides on a workload that this rollout does not hold, or cannot continue with; false if it can continue.
func checkClaim(s rollout.Subject, seen Observed) (NextAction, bool) {
	switch {
	case seen.Deleting:
		return failf(failure.Gone, "%s is being deleted by another client: nothing more is done to it", s.Workload),
			true
	case s.UID != "" && seen.UID != "" && seen.UID != s.UID:
		return failf(failure.Gone, "%s was deleted by another client, and another of the same name exists now: "+
			"nothing is done to that one", s.Workload), true
	case seen.Claim == s.Claim && seen.SavedProblem != "":
		return failf(failure.Refused, "%s: the annotation %s cannot be read (%s): repair it manually, or restore the "+
			"workload as the annotation %s describes",
			s.Workload, workload.AnnotationRollout, seen.SavedProblem, rollout.AnnotationRecover), true
	case seen.Claim == s.Claim && seen.Saved == nil:
		return failf(failure.ClaimLost, "%s: another client removed the annotation %s, so what was borrowed is "+
			"unknown: check its template and update settings manually", s.Workload, workload.AnnotationRollout), true
	case seen.Repairer != "" && (seen.Claim == s.Claim || s.TakeOver != "" && seen.Claim == s.TakeOver):
		return next(workload.Fail(rollout.UnderRepair(s.Workload.String(), seen.Repairer))), true
	case seen.Claim == s.Claim:
		return NextAction{}, false
	case workload.MayTakeOver(s.Claim, s.TakeOver, seen.Claim):
		return takeOver(s, seen), true
	}
	return failf(failure.ClaimLost, "%s: another client removed this rollout's claim (annotation %s): %s. Nothing "+
		"more is done to it; check its template and update settings manually", s.Workload,
		workload.AnnotationClaimedBy, workload.CurrentHolder(s.Claim, seen.Claim)), true
}

// takeOver replaces another release's claim by this one's; what was saved stays.
func takeOver(s rollout.Subject, seen Observed) NextAction {
	reason := "take the claim"
	if seen.Claim != "" {
		reason = fmt.Sprintf("take over from %s, which has ended", workload.ParseHolder(seen.Claim).WorkflowID)
	}
	return set(reason, &workload.Write{Step: "take-over", ExpectedClaim: seen.Claim, OnlyIfUnchanged: true,
		Claim: s.Claim})
}

func deadlineOf(s rollout.Subject) time.Duration {
	return time.Duration(s.DeadlineSeconds) * time.Second
}

// waitOrFail waits on or fails: at the deadline, or earlier if a pod of the target version has a problem that does not
// pass. hash is that version's, progress describes how far it is.
func waitOrFail(s rollout.Subject, seen Observed, hash, progress string, tolerated int32) NextAction {
	return next(waiting(s, seen, hash, progress, tolerated).Next())
}

// waiting returns the job that waits for the pods of a version.
func waiting(s rollout.Subject, seen Observed, hash, progress string, tolerated int32) workload.Waiting {
	job := workload.Waiting{Snapshot: seen.Snapshot, Workload: s.Workload, Progress: progress, Deadline: deadlineOf(s),
		CanFail: func(p workload.Pod) bool { return p.Revision == hash }, Tolerated: tolerated,
		PodReason: podStatusReason(seen, hash), Explanation: explain(seen, hash)}
	job.Pods, job.Creation = seen.allPods(), seen.creationFailure(hash)
	return job
}

// creationFailure returns why pods of a version, by the value of its pods' revision label, are not created. A
// ReplicaSet reports that itself: the condition of its Deployment may be about another version, and is not updated
// while the Deployment is paused.
func (o Observed) creationFailure(hash string) workload.CreationFailure {
	if o.Extra != nil && hash == o.Extra.Hash {
		failure := o.Extra.Creation
		failure.Of = o.Extra.Name
		return failure
	}
	if r, there := o.newest(func(r Revision) bool { return r.HasCounts && r.Hash == hash }); there {
		return r.Creation
	}
	return o.Creation
}

// explain returns the best available explanation: why pods are not created, else a pod's status reason, else the
// workload's, else where to look.
func explain(seen Observed, hash string) string {
	reason, creation := podStatusReason(seen, hash), seen.creationFailure(hash)
	if newest, _ := seen.newest(func(Revision) bool { return true }); hash == "" && !creation.Reported() {
		creation = newest.Creation
	}
	switch {
	case creation.Message != "":
		return creation.String()
	case reason != "":
		return reason
	case creation.Unreadable:
		return creation.String()
	case seen.Lagging():
		return "its controller has not processed the change: is it running?"
	case paused(seen):
		return "it is paused: resume it with `kubectl rollout resume`, then retry"
	}
	return "no pod reports a reason: look at `kubectl describe` of it"
}

// podStatusReason returns the status reason of a pod that is not ready, preferably a stuck one of the target version.
func podStatusReason(seen Observed, hash string) string {
	return workload.WorstPodReason(seen.allPods(), func(p workload.Pod) int {
		return workload.Rank(p.Stuck(), p.Revision == hash, !p.Deleting)
	})
}
