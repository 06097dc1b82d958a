// Package conditions says of every release, in the same few conditions, what a program needs to know of it: does it go on, does it wait
// and for whom, is it stuck, how did it end. The conditions are derived from the state that people read; they decide nothing.
package conditions

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of conditions.
const (
	// Progressing: it is being carried out; False once it is over, or while somebody holds it.
	Progressing = "Progressing"
	// Waiting: nothing is done until something happens, which the reason names (Approval, Timer, Pods, Resume …).
	Waiting = "Waiting"
	// Stalled: it does not go on without help, because something failed or cannot be reached.
	Stalled = "Stalled"
	// Succeeded, of tasks and rollouts: True or False once it is decided, Unknown before.
	Succeeded = "Succeeded"
	// Available, of servings: every party serves, with all replicas or with some; Unknown while a party cannot be reached.
	Available = "Available"
)

// Reasons that several kinds of release have in common. Other reasons are the names of states and of what is waited for.
const (
	reasonNothing = "NothingToWaitFor"
	reasonRuns    = "NotOver"
	reasonSound   = "NoProblem"
	reasonResume  = "Resume"
)

// set makes the conditions of one release.
type set struct {
	generation int64
	list       []metav1.Condition
}

// fact is why a condition holds or does not, in a word and in a sentence, and since when.
type fact struct {
	reason  string
	message string
	since   time.Time
}

// maxMessage is how many characters the definition of a condition allows its message.
const maxMessage = 32_768

// add adds a condition that holds, or not, for one of these facts.
func (s *set) add(kind string, holds bool, yes, no fact) {
	if holds {
		s.addAs(kind, metav1.ConditionTrue, yes)
	} else {
		s.addAs(kind, metav1.ConditionFalse, no)
	}
}

// addEnd adds whether a release succeeded, once that is decided.
func (s *set) addEnd(decided, succeeded bool, why fact, began time.Time) {
	if decided {
		s.add(Succeeded, succeeded, why, why)
	} else {
		s.addAs(Succeeded, metav1.ConditionUnknown, fact{reasonRuns, "", began})
	}
}

func (s *set) addAs(kind string, status metav1.ConditionStatus, f fact) {
	if message := []rune(f.message); len(message) > maxMessage {
		f.message = string(message[:maxMessage])
	}
	s.list = append(s.list, metav1.Condition{Type: kind, Status: status, ObservedGeneration: s.generation,
		Reason: f.reason, Message: f.message, LastTransitionTime: metav1.NewTime(f.since.UTC().Truncate(time.Second))})
}

// latest is the last of these times; nil and zero ones do not count.
func latest(times ...*time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t != nil && t.After(last) {
			last = *t
		}
	}
	return last
}
