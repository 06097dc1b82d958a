// Package window says when a release may begin something: not before a time, within release windows, and outside freezes. All arithmetic of
// calendars is here. It depends on the data of time zones, and so is never called by workflows: they ask the centre.
package window

import "time"

// Times are when something may begin. The zero value holds nothing back.
//
// +kubebuilder:object:generate=true
type Times struct {
	// NotBefore is the earliest time, RFC 3339 with an offset; absent: at once.
	NotBefore string `json:"notBefore,omitempty"`
	// Windows are when it may begin; without any it may at all times.
	// +kubebuilder:validation:MaxItems=50
	Windows []Window `json:"windows,omitempty"`
	// Freezes are when it may not, whatever the windows say.
	// +kubebuilder:validation:MaxItems=50
	Freezes []Window `json:"freezes,omitempty"`
}

// AnyTime says whether the times hold nothing back.
func (t Times) AnyTime() bool { return t.NotBefore == "" && len(t.Windows) == 0 && len(t.Freezes) == 0 }

// Window is a span of time that may recur.
//
// +kubebuilder:object:generate=true
type Window struct {
	// Start is when it begins for the first time: RFC 3339, with an offset or as the clock shows it in TimeZone.
	Start string `json:"start"`
	// Duration is how long it lasts: 90m, 4h, 1d12h, or as ISO 8601 has it, PT4H. A day is 24 hours.
	Duration string `json:"duration"`
	// RRule is how it recurs, by RFC 5545: FREQ=WEEKLY;BYDAY=TU,TH. Absent: once.
	RRule string `json:"rrule,omitempty"`
	// TimeZone is the IANA name of the zone whose clock counts: Europe/Berlin. Absent: the offset of Start counts at all times.
	TimeZone string `json:"timeZone,omitempty"`
}

// MostWindows is how many windows, and how many freezes, there are at most.
const MostWindows = 50

// ActivityNextOpening answers a Question with an Answer, on the centre's queue.
const ActivityNextOpening = "home.NextOpening"

// Question asks whether something may begin at a time. All of the times have to allow it.
type Question struct {
	Times []Times   `json:"times"`
	At    time.Time `json:"at"`
}

// Answer is what the times say of one moment.
type Answer struct {
	Open bool `json:"open"`
	// Until is how long that stays so at least: while it is closed, nil says that it does not open again.
	Until *time.Time `json:"until,omitempty"`
	// Reason is a sentence on what holds it back; "" when it is open.
	Reason string `json:"reason,omitempty"`
}

// Never says that it is closed and does not open again.
func (a Answer) Never() bool { return !a.Open && a.Until == nil }

// Of are those of the times that hold anything back.
func Of(times ...Times) (all []Times) {
	for _, t := range times {
		if !t.AnyTime() {
			all = append(all, t)
		}
	}
	return all
}
