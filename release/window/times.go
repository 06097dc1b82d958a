// Package window decides when a release may start work: not before a time, within release windows, and outside freezes.
// All calendar arithmetic is here. It depends on time zone data, so workflows must not call it: they ask the centre by
// an activity.
package window

import "time"

// Times are when work may start. The zero value allows every time.
//
// +kubebuilder:object:generate=true
type Times struct {
	// NotBefore is the earliest time, RFC 3339 with an offset; absent: at once.
	NotBefore string `json:"notBefore,omitempty"`
	// Windows are when work may start; without any, it may start at all times.
	// +kubebuilder:validation:MaxItems=50
	Windows []Window `json:"windows,omitempty"`
	// Freezes are when work may not start, regardless of the windows.
	// +kubebuilder:validation:MaxItems=50
	Freezes []Window `json:"freezes,omitempty"`
}

// AnyTime reports whether the times allow every time.
func (t Times) AnyTime() bool { return t.NotBefore == "" && len(t.Windows) == 0 && len(t.Freezes) == 0 }

// Window is a span of time that may recur.
//
// +kubebuilder:object:generate=true
type Window struct {
	// Start is when it begins for the first time: RFC 3339, with an offset or as the clock shows it in TimeZone.
	Start string `json:"start"`
	// Duration is how long it lasts: 90m, 4h, 1d12h, or in ISO 8601, PT4H. A day is 24 hours.
	Duration string `json:"duration"`
	// RRule is how it recurs, by RFC 5545: FREQ=WEEKLY;BYDAY=TU,TH. Absent: once.
	RRule string `json:"rrule,omitempty"`
	// TimeZone is the IANA name of the zone whose clock counts: Europe/Berlin. Absent: the offset of Start counts at
	// all times.
	TimeZone string `json:"timeZone,omitempty"`
}

// MaxWindows is the maximum number of windows, and of freezes.
const MaxWindows = 50

// ActivityNextOpening answers a Question with an Answer, on the centre's queue.
const ActivityNextOpening = "home.NextOpening"

// Question asks whether work may start at a time. All of the times must allow it.
type Question struct {
	Times []Times   `json:"times"`
	At    time.Time `json:"at"`
}

// Answer is the result for one moment.
type Answer struct {
	Open bool `json:"open"`
	// Until is how long the answer remains valid at least; nil in a closed answer means that it never opens again.
	Until *time.Time `json:"until,omitempty"`
	// Reason is a sentence on why it is closed; "" if it is open.
	Reason string `json:"reason,omitempty"`
}

// Never reports whether it is closed and never opens again.
func (a Answer) Never() bool { return !a.Open && a.Until == nil }

// Restricting returns those of the times that restrict anything.
func Restricting(times ...Times) (all []Times) {
	for _, t := range times {
		if !t.AnyTime() {
			all = append(all, t)
		}
	}
	return all
}
