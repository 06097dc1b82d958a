// Package conditions derives a few uniform conditions from the state of every release, for programs: does it progress,
// does it wait and for what, is it stalled, how did it end. No decision depends on them.
package conditions

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
)

// The types of conditions.
const (
	// Progressing: the release is being carried out; False once it has ended, and while it is paused.
	Progressing = "Progressing"
	// Waiting: the release waits for a condition, which the reason names (Approval, Timer, Pods, Resume …).
	Waiting = "Waiting"
	// Stalled: the release does not continue without help, because something failed or is unreachable.
	Stalled = "Stalled"
	// Succeeded, of tasks and rollouts: True or False once the outcome is known, Unknown before.
	Succeeded = "Succeeded"
	// Available, of servings: every party serves, with all or some of its replicas; Unknown while a party is
	// unreachable.
	Available = "Available"
)

// Reasons that several kinds of release have in common. Other reasons are the names of states and of awaited
// conditions.
const (
	reasonNothing   = "NothingToWaitFor"
	reasonNotOver   = "NotOver"
	reasonNoProblem = "NoProblem"
	reasonResume    = "Resume"
)

// set builds the conditions of one release.
type set struct {
	generation int64
	list       []metav1.Condition
}

// fact explains a condition's status: a reason, a message, and since when.
type fact struct {
	reason  string
	message string
	since   time.Time
}

// maxMessage is the maximum length of a condition's message by the definition of metav1.Condition, in characters.
const maxMessage = 32_768

// add adds a condition: True with the fact yes if it holds, otherwise False with the fact no.
func (s *set) add(kind string, holds bool, yes, no fact) {
	if holds {
		s.addAs(kind, metav1.ConditionTrue, yes)
	} else {
		s.addAs(kind, metav1.ConditionFalse, no)
	}
}

// addSucceeded adds the condition Succeeded: Unknown until the outcome is decided.
func (s *set) addSucceeded(decided, succeeded bool, why fact, began time.Time) {
	if decided {
		s.add(Succeeded, succeeded, why, why)
	} else {
		s.addAs(Succeeded, metav1.ConditionUnknown, fact{reasonNotOver, "", began})
	}
}

func (s *set) addAs(kind string, status metav1.ConditionStatus, f fact) {
	if message := []rune(f.message); len(message) > maxMessage {
		f.message = string(message[:maxMessage])
	}
	s.list = append(s.list, metav1.Condition{Type: kind, Status: status, ObservedGeneration: s.generation,
		Reason: f.reason, Message: f.message, LastTransitionTime: metav1.NewTime(f.since.UTC().Truncate(time.Second))})
}

// latest returns the latest of these times; nil and zero times are ignored.
func latest(times ...*time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t != nil && t.After(last) {
			last = *t
		}
	}
	return last
}

// OfRollout returns the conditions of a rollout. Transition times are as exact as the rollout's record.
func OfRollout(r rollout.Status) []metav1.Condition {
	since := rolloutSince(r)
	now := fact{string(r.Phase), r.Reason, since}
	var s set
	paused := now
	if r.Phase == rollout.PhaseProgressing {
		paused.reason = "Paused"
	}
	s.add(Progressing, r.Phase == rollout.PhaseProgressing && !r.Paused,
		fact{cmp.Or(string(r.CurrentStepState), string(r.Phase)), r.Reason, r.CreatedAt}, paused)
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

// OfServing returns the conditions of a serving. kept are the conditions in its status: an unchanged condition keeps
// its transition time. For others it is the time of the last status write, or a more exact time on record.
func OfServing(v serving.View, kept []metav1.Condition) []metav1.Condition {
	since := latest(&v.CreatedAt, v.UpdatedAt)
	s := set{generation: v.Generation}
	now := fact{string(v.Phase), v.Message, since}
	s.addAs(Available, availability(v), now)
	op := v.Operation
	runs := op != nil && !op.Done
	progress := fact{string(kuscia.PhaseProgressing), v.Message, since}
	if runs && op.StartedAt != nil {
		progress.message, progress.since = op.Message, *op.StartedAt
	}
	s.add(Progressing, runs || v.Phase == kuscia.PhaseProgressing, progress, fact{string(v.Phase), "", since})
	var wait fact
	if runs && op.WaitingFor != nil {
		wait = fact{waitReason(op.WaitingFor.Kind), op.WaitingFor.Message, op.WaitingFor.Since.Time}
	}
	s.add(Waiting, runs && op.WaitingFor != nil, wait, fact{reasonNothing, "", since})
	s.add(Stalled, v.Phase == kuscia.PhaseFailed, fact{cmp.Or(v.Reason, string(v.Phase)), v.Message, since},
		fact{reasonNoProblem, "", since})
	for i, c := range s.list {
		if before := meta.FindStatusCondition(kept, c.Type); before != nil && before.Status == c.Status {
			s.list[i].LastTransitionTime = before.LastTransitionTime
		}
	}
	return s.list
}

// UpdateStatus writes the conditions of a serving into its status. Their generation is the one whose processing began
// last, so that a client that waits for a newer generation does not mistake them for it. The time of a transition is
// the time of the write that found it.
func UpdateStatus(kd *kuscia.KusciaDeployment, now time.Time) {
	st := kd.Status
	view := serving.View{Generation: st.ObservedGeneration, Phase: cmp.Or(st.Phase, serving.DisplayedPending),
		Reason: st.Reason, Message: st.Message, TotalParties: st.TotalParties, AvailableParties: st.AvailableParties}
	if op := st.Operation; op != nil {
		view.Operation = &serving.OperationView{Done: op.Done, Message: op.Message, WaitingFor: op.WaitingFor}
	}
	for _, c := range OfServing(view, nil) {
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&kd.Status.Conditions, c)
	}
}

func availability(v serving.View) metav1.ConditionStatus {
	switch {
	case v.Phase == kuscia.PhaseUnknown:
		return metav1.ConditionUnknown
	case v.TotalParties > 0 && v.AvailableParties == v.TotalParties:
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

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
