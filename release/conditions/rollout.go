package conditions

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
)

// OfRollout are the conditions of a rollout. Times are as far as the rollout has them on record.
func OfRollout(r rollout.Status) []metav1.Condition {
	var s set
	since := rolloutSince(r)
	s.add(Progressing, progressOf(r, since))
	if r.WaitingFor != nil {
		s.add(Waiting, fact{metav1.ConditionTrue, camel(string(r.WaitingFor.Kind)), r.WaitingFor.Message, r.WaitingFor.Since})
	} else {
		s.add(Waiting, fact{metav1.ConditionFalse, reasonNothing, "", since})
	}
	// A failed rollout, and one that somebody else's edit holds, leave their split where it is until a person decides.
	switch {
	case r.Phase == rollout.PhaseFailed:
		s.add(Stalled, fact{metav1.ConditionTrue, string(r.Phase), r.Reason, since})
	case r.WaitingFor != nil && r.WaitingFor.Kind == rollout.WaitDrift:
		s.add(Stalled, fact{metav1.ConditionTrue, camel(string(r.WaitingFor.Kind)), r.WaitingFor.Message, r.WaitingFor.Since})
	default:
		s.add(Stalled, fact{metav1.ConditionFalse, reasonSound, "", r.CreatedAt})
	}
	if r.Phase.Final() || r.Phase == rollout.PhaseFailed {
		s.add(Succeeded, fact{statusOf(r.Phase == rollout.PhaseHealthy), string(r.Phase), r.Reason, since})
	} else {
		s.add(Succeeded, fact{metav1.ConditionUnknown, reasonRuns, "", r.CreatedAt})
	}
	return s.list
}

func progressOf(r rollout.Status, since time.Time) fact {
	switch {
	case r.Phase != rollout.PhaseProgressing:
		return fact{metav1.ConditionFalse, string(r.Phase), r.Reason, since}
	case r.Paused:
		return fact{metav1.ConditionFalse, "Paused", r.Reason, since}
	case r.CurrentStepState == "":
		return fact{metav1.ConditionTrue, string(r.Phase), r.Reason, r.CreatedAt}
	}
	return fact{metav1.ConditionTrue, string(r.CurrentStepState), r.Reason, r.CreatedAt}
}

// rolloutSince is when the rollout came into its phase: its end, or what it waits for since then.
func rolloutSince(r rollout.Status) time.Time {
	switch {
	case r.FinishedAt != nil:
		return *r.FinishedAt
	case r.WaitingFor != nil:
		return r.WaitingFor.Since
	case !r.LastUpdateTime.IsZero():
		return r.LastUpdateTime
	}
	return r.CreatedAt
}

// camel makes the reason of a kind of waiting: "approval" is Approval.
func camel(word string) string {
	if word == "" {
		return "Unknown"
	}
	return strings.ToUpper(word[:1]) + word[1:]
}
