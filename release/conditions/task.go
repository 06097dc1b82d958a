package conditions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/plan"
)

// OfTask are the conditions of a task. Times are as far as the task has them on record.
func OfTask(t plan.Task) []metav1.Condition {
	since := taskSince(t)
	var s set
	runs := t.State == plan.TaskPending || t.State == plan.TaskRunning || t.State == plan.TaskPausing || t.State == plan.TaskStopping
	s.add(Progressing, fact{statusOf(runs), string(t.State), t.Reason, since})
	if t.State == plan.TaskPaused || t.State == plan.TaskInterrupted {
		s.add(Waiting, fact{metav1.ConditionTrue, reasonResume, t.Reason, since})
	} else {
		s.add(Waiting, fact{metav1.ConditionFalse, reasonNothing, "", latest(&t.CreatedAt, t.StartedAt)})
	}
	if t.State == plan.TaskInterrupted {
		s.add(Stalled, fact{metav1.ConditionTrue, string(t.State), t.Reason, since})
	} else {
		s.add(Stalled, fact{metav1.ConditionFalse, reasonSound, "", interruptedUntil(t)})
	}
	if t.State.Final() {
		s.add(Succeeded, fact{statusOf(t.State == plan.TaskSucceeded), string(t.State), t.Reason, since})
	} else {
		s.add(Succeeded, fact{metav1.ConditionUnknown, reasonRuns, "", t.CreatedAt})
	}
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
