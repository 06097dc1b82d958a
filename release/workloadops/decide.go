package workloadops

import (
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// Validate says what is wrong with a request that no look at the workload could make right; nil when nothing is.
// The failure is Refused.
func Validate(req Request) *failure.Error {
	ref := req.Workload.WorkloadRef
	switch {
	case ref.APIVersion != APIVersion, ref.Kind != KindDeployment && ref.Kind != KindStatefulSet && ref.Kind != KindDaemonSet:
		return failure.New(failure.Refused, "%s of %s cannot be released: START, STOP and RESTART act on a Deployment, StatefulSet or DaemonSet of %s",
			req.Workload, ref.APIVersion, APIVersion)
	case req.Operation != plan.Start && req.Operation != plan.Stop && req.Operation != plan.Restart:
		return failure.New(failure.Refused, "%s: %s is not built yet; use START, STOP or RESTART", req.Workload, req.Operation)
	case ref.Kind == KindDaemonSet && req.Operation != plan.Restart:
		return failure.New(failure.Refused, "%s has no size, since a DaemonSet runs on every node: %s cannot act on it; use RESTART", req.Workload, req.Operation)
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
		return fmt.Sprintf("%s is in the middle of a rollout (%s): finish that rollout, roll it back or stop it, then run this again", req.Workload, rolloutNamed(seen.Rollout))
	}
	if seen.OriginalProblem != "" {
		return fmt.Sprintf("%s: what an earlier release saved in the annotation %s cannot be read (%s): put its update settings right by hand and remove that annotation",
			req.Workload, AnnotationOriginal, seen.OriginalProblem)
	}
	switch {
	case req.Operation == plan.Start && seen.Replicas == 0 && req.Workload.Replicas == nil:
		if _, ok := seen.remembered(); !ok {
			return fmt.Sprintf("%s has no pods and no size is known to start it with: give it `replicas` in the catalogue, or scale it by hand once", req.Workload)
		}
	case req.Operation == plan.Restart && seen.Paused:
		return fmt.Sprintf("%s is paused, so nothing would be restarted: resume it with `kubectl rollout resume` first", req.Workload)
	case req.Operation == plan.Restart && seen.UpdateType == UpdateRolling && seen.Partition > 0:
		return fmt.Sprintf("%s is held at partition %d by an unfinished rollout, so its lower pods would not be restarted: finish that rollout (partition 0) first",
			req.Workload, seen.Partition)
	}
	return ""
}

// Decide says what to do next for a request, from one look at its workload. It is level-based: it goes by what is seen alone, so that
// a process that was killed at any point is followed by another that goes on from there. The request must have passed Validate.
func Decide(req Request, seen Observed) Decision {
	switch {
	case seen.Deleting:
		return failed(failure.New(failure.WorkloadFailed, "%s is being deleted by somebody else: nothing more is done to it", req.Workload))
	case seen.Claim == req.Claim:
		return proceed(req, seen)
	case seen.Claim == "":
		return free(req, seen)
	case seen.Held:
		return claimLost(req, fmt.Sprintf("%s holds it now", ParseHolder(seen.Claim).WorkflowID))
	case req.TakeOver != "" && seen.Claim == req.TakeOver && (seen.OriginalProblem != "" || seen.Rollout != ""):
		return failed(failure.New(failure.Refused, "%s", Refuses(req, seen)))
	case req.TakeOver != "" && seen.Claim == req.TakeOver:
		return takeOver(req, seen, fmt.Sprintf("take over from %s, which has ended", ParseHolder(seen.Claim).WorkflowID))
	}
	return claimed(req, seen)
}

// free decides on a workload that nobody holds.
func free(req Request, seen Observed) Decision {
	switch {
	case seen.Original != nil && !seen.Held:
		return takeOver(req, seen, "give back first what an earlier release borrowed, whose claim somebody took away")
	case seen.Ending != nil && seen.Original == nil:
		// The claim was given back with the last write of this very operation; only its answer was not heard.
		return answer(*seen.Ending)
	case seen.Held:
		return claimLost(req, "nobody holds it now")
	}
	return begin(req, seen)
}

// proceed decides on a workload that this operation holds.
func proceed(req Request, seen Observed) Decision {
	if seen.Original == nil {
		problem := "it is gone"
		if seen.OriginalProblem != "" {
			problem = seen.OriginalProblem
		}
		return Decision{Action: ActWrite, Reason: "give the claim back: what was saved cannot be read",
			Write: &Write{Step: "fail", Held: seen.Claim, Release: true},
			Failure: failure.New(failure.WorkloadFailed, "%s: somebody changed the annotation %s while it was being released (%s): look at its size and update settings by hand",
				req.Workload, AnnotationOriginal, problem)}
	}
	if !seen.Original.Begun {
		return begin(req, seen)
	}
	switch req.Operation {
	case plan.Start:
		return goOnStarting(req, seen)
	case plan.Stop:
		return goOnStopping(req, seen)
	default:
		return goOnRestarting(req, seen)
	}
}

// begin decides on the first change.
func begin(req Request, seen Observed) Decision {
	if reason := Refuses(req, seen); reason != "" {
		return abort(req, seen, failure.New(failure.Refused, "%s", reason))
	}
	switch req.Operation {
	case plan.Start:
		return beginStarting(req, seen)
	case plan.Stop:
		return beginStopping(req, seen)
	default:
		return beginRestarting(req, seen)
	}
}

// hold is the write that takes the claim and saves what the operation has to know later; the caller adds the change itself.
func hold(req Request, seen Observed, saved Original) *Write {
	saved.Operation, saved.Begun, saved.BegunAt = req.Operation, true, seen.Now.UTC()
	if saved.FromRevision == "" {
		saved.FromRevision = seen.Revision
	}
	if req.Workload.WorkloadRef.Kind != KindDaemonSet {
		saved.FromReplicas = number(seen.Replicas)
	}
	return &Write{Step: "begin", Held: seen.Claim, Fresh: true, Claim: req.Claim, Annotations: map[string]string{AnnotationOriginal: saved.String()}}
}

func claimed(req Request, seen Observed) Decision {
	holder := ParseHolder(seen.Claim)
	e := failure.New(failure.Claimed, "%s is being released by %s: wait until that has ended or stop it, then run this again", req.Workload, holder.WorkflowID)
	e.Holder = seen.Claim
	return failed(e)
}

func claimLost(req Request, now string) Decision {
	return failed(failure.New(failure.ClaimLost, "%s: somebody took this release's claim away (annotation %s): %s. Nothing more is done to it; look at its size and update settings by hand",
		req.Workload, AnnotationClaimedBy, now))
}

func answer(end Ending) Decision {
	if end.Failure != nil {
		return failed(end.Failure)
	}
	return Decision{Action: ActDone, Reason: end.Result.Message, Result: end.Result}
}

func failed(e *failure.Error) Decision {
	return Decision{Action: ActFail, Reason: e.Message, Failure: e}
}

func number(n int32) *int32 { return &n }

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
