package conditions

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
)

// OfRollout returns the conditions of a rollout. Transition times are as exact as the rollout's record.
func OfRollout(r rollout.Status) []metav1.Condition {
	since := rolloutSince(r)
	now := fact{string(r.Phase), r.Reason, since}
	var s set
	s.addProgress(r, now)
	var wait fact
	if r.WaitingFor != nil {
		wait = fact{waitReason(string(r.WaitingFor.Kind)), r.WaitingFor.Message, r.WaitingFor.Since}
	}
	s.add(Waiting, r.WaitingFor != nil, wait, fact{reasonNothing, "", since})
	// A failed or drifted rollout leaves its split unchanged until a user decides.
	failed := r.Phase == rollout.PhaseFailed
	stalled := now
	if !failed {
		stalled = wait
	}
	drifted := r.WaitingFor != nil && r.WaitingFor.Kind == rollout.WaitDrift
	s.add(Stalled, failed || drifted, stalled, fact{reasonNoProblem, "", r.CreatedAt})
	s.addSucceeded(r.Phase.Final() || failed, r.Phase == rollout.PhaseHealthy, now, r.CreatedAt)
	return s.list
}

func (s *set) addProgress(r rollout.Status, now fact) {
	paused := now
	if r.Phase == rollout.PhaseProgressing {
		paused.reason = "Paused"
	}
	s.add(Progressing, r.Phase == rollout.PhaseProgressing && !r.Paused,
		fact{cmp.Or(string(r.CurrentStepState), string(r.Phase)), r.Reason, r.CreatedAt}, paused)
}

// rolloutSince returns when the rollout entered its current state: its end, the start of its wait, or its last update.
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

// waitReason returns the condition reason of a kind of wait: Approval for "approval".
func waitReason(word string) string {
	if word == "" {
		return "Unknown"
	}
	return strings.ToUpper(word[:1]) + word[1:]
}
