package workloadops

import (
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// operations are the operations by name: how each begins, and how it goes on.
var operations = map[plan.Operation]struct {
	begin, goOn func(Request, Observed) NextAction
}{
	plan.Start:   {beginStarting, goOnStarting},
	plan.Stop:    {beginStopping, goOnStopping},
	plan.Restart: {beginReplacing, goOnReplacing},

	plan.HTTPUploadDeploy: {beginReplacing, goOnReplacing},
	plan.Restore:          {beginRestoring, goOnRestoring},
	plan.CompileDeploy:    {beginReplacing, goOnReplacing},
}

// Validate says what is wrong with a request that no look at the workload could make right; nil when nothing is. The failure is Refused.
func Validate(req Request) *failure.Error {
	ref := req.Workload.WorkloadRef
	_, known := operations[req.Operation]
	switch {
	case ref.APIVersion != APIVersion, ref.Kind != KindDeployment && ref.Kind != KindStatefulSet && ref.Kind != KindDaemonSet:
		return failure.New(failure.Refused, "%s of %s cannot be released: a plan acts on a Deployment, StatefulSet "+
			"or DaemonSet of %s", req.Workload, ref.APIVersion, APIVersion)
	case !known:
		return failure.New(failure.Refused, "%s: this party's worker does not know the operation %q", req.Workload, req.Operation)
	case req.Operation == plan.Restore && req.Restore == nil:
		return failure.New(failure.Refused, "%s: RESTORE was asked for without what to restore", req.Workload)
	case ref.Kind == KindDaemonSet && !req.replaces():
		return failure.New(failure.Refused, "%s has no size, since a DaemonSet runs on every node: %s cannot act on it; use RESTART",
			req.Workload, req.Operation)
	case req.Operation.Deploys() && req.Version() == nil:
		return failure.New(failure.Refused, "%s: %s was asked for without a package or an image", req.Workload, req.Operation)
	case req.Method != plan.Parallel && req.Method != plan.Sequential:
		return failure.New(failure.Refused, "%s: the method %q is neither PARALLEL nor SEQUENTIAL", req.Workload, req.Method)
	}
	return nil
}

// Refuses says why the operation cannot be carried out on the workload as it is, "" when it can. It changes nothing.
func Refuses(req Request, seen Observed) string {
	if seen.Deleting {
		return fmt.Sprintf("%s is being deleted", req.Workload)
	}
	if seen.Rollout != "" {
		return fmt.Sprintf("%s is in the middle of a rollout (%s): finish that rollout, roll it back or stop it, then run this again",
			req.Workload, rolloutNamed(seen.Rollout))
	}
	if seen.OriginalProblem != "" {
		return fmt.Sprintf("%s: what an earlier release saved in the annotation %s cannot be read (%s): put its update settings right by hand "+
			"and remove that annotation", req.Workload, AnnotationOriginal, seen.OriginalProblem)
	}
	switch {
	case seen.Unkept:
		return fmt.Sprintf("%s: its cluster doesn't keep the pod template that it had before task %s any more (spec.revisionHistoryLimit, or it was "+
			"deleted and made again): deploy that version anew", req.Workload, req.Restore.Task)
	case req.Operation == plan.Start && seen.Replicas == 0 && req.Workload.Replicas == nil:
		if _, ok := seen.remembered(); !ok {
			return fmt.Sprintf("%s has no pods and no size is known to start it with: give it `replicas` in the catalogue, or scale it by hand once",
				req.Workload)
		}
	case req.replaces() && seen.Paused:
		return fmt.Sprintf("%s is paused, so nothing would be %s: resume it with `kubectl rollout resume` first", req.Workload, done(req.Operation))
	case req.replaces() && seen.UpdateType == UpdateRolling && seen.Partition > 0:
		return fmt.Sprintf("%s is held at partition %d by an unfinished rollout, so its lower pods would not be %s: finish that "+
			"rollout (partition 0) first", req.Workload, seen.Partition, done(req.Operation))
	}
	return ""
}

// Decide says what to do next for a request, from one look at its workload. It is level-based: it goes by what is seen alone, so that
// a process that was killed at any point is followed by another that goes on from there. The request must have passed Validate.
func Decide(req Request, seen Observed) NextAction {
	d := decide(req, seen)
	if d.Action == ActDelete && seen.HeldUp != "" {
		return heldUp(req, seen, d)
	}
	return d
}

func decide(req Request, seen Observed) NextAction {
	switch {
	case seen.Deleting:
		return Fail(failure.New(failure.WorkloadFailed, "%s is being deleted by somebody else: nothing more is done to it", req.Workload))
	case seen.Claim == req.Claim:
		return proceed(req, seen)
	case seen.Claim == "":
		return free(req, seen)
	case seen.Held:
		return claimLost(req, seen)
	case MayTakeOver(req.Claim, req.TakeOver, seen.Claim) && (seen.OriginalProblem != "" || seen.Rollout != ""):
		return Fail(failure.New(failure.Refused, "%s", Refuses(req, seen)))
	case MayTakeOver(req.Claim, req.TakeOver, seen.Claim):
		return takeOver(req, seen, fmt.Sprintf("take over from %s, which has ended", ParseHolder(seen.Claim).WorkflowID))
	}
	return Claimed(req.Workload, req.Claim, seen.Claim)
}

func free(req Request, seen Observed) NextAction {
	switch {
	case seen.Original != nil && !seen.Held:
		return takeOver(req, seen, "give back first what an earlier release borrowed, whose claim somebody took away")
	case seen.Ending != nil && seen.Original == nil:
		// The claim was given back with the last write of this very operation; only its answer was not heard.
		return answer(*seen.Ending)
	case seen.Held:
		return claimLost(req, seen)
	}
	return begin(req, seen)
}

// proceed decides on a workload that this operation holds.
func proceed(req Request, seen Observed) NextAction {
	if seen.Original == nil {
		problem := "it is gone"
		if seen.OriginalProblem != "" {
			problem = seen.OriginalProblem
		}
		return NextAction{Action: ActWrite, Reason: "give the claim back: what was saved cannot be read",
			Write: &Write{Step: "fail", Held: seen.Claim, Release: true},
			Failure: failure.New(failure.WorkloadFailed,
				"%s: somebody changed the annotation %s while it was being released (%s): look at its size and update settings by hand",
				req.Workload, AnnotationOriginal, problem)}
	}
	if !seen.Original.Begun {
		return begin(req, seen)
	}
	return operations[req.Operation].goOn(req, seen)
}

func begin(req Request, seen Observed) NextAction {
	if reason := Refuses(req, seen); reason != "" {
		return abort(req, seen, failure.New(failure.Refused, "%s", reason))
	}
	return operations[req.Operation].begin(req, seen)
}

// hold is the write that takes the claim and saves what the operation has to know later; the caller adds the change itself.
func hold(req Request, seen Observed, saved Original) *Write {
	saved.Operation, saved.Begun, saved.BegunAt = req.Operation, true, seen.Now.UTC()
	if saved.FromRevision == "" {
		saved.FromRevision = seen.Revision
	}
	if deploys(req.Operation) {
		saved.FromPackage, saved.Before = seen.Package, seen.Template
	}
	if req.Workload.WorkloadRef.Kind != KindDaemonSet {
		saved.FromReplicas = new(seen.Replicas)
	}
	return &Write{Step: "begin", Held: seen.Claim, Fresh: true, Claim: req.Claim,
		Annotations: map[string]string{AnnotationOriginal: saved.String()}}
}

func claimLost(req Request, seen Observed) NextAction {
	return Fail(failure.New(failure.ClaimLost,
		"%s: somebody took this release's claim away (annotation %s): %s. Nothing more is done to it; look at its size and update settings by "+
			"hand", req.Workload, AnnotationClaimedBy, HolderNow(req.Claim, seen.Claim)))
}

func answer(end Ending) NextAction {
	if end.Failure != nil {
		return Fail(end.Failure)
	}
	return NextAction{Action: ActDone, Reason: end.Result.Message, Result: end.Result}
}

// rolloutNamed says which rollout has saved something on a workload: its workflow, where that can be read.
func rolloutNamed(saved string) string {
	var s struct {
		WorkflowID string `json:"workflowId"`
	}
	if json.Unmarshal([]byte(saved), &s) == nil && s.WorkflowID != "" {
		return s.WorkflowID
	}
	return "annotation " + AnnotationRollout
}
