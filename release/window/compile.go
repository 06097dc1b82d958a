package window

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/teambition/rrule-go"
)

// compiled is a window that can be reckoned with.
type compiled struct {
	text  string
	wall  time.Time
	zone  *time.Location
	lasts time.Duration
	// rule is how it recurs; nil: once.
	rule *rrule.ROption
}

// wrong is what is wrong with one key of a window.
type wrong struct {
	key string
	err error
}

// compile reads a window. Each key that is wrong is told.
func (w Window) compile() (c compiled, all []wrong) {
	zone, err := parseZone(w.TimeZone)
	if err != nil {
		all = append(all, wrong{keyTimeZone, err})
		zone = time.UTC // what else is wrong is told too
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
			err = comes(c.wall, option)
		}
		if err != nil {
			all = append(all, wrong{keyRRule, err})
		}
		c.rule = &option
	}
	c.text = w.String()
	return c, all
}

// comes says what is wrong with a rule that no day fits.
func comes(start time.Time, option rrule.ROption) error {
	next, err := walls(start, option, start)
	if err != nil {
		return err
	}
	if _, ok := next(); !ok {
		return fmt.Errorf("never comes: no day from start on fits it")
	}
	return nil
}

// String is how sentences call the window: "from 2026-12-24T18:00:00 (Europe/Berlin) for 4h, FREQ=YEARLY".
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

// span is one time that a window lasts: begin belongs to it, end does not.
type span struct{ begin, end time.Time }

// cursor goes through the spans of a window, forward in time.
type cursor struct {
	window compiled
	next   func() (time.Time, bool)
	// spans are those that have not ended, in order; the last one lies ahead unless it is the window's last.
	spans []span
	done  bool
}

// slack is more than any zone's offset and any change of a clock.
const slack = 48 * time.Hour

// newCursor begins at a time.
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

// moveTo drops what has ended at a time, and looks for what comes after it. Times only go forward.
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

// at says whether the window lasts at a time, then until when, and when it begins next after that time; nil: never.
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
