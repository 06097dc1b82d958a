// Package window decides when a release may start work: not before a time, within release windows, and outside freezes.
// All calendar arithmetic is here. It depends on time zone data, so workflows must not call it: they ask the centre by
// an activity.
package window

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/teambition/rrule-go"

	"slipway.io/slipway/release/phrase"
)

// Horizon is how far ahead an opening is searched, starting at notBefore if there is one: what does not open within it
// counts as never.
const Horizon = 10 * 366 * 24 * time.Hour

// maxSteps bounds one search. If the search has not finished by then, the answer contains a time until which it is
// closed for certain, and the caller asks again then.
const maxSteps = 20_000

// calendar is one Times in a form that can be evaluated.
type calendar struct {
	notBefore        time.Time
	windows, freezes []*cursor
}

// NextOpening returns whether work may start at the question's time, and if not, when and why. It fails only if the
// times are invalid.
func NextOpening(q Question) (Answer, error) {
	at := q.At.UTC()
	all, err := calendars(q.Times, at)
	if err != nil {
		return Answer{}, err
	}
	first, why := closedUntil(all, at)
	if first.Equal(at) {
		return Answer{Open: true, Until: openUntil(all, at)}, nil
	}
	until, limit := first, at
	for _, c := range all {
		if c.notBefore.After(limit) {
			limit = c.notBefore
		}
	}
	limit = limit.Add(Horizon)
	for range maxSteps {
		if until.IsZero() || until.After(limit) {
			return Answer{Reason: why + ", and it does not open again"}, nil
		}
		later, _ := closedUntil(all, until)
		if later.Equal(until) {
			break
		}
		until = later
	}
	if !until.Equal(first) {
		why += "; the first time to begin after that is " + phrase.Time(until)
	}
	return Answer{Until: &until, Reason: why}, nil
}

func calendars(times []Times, at time.Time) ([]calendar, error) {
	all := make([]calendar, len(times))
	for i, t := range times {
		if t.NotBefore != "" {
			var err error
			if all[i].notBefore, err = parseInstant(t.NotBefore); err != nil {
				return nil, fmt.Errorf("%s: %w", keyNotBefore, err)
			}
		}
		for _, list := range []struct {
			of   []Window
			into *[]*cursor
		}{{t.Windows, &all[i].windows}, {t.Freezes, &all[i].freezes}} {
			for _, w := range list.of {
				k, err := w.cursor(at)
				if err != nil {
					return nil, err
				}
				*list.into = append(*list.into, k)
			}
		}
	}
	return all, nil
}

func (w Window) cursor(at time.Time) (*cursor, error) {
	c, all := w.compile()
	if len(all) > 0 {
		return nil, fmt.Errorf("%s: %w", all[0].key, all[0].err)
	}
	return newCursor(c, at)
}

// closedUntil returns a time before which work may certainly not start, and why: t itself if it may start at t, the
// zero time for never.
func closedUntil(all []calendar, t time.Time) (until time.Time, why string) {
	for _, c := range all {
		if t.Before(c.notBefore) {
			return c.notBefore, "the time to begin (notBefore) is " + phrase.Time(c.notBefore)
		}
	}
	for _, c := range all {
		for _, freeze := range c.freezes {
			if inside, end, _ := freeze.at(t); inside {
				return end, fmt.Sprintf("a freeze (%s) lasts until %s", freeze.window.text, phrase.Time(end))
			}
		}
	}
	for _, c := range all {
		if next := c.nextWindow(t); next == nil {
			return time.Time{}, "the last release window has ended"
		} else if next.After(t) {
			return *next, "no release window is open: the next one begins at " + phrase.Time(*next)
		}
	}
	return t, ""
}

// nextWindow returns when a window is open from a time on: the time itself if one is open or there are no windows; nil:
// never again.
func (c calendar) nextWindow(t time.Time) *time.Time {
	if len(c.windows) == 0 {
		return &t
	}
	var first *time.Time
	for _, w := range c.windows {
		inside, _, next := w.at(t)
		if inside {
			return &t
		}
		if next != nil && (first == nil || next.Before(*first)) {
			first = next
		}
	}
	return first
}

// openUntil returns how long it stays open at least, from a time at which it is open; nil: at least up to Horizon.
func openUntil(all []calendar, t time.Time) *time.Time {
	var until *time.Time
	for _, c := range all {
		for _, freeze := range c.freezes {
			if _, _, next := freeze.at(t); next != nil && (until == nil || next.Before(*until)) {
				until = next
			}
		}
		var end time.Time
		for _, w := range c.windows {
			if inside, e, _ := w.at(t); inside && e.After(end) {
				end = e
			}
		}
		if !end.IsZero() && (until == nil || end.Before(*until)) {
			until = &end
		}
	}
	return until
}

// NeverOpens reports whether the times never open from a time on, and why, as text that follows their name.
func NeverOpens(at time.Time, times ...Times) (why string, never bool) {
	answer, err := NextOpening(Question{Times: Restricting(times...), At: at})
	switch {
	case err != nil:
		return "cannot be evaluated: " + err.Error(), true
	case answer.Never():
		return "never open again: " + answer.Reason + "; change them, or leave them out", true
	}
	return "", false
}

// DelayReason returns until when the times allow no start from a time on, and why; "" if they are open now or never
// open.
func DelayReason(at time.Time, times ...Times) string {
	answer, err := NextOpening(Question{Times: Restricting(times...), At: at})
	if err != nil || answer.Open || answer.Never() {
		return ""
	}
	return "nothing begins before " + phrase.Time(*answer.Until) + ": " + answer.Reason
}

// Lapsed returns a warning if notBefore is in the past at a time; otherwise "".
func (t Times) Lapsed(at time.Time) string {
	if first, err := parseInstant(t.NotBefore); err != nil || !first.Before(at) {
		return ""
	}
	return keyNotBefore + " " + t.NotBefore + " is in the past and has no effect"
}

// compiled is a window in a form that can be evaluated.
type compiled struct {
	text  string
	wall  time.Time
	zone  *time.Location
	lasts time.Duration
	// rule is the recurrence; nil: once.
	rule *rrule.ROption
}

// wrong is a problem with one key of a window.
type wrong struct {
	key string
	err error
}

// compile parses a window and reports every key that is wrong.
func (w Window) compile() (c compiled, all []wrong) {
	zone, err := parseZone(w.TimeZone)
	if err != nil {
		all = append(all, wrong{keyTimeZone, err})
		zone = time.UTC // to find further problems
	}
	if c.wall, c.zone, err = parseStart(w.Start, zone); err != nil {
		all = append(all, wrong{keyStart, err})
	}
	if c.lasts, err = parseDuration(w.Duration); err != nil {
		all = append(all, wrong{keyDuration, err})
	}
	if w.RRule != "" {
		option, err := parseRule(w.RRule, cmp.Or(c.zone, time.UTC))
		if err == nil && len(all) == 0 {
			err = checkRecurs(c.wall, option)
		}
		if err != nil {
			all = append(all, wrong{keyRRule, err})
		}
		c.rule = &option
	}
	c.text = w.String()
	return c, all
}

// checkRecurs returns an error for a rule that matches no day.
func checkRecurs(start time.Time, option rrule.ROption) error {
	next, err := walls(start, option, start)
	if err != nil {
		return err
	}
	if _, ok := next(); !ok {
		return fmt.Errorf("never occurs: no day from start on matches it")
	}
	return nil
}

// String returns the window for messages: "from 2026-12-24T18:00:00 (Europe/Berlin) for 4h, FREQ=YEARLY".
func (w Window) String() string {
	text := "from " + w.Start
	if w.TimeZone != "" {
		text += " (" + w.TimeZone + ")"
	}
	text += " for " + w.Duration
	if w.RRule != "" {
		text += ", " + w.RRule
	}
	return text
}

// span is one occurrence of a window: it includes begin and excludes end.
type span struct{ begin, end time.Time }

// cursor iterates over the spans of a window, forward in time.
type cursor struct {
	window compiled
	next   func() (time.Time, bool)
	// spans are those that have not ended, in order; the last one is in the future unless it is the window's last.
	spans []span
	done  bool
}

// slack exceeds every zone's offset and every clock change.
const slack = 48 * time.Hour

// newCursor returns a cursor that starts at a time.
func newCursor(c compiled, at time.Time) (*cursor, error) {
	k := &cursor{window: c}
	if c.rule == nil {
		once := true
		k.next = func() (time.Time, bool) {
			first := once
			once = false
			return c.wall, first
		}
		return k, nil
	}
	var err error
	k.next, err = walls(c.wall, *c.rule, wallOf(at, c.zone).Add(-c.lasts-slack))
	return k, err
}

// moveTo drops the spans that have ended at a time, and loads those up to the first one after it. Times must not
// decrease.
func (k *cursor) moveTo(t time.Time) {
	for !k.done && (len(k.spans) == 0 || !k.spans[len(k.spans)-1].begin.After(t)) {
		wall, ok := k.next()
		if k.done = !ok; !k.done {
			begin := instantOf(wall, k.window.zone)
			k.spans = append(k.spans, span{begin, begin.Add(k.window.lasts)})
		}
		k.spans = slices.DeleteFunc(k.spans, func(s span) bool { return !s.end.After(t) })
	}
	k.spans = slices.DeleteFunc(k.spans, func(s span) bool { return !s.end.After(t) })
}

// at reports whether the window is open at a time, until when, and when it opens next after that time; nil: never.
func (k *cursor) at(t time.Time) (inside bool, end time.Time, next *time.Time) {
	k.moveTo(t)
	for _, s := range k.spans {
		switch {
		case s.begin.After(t):
			return inside, end, &s.begin
		case !inside || s.end.After(end):
			inside, end = true, s.end
		}
	}
	return inside, end, nil
}
