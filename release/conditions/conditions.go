// Package conditions derives a few uniform conditions from the state of every release, for programs: does it progress,
// does it wait and for what, is it stalled, how did it end. No decision depends on them.
package conditions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
