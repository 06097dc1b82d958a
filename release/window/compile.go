package window

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/teambition/rrule-go"
)

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
