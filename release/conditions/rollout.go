package conditions

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
)

// OfRollout are the conditions of a rollout. Times are as far as the rollout has them on record.
func OfRollout(r rollout.Status) []metav1.Condition {
	since := rolloutSince(r)
	now := fact{string(r.Phase), r.Reason, since}
	var s set
	s.addProgress(r, now)
	var wait fact
	if r.WaitingFor != nil {
		wait = fact{camel(string(r.WaitingFor.Kind)), r.WaitingFor.Message, r.WaitingFor.Since}
	}
	s.add(Waiting, r.WaitingFor != nil, wait, fact{reasonNothing, "", since})
	// A failed rollout, and one that somebody else's edit holds, leave their split where it is until a person decides.
	failed := r.Phase == rollout.PhaseFailed
	stalled := now
	if !failed {
		stalled = wait
	}
	drifted := r.WaitingFor != nil && r.WaitingFor.Kind == rollout.WaitDrift
	s.add(Stalled, failed || drifted, stalled, fact{reasonSound, "", r.CreatedAt})
	s.addEnd(r.Phase.Final() || failed, r.Phase == rollout.PhaseHealthy, now, r.CreatedAt)
	return s.list
}

func (s *set) addProgress(r rollout.Status, now fact) {
	held := now
	if r.Phase == rollout.PhaseProgressing {
		held.reason = "Paused"
	}
	s.add(Progressing, r.Phase == rollout.PhaseProgressing && !r.Paused,
		fact{cmp.Or(string(r.CurrentStepState), string(r.Phase)), r.Reason, r.CreatedAt}, held)
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
