package window

import (
	"time"

	"go.yaml.in/yaml/v3"

	"slipway.io/slipway/release/strictyaml"
)

// The keys.
const (
	keyNotBefore = "notBefore"
	keyWindows   = "windows"
	keyFreezes   = "freezes"
	keyStart     = "start"
	keyDuration  = "duration"
	keyRRule     = "rrule"
	keyTimeZone  = "timeZone"
)

// Keys are the keys of Times in a document.
var Keys = []string{keyNotBefore, keyWindows, keyFreezes}

// Read reads the times from the mapping that contains them. CheckTimes validates them.
func Read(m strictyaml.Mapping) (t Times) {
	m.Into(&t)
	return t
}

// CheckTimes reports what is wrong with the times of the mapping at a path.
func (t Times) CheckTimes(parent string, found *strictyaml.Findings) {
	sound := t.checkNotBefore(strictyaml.Join(parent, keyNotBefore), found)
	sound = checkWindows(t.Windows, strictyaml.Join(parent, keyWindows), found) && sound
	sound = checkWindows(t.Freezes, strictyaml.Join(parent, keyFreezes), found) && sound
	if sound && len(t.Windows) > 0 {
		t.checkOpens(strictyaml.Join(parent, keyWindows), found)
	}
}

func (t Times) checkNotBefore(field string, found *strictyaml.Findings) bool {
	if t.NotBefore == "" {
		return true
	}
	_, err := parseInstant(t.NotBefore)
	found.Check(0, field, err)
	return err == nil && !found.Unreadable(field)
}

func checkWindows(all []Window, field string, found *strictyaml.Findings) (sound bool) {
	if len(all) > MaxWindows {
		found.Refuse(0, field, "has %d entries, of at most %d", len(all), MaxWindows)
		return false
	}
	sound = !found.Unreadable(field)
	for i, w := range all {
		entry := strictyaml.Index(field, i)
		missing := map[string]bool{}
		for _, required := range []struct{ key, value, remedy string }{{keyStart, w.Start,
			"give the time when it first begins"}, {keyDuration, w.Duration, "give its length, for example 4h"}} {
			if missing[required.key] = required.value == ""; missing[required.key] {
				found.Refuse(0, strictyaml.Join(entry, required.key), "is required: %s", required.remedy)
			}
		}
		_, bad := w.compile()
		for _, one := range bad {
			if sound = false; !missing[one.key] {
				found.Check(0, strictyaml.Join(entry, one.key), one.err)
			}
		}
		sound = sound && !found.Unreadable(entry)
	}
	return sound
}

// checkOpens rejects windows that never open.
func (t Times) checkOpens(field string, found *strictyaml.Findings) {
	first := time.Date(lastYear+1, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, w := range t.Windows {
		if c, bad := w.compile(); len(bad) == 0 {
			if begin := instantOf(c.wall, c.zone); begin.Before(first) {
				first = begin
			}
		}
	}
	if notBefore, err := parseInstant(t.NotBefore); err == nil && notBefore.After(first) {
		first = notBefore
	}
	if answer, err := NextOpening(Question{Times: []Times{t}, At: first}); err == nil && answer.Never() {
		found.Refuse(0, field, "never open: each of them lies within a freeze or ends before notBefore")
	}
}

// TimesNodes returns the keys and values of the times in a document, so that Read can read them again.
func (t Times) TimesNodes() []*yaml.Node {
	var all yaml.Node
	_ = all.Encode(t) // cannot fail: these are texts
	return all.Content
}

// Times are when work may start. The zero value allows every time.
//
// +kubebuilder:object:generate=true
type Times struct {
	// NotBefore is the earliest time, RFC 3339 with an offset; absent: at once.
	NotBefore string `json:"notBefore,omitempty" yaml:"notBefore,omitempty"`
	// Windows are when work may start; without any, it may start at all times.
	// +kubebuilder:validation:MaxItems=50
	Windows []Window `json:"windows,omitempty" yaml:"windows,omitempty"`
	// Freezes are when work may not start, regardless of the windows.
	// +kubebuilder:validation:MaxItems=50
	Freezes []Window `json:"freezes,omitempty" yaml:"freezes,omitempty"`
}

// AnyTime reports whether the times allow every time.
func (t Times) AnyTime() bool { return t.NotBefore == "" && len(t.Windows) == 0 && len(t.Freezes) == 0 }

// Window is a span of time that may recur.
//
// +kubebuilder:object:generate=true
type Window struct {
	// Start is when it begins for the first time: RFC 3339, with an offset or as the clock shows it in TimeZone.
	Start string `json:"start" yaml:"start,omitempty"`
	// Duration is how long it lasts: 90m, 4h, 1d12h, or in ISO 8601, PT4H. A day is 24 hours.
	Duration string `json:"duration" yaml:"duration,omitempty" form:"duration"`
	// RRule is how it recurs, by RFC 5545: FREQ=WEEKLY;BYDAY=TU,TH. Absent: once.
	RRule string `json:"rrule,omitempty" yaml:"rrule,omitempty"`
	// TimeZone is the IANA name of the zone whose clock counts: Europe/Berlin. Absent: the offset of Start counts at
	// all times.
	TimeZone string `json:"timeZone,omitempty" yaml:"timeZone,omitempty"`
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
