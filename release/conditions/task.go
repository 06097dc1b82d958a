package conditions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
)

// OfTask returns the conditions of a task. Transition times are as exact as the task's record.
func OfTask(t plan.Task) []metav1.Condition {
	since := taskSince(t)
	now := fact{string(t.State), t.Reason, since}
	var s set
	runs := t.State == plan.TaskPending || t.State == plan.TaskRunning || t.State == plan.TaskPausing ||
		t.State == plan.TaskStopping
	s.add(Progressing, runs, now, now)
	waits := fact{reasonResume, t.Reason, since}
	if w := t.WaitingFor; w != nil {
		waits = fact{waitReason(w.Kind), w.Message, w.Since}
	}
	s.add(Waiting, t.State == plan.TaskPaused || t.State == plan.TaskInterrupted || t.WaitingFor != nil, waits,
		fact{reasonNothing, "", latest(&t.CreatedAt, t.StartedAt)})
	s.add(Stalled, t.State == plan.TaskInterrupted, now, fact{reasonNoProblem, "", interruptedUntil(t)})
	s.addSucceeded(t.State.Final(), t.State == plan.TaskSucceeded, now, t.CreatedAt)
	return s.list
}

// taskSince returns when the task entered its state: its end, its interruption, or its last command.
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

// interruptedUntil returns when the last interruption ended; the task's creation if there was none.
func interruptedUntil(t plan.Task) time.Time {
	if n := len(t.Interruptions); n > 0 && t.Interruptions[n-1].Until != nil {
		return *t.Interruptions[n-1].Until
	}
	return t.CreatedAt
}
