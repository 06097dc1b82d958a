package conditions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
)

// OfTask are the conditions of a task. Times are as far as the task has them on record.
func OfTask(t plan.Task) []metav1.Condition {
	since := taskSince(t)
	now := fact{string(t.State), t.Reason, since}
	var s set
	runs := t.State == plan.TaskPending || t.State == plan.TaskRunning || t.State == plan.TaskPausing || t.State == plan.TaskStopping
	s.add(Progressing, runs, now, now)
	waits := fact{reasonResume, t.Reason, since}
	if w := t.WaitingFor; w != nil {
		waits = fact{camel(w.Kind), w.Message, w.Since}
	}
	s.add(Waiting, t.State == plan.TaskPaused || t.State == plan.TaskInterrupted || t.WaitingFor != nil, waits,
		fact{reasonNothing, "", latest(&t.CreatedAt, t.StartedAt)})
	s.add(Stalled, t.State == plan.TaskInterrupted, now, fact{reasonSound, "", interruptedUntil(t)})
	s.addEnd(t.State.Final(), t.State == plan.TaskSucceeded, now, t.CreatedAt)
	return s.list
}

// taskSince is when the task came into its state: its end, its interruption, or what was last asked of it.
func taskSince(t plan.Task) time.Time {
	began := latest(&t.CreatedAt, t.StartedAt)
	switch {
	case t.FinishedAt != nil:
		return *t.FinishedAt
	case t.State == plan.TaskInterrupted && len(t.Interruptions) > 0:
		return t.Interruptions[len(t.Interruptions)-1].At
	case t.State == plan.TaskPending || len(t.History) == 0:
		return began
	}
	return latest(&began, &t.History[len(t.History)-1].At)
}

// interruptedUntil is when the last trouble ended; the beginning, when there was none.
func interruptedUntil(t plan.Task) time.Time {
	if n := len(t.Interruptions); n > 0 && t.Interruptions[n-1].Until != nil {
		return *t.Interruptions[n-1].Until
	}
	return t.CreatedAt
}
