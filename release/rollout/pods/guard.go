package pods

import (
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// guard decides on a workload that this rollout does not hold, or that cannot be gone on with.
func guard(s rollout.Subject, seen Observed) (Decision, bool) {
	switch {
	case seen.Deleting:
		return failf(failure.Gone, "%s is being deleted by somebody else: nothing more is done to it", s.Workload), true
	case s.UID != "" && seen.UID != "" && seen.UID != s.UID:
		return failf(failure.Gone, "%s was deleted by somebody else, and is another of the same name now: nothing is done to that one", s.Workload), true
	case seen.Claim == s.Claim && seen.SavedProblem != "":
		return failf(failure.Refused, "%s: the annotation %s cannot be read (%s): put it right by hand, or bring the workload home as %s says",
			s.Workload, rollout.AnnotationSaved, seen.SavedProblem, rollout.AnnotationRecover), true
	case seen.Claim == s.Claim && seen.Saved == nil:
		return failf(failure.ClaimLost, "%s: somebody removed the annotation %s, so what was borrowed is not known: look at its template and update settings by hand",
			s.Workload, rollout.AnnotationSaved), true
	case seen.Claim == s.Claim:
		return Decision{}, false
	case s.TakeOver != "" && seen.Claim == s.TakeOver:
		return takeOver(s, seen), true
	}
	now := "nobody holds it now"
	if seen.Claim != "" {
		now = workloadops.ParseHolder(seen.Claim).WorkflowID + " holds it now"
	}
	return failf(failure.ClaimLost, "%s: somebody took this rollout's claim away (annotation %s): %s. Nothing more is done to it; look at its template and update settings by hand",
		s.Workload, workloadops.AnnotationClaimedBy, now), true
}

// takeOver puts our claim in the place of another; what was saved stays.
func takeOver(s rollout.Subject, seen Observed) Decision {
	reason := "take the claim"
	if seen.Claim != "" {
		reason = fmt.Sprintf("take over from %s, which has ended", workloadops.ParseHolder(seen.Claim).WorkflowID)
	}
	return Set(reason, &Write{Step: "take-over", Held: seen.Claim, Fresh: true, Claim: s.Claim})
}

func claimed(s rollout.Subject, seen Observed) Decision {
	e := failure.New(failure.Claimed, "%s is being released by %s: wait until that has ended or stop it, then run this again",
		s.Workload, workloadops.ParseHolder(seen.Claim).WorkflowID)
	e.Holder = seen.Claim
	return fail(e)
}

// changed keeps of the settings those that differ from what the workload has.
func changed(settings []Setting, seen Observed) []Setting {
	var out []Setting
	for _, s := range settings {
		if !sameJSON(s.Value, seen.Settings[s.Path]) {
			out = append(out, s)
		}
	}
	return out
}

// sameJSON says whether two JSON values mean the same; null and absent are one.
func sameJSON(a, b json.RawMessage) bool {
	if absent(a) || absent(b) {
		return absent(a) == absent(b)
	}
	return workloadops.SameJSON(a, b)
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func holderOf(claim string) string { return workloadops.ParseHolder(claim).WorkflowID }
