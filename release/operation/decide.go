package operation

import (
	"cmp"
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// operations maps each operation to the functions that decide its first step and the next ones.
var operations = map[plan.Operation]struct {
	begin, next func(Request, Observed) workload.NextAction
}{
	plan.Start:   {beginStarting, continueSizing},
	plan.Stop:    {beginStopping, continueStopping},
	plan.Restart: {beginReplacing, continueReplacing},

	plan.HTTPUploadDeploy: {beginReplacing, continueReplacing},
	plan.Restore:          {beginRestoring, continueRestoring},
	plan.CompileDeploy:    {beginReplacing, continueReplacing},
}

// Validate returns what is wrong with a request irrespective of its workload's state, nil if it is valid. The failure
// is Refused.
func Validate(req Request) *failure.Error {
	ref := req.Workload.WorkloadRef
	_, known := operations[req.Operation]
	switch {
	case !ref.Operated():
		return failure.New(failure.Refused, "%s of %s cannot be released: a plan acts on a %s of %s", req.Workload,
			ref.APIVersion, workload.Join(catalog.OperatedKinds(), " or "), catalog.APIVersion)
	case !known:
		return failure.New(failure.Refused, "%s: this party's worker does not know the operation %q", req.Workload,
			req.Operation)
	case req.Operation == plan.Restore && req.Restore == nil:
		return failure.New(failure.Refused, "%s: RESTORE was requested without anything to restore", req.Workload)
	case !ref.Sized() && !req.replaces():
		return failure.New(failure.Refused, "%s has no size, since a DaemonSet runs on every node: %s cannot act on "+
			"it; use RESTART", req.Workload, req.Operation)
	case req.Operation.Deploys() && req.Version() == nil:
		return failure.New(failure.Refused, "%s: %s was requested without a package or an image", req.Workload,
			req.Operation)
	case req.Method != plan.Parallel && req.Method != plan.Sequential:
		return failure.New(failure.Refused, "%s: the method %q is neither PARALLEL nor SEQUENTIAL", req.Workload,
			req.Method)
	}
	return nil
}

// RefusalReason explains why the operation cannot run on the workload in its current state; "" if it can.
func RefusalReason(req Request, seen Observed) string {
	if seen.Deleting {
		return fmt.Sprintf("%s is being deleted", req.Workload)
	}
	if seen.Rollout != "" {
		return fmt.Sprintf("%s is in the middle of a rollout (%s): finish that rollout, roll it back or stop it, "+
			"then run this again", req.Workload, rolloutName(seen.Rollout))
	}
	if seen.OriginalProblem != "" {
		return fmt.Sprintf("%s: the settings that an earlier release saved in the annotation %s cannot be read (%s): "+
			"correct its update settings by hand "+
			"and remove that annotation", req.Workload, workload.AnnotationOriginal, seen.OriginalProblem)
	}
	switch {
	case seen.TemplateMissing:
		return fmt.Sprintf("%s: its cluster no longer keeps the pod template that it had before task %s "+
			"(spec.revisionHistoryLimit, or it was "+
			"deleted and created again): deploy that version again", req.Workload, req.Restore.Task)
	case req.Operation == plan.Start && seen.Replicas == 0 && req.Workload.Replicas == nil:
		if _, ok := seen.rememberedSize(); !ok {
			return fmt.Sprintf("%s has no pods and no size is known to start it with: give it `replicas` in the "+
				"catalogue, or scale it by hand once", req.Workload)
		}
	case req.replaces() && seen.Paused:
		return fmt.Sprintf("%s is paused, so nothing would be %s: resume it with `kubectl rollout resume` first",
			req.Workload, pastTense(req.Operation))
	case req.replaces() && seen.UpdateType == workload.UpdateRolling && seen.Partition > 0:
		return fmt.Sprintf("%s is held at partition %d by an unfinished rollout, so its lower pods would not be %s: "+
			"finish that rollout (partition 0) first", req.Workload, seen.Partition, pastTense(req.Operation))
	}
	return ""
}

// Decide returns the next action for a request, from one snapshot of its workload. It is level-based: it depends only
// on the snapshot, so that after a process was killed at any point another one can continue. The request must have
// passed Validate.
func Decide(req Request, seen Observed) workload.NextAction {
	d := decide(req, seen)
	if d.Action == workload.ActDelete && seen.BlockedByBudget != "" {
		return waitForBudget(req, seen, d)
	}
	return d
}

func decide(req Request, seen Observed) workload.NextAction {
	switch {
	case seen.Deleting:
		return workload.Fail(failure.New(failure.WorkloadFailed,
			"%s is being deleted by another client: no further changes are made", req.Workload))
	case seen.Claim == req.Claim:
		return decideHeld(req, seen)
	case seen.Copied && !seen.Held && seen.Ending == nil:
		return takeOver(req, seen, "remove what an ended release had left on it, which another client has brought back")
	case seen.Claim == "" || seen.Copied && (!seen.Held || seen.Ending != nil):
		return decideFree(req, seen)
	case seen.Held:
		return claimLost(req, seen)
	case workload.MayTakeOver(req.Claim, req.TakeOver, seen.Claim) && (seen.OriginalProblem != "" || seen.Rollout != ""):
		return workload.Fail(failure.New(failure.Refused, "%s", RefusalReason(req, seen)))
	case workload.MayTakeOver(req.Claim, req.TakeOver, seen.Claim):
		return takeOver(req, seen, fmt.Sprintf("take over from %s, which has ended",
			workload.ParseHolder(seen.Claim).WorkflowID))
	}
	return workload.FailClaimed(req.Workload, req.Claim, seen.Claim)
}

func decideFree(req Request, seen Observed) workload.NextAction {
	switch {
	case seen.Original != nil && !seen.Held:
		return takeOver(req, seen, "first restore what an earlier release borrowed; its claim was removed")
	case seen.Ending != nil && seen.Original == nil:
		// The last write of this operation released the claim; only its result was lost.
		if end := *seen.Ending; end.Failure == nil {
			return workload.NextAction{Action: workload.ActDone, Reason: end.Result.Message, Result: end.Result}
		}
		return workload.Fail(seen.Ending.Failure)
	case seen.Held:
		return claimLost(req, seen)
	}
	return begin(req, seen)
}

// decideHeld decides on a workload that this operation holds.
func decideHeld(req Request, seen Observed) workload.NextAction {
	if seen.Original == nil {
		problem := "it is missing"
		if seen.OriginalProblem != "" {
			problem = seen.OriginalProblem
		}
		return workload.NextAction{Action: workload.ActWrite,
			Reason: "release the claim: the saved settings cannot be read", Write: &workload.Write{Step: "fail",
				ExpectedClaim: seen.Claim, Release: true}, Failure: failure.New(failure.WorkloadFailed,
				"%s: another client changed the annotation %s during the operation (%s): check its size and "+
					"update settings by hand", req.Workload, workload.AnnotationOriginal, problem)}
	}
	if !seen.Original.Begun {
		return begin(req, seen)
	}
	return operations[req.Operation].next(req, seen)
}

func begin(req Request, seen Observed) workload.NextAction {
	if reason := RefusalReason(req, seen); reason != "" {
		return abort(req, seen, failure.New(failure.Refused, "%s", reason))
	}
	return operations[req.Operation].begin(req, seen)
}

// claimWrite returns the write that sets the claim and saves the workload's original state. The caller adds the change
// itself.
func claimWrite(req Request, seen Observed, saved Original) *workload.Write {
	saved.Operation, saved.Begun, saved.BegunAt, saved.UID = req.Operation, true, seen.Now.UTC(), seen.UID
	from := saved.FromRevision
	saved.Change = changeFrom(req, seen)
	saved.FromRevision = cmp.Or(from, saved.FromRevision)
	return &workload.Write{Step: "begin", ExpectedClaim: seen.Claim, OnlyIfUnchanged: true, Claim: req.Claim,
		Annotations: map[string]string{workload.AnnotationOriginal: saved.String()}}
}

func claimLost(req Request, seen Observed) workload.NextAction {
	return workload.Fail(failure.New(failure.ClaimLost,
		"%s: another client removed this release's claim (annotation %s): %s. No further changes are made; check its "+
			"size and update settings "+
			"by hand", req.Workload, workload.AnnotationClaimedBy, workload.CurrentHolder(req.Claim, seen.Claim)))
}

// rolloutName returns the workflow ID of the rollout that saved its state on a workload, or the annotation's name if it
// cannot be read.
func rolloutName(saved string) string {
	var s struct {
		WorkflowID string `json:"workflowId"`
	}
	if json.Unmarshal([]byte(saved), &s) == nil && s.WorkflowID != "" {
		return s.WorkflowID
	}
	return "annotation " + workload.AnnotationRollout
}

func write(reason string, w *workload.Write) workload.NextAction {
	return workload.NextAction{Action: workload.ActWrite, Reason: reason, Write: w}
}
