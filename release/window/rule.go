package window

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/teambition/rrule-go"

	"slipway.io/slipway/release/strictyaml"
)

func quote(text string) string { return strictyaml.Quote(text) }

// The parts that a rule may have, and those allowed only for some frequencies (RFC 5545, 3.3.10). The time of day
// always comes from the start.
var (
	ruleParts = []string{"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYMONTHDAY",
		"BYDAY", "BYSETPOS"}
	partsOf = map[string][]string{"BYWEEKNO": {"YEARLY"}, "BYYEARDAY": {"YEARLY"},
		"BYMONTHDAY": {"YEARLY", "MONTHLY", "DAILY"}}
	daysParts = []string{"BYMONTH", "BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY"}
	frequency = []string{"DAILY", "WEEKLY", "MONTHLY", "YEARLY"}
	weekdays  = []string{"MO", "TU", "WE", "TH", "FR", "SA", "SU"}
)

// The maximum length of a rule in bytes, and the maximum numbers in it: they bound the evaluation.
const (
	maxRuleLength = 500
	maxCount      = 10_000
	maxInterval   = 1000
)

// parseRule parses a recurrence rule into the options of the library, in wall times.
func parseRule(text string, zone *time.Location) (rrule.ROption, error) {
	text = strings.TrimPrefix(text, "RRULE:")
	if len(text) > maxRuleLength {
		return rrule.ROption{}, fmt.Errorf("is too long: a rule has at most %d characters", maxRuleLength)
	}
	parts, err := partsOfRule(text)
	if err != nil {
		return rrule.ROption{}, err
	}
	if err := checkParts(parts); err != nil {
		return rrule.ROption{}, err
	}
	until, has := parts["UNTIL"]
	option, err := rrule.StrToROption(withoutUntil(text))
	if err != nil {
		return rrule.ROption{}, fmt.Errorf("%s is not a recurrence rule: %w", quote(text), err)
	}
	if has {
		if option.Until, err = parseUntil(until, zone); err != nil {
			return rrule.ROption{}, err
		}
	}
	return *option, nil
}

// partsOfRule returns the parts of a rule by name.
func partsOfRule(text string) (map[string]string, error) {
	parts := map[string]string{}
	for part := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(part, "=")
		_, twice := parts[name]
		switch {
		case !ok || value == "":
			return nil, fmt.Errorf("%s is not a recurrence rule: write, for example, FREQ=WEEKLY;BYDAY=TU,TH",
				quote(text))
		case slices.Contains([]string{"BYHOUR", "BYMINUTE", "BYSECOND"}, name):
			return nil, fmt.Errorf(
				"has %s: the time of day is that of start; write one window for each time of the day", name)
		case !slices.Contains(ruleParts, name):
			return nil, fmt.Errorf("has %s: its parts are %s%s", quote(name), strings.Join(ruleParts, ", "),
				strictyaml.DidYouMean(name, ruleParts))
		case twice:
			return nil, fmt.Errorf("has %s twice: keep one", name)
		}
		parts[name] = value
	}
	return parts, nil
}

// checkParts checks that the parts are allowed together.
func checkParts(parts map[string]string) error {
	freq := parts["FREQ"]
	_, counts := parts["COUNT"]
	_, ends := parts["UNTIL"]
	_, picks := parts["BYSETPOS"]
	switch {
	case !slices.Contains(frequency, freq):
		return fmt.Errorf("has FREQ=%s: it is one of %s", freq, strings.Join(frequency, ", "))
	case counts && ends:
		return errors.New("has COUNT and UNTIL: keep one")
	case picks && !slices.ContainsFunc(daysParts, func(name string) bool { return parts[name] != "" }):
		return errors.New("has BYSETPOS, which selects from days: add BYDAY, for example")
	case freq != "MONTHLY" && freq != "YEARLY" && strings.ContainsAny(parts["BYDAY"], "0123456789"):
		return fmt.Errorf("has numbers in BYDAY: they belong to MONTHLY and YEARLY, not to %s", freq)
	}
	for _, name := range daysParts {
		if of := partsOf[name]; of != nil && parts[name] != "" && !slices.Contains(of, freq) {
			return fmt.Errorf("has %s: it belongs to FREQ=%s, not to %s", name, strings.Join(of, " or "), freq)
		}
	}
	if err := checkWeekdays(parts); err != nil {
		return err
	}
	for name, most := range map[string]int{"COUNT": maxCount, "INTERVAL": maxInterval} {
		if text, has := parts[name]; has {
			if n, err := strconv.Atoi(text); err != nil || n < 1 || n > most {
				return fmt.Errorf("has %s=%s: it is a number from 1 to %d", name, text, most)
			}
		}
	}
	return nil
}

// checkWeekdays checks the names of days, which may have numbers in BYDAY (-1FR); the library checks the numbers.
func checkWeekdays(parts map[string]string) error {
	for _, name := range []string{"BYDAY", "WKST"} {
		if parts[name] == "" {
			continue
		}
		for day := range strings.SplitSeq(parts[name], ",") {
			if name == "BYDAY" {
				day = strings.TrimLeft(day, "+-0123456789")
			}
			if !slices.Contains(weekdays, day) {
				return fmt.Errorf("has %s=%s: want days of %s", name, parts[name], strictyaml.List(weekdays))
			}
		}
	}
	return nil
}

// withoutUntil removes UNTIL, which the library would parse in a zone of its own.
func withoutUntil(text string) string {
	parts := slices.DeleteFunc(strings.Split(text, ";"), func(part string) bool {
		return strings.HasPrefix(part, "UNTIL=")
	})
	return strings.Join(parts, ";")
}

// parseUntil parses the last time at which a window may begin, as a wall time.
func parseUntil(text string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse("20060102T150405Z", text); err == nil {
		return wallOf(at, zone), yearInRange(at)
	}
	wall, err := time.Parse("20060102T150405", text)
	if err != nil {
		return time.Time{}, fmt.Errorf("has UNTIL=%s: write 20261231T235959 on the window's own clock, or "+
			"20261231T225959Z", text)
	}
	return wall, yearInRange(wall)
}

// The Gregorian calendar repeats every 400 years, weekdays included. The library searches for a matching day up to the
// year 9999. Rules are evaluated shifted as far into the future as possible, so that the search for one that never
// matches ends soon.
const (
	cycleYears = 400
	ahead      = 19 * cycleYears
)

func shift(wall time.Time, years int) time.Time { return wall.AddDate(years, 0, 0) }

// walls returns an iterator over the wall times at which a rule begins a window, in order. It skips those long before
// from if the rule allows that.
func walls(start time.Time, option rrule.ROption, from time.Time) (func() (time.Time, bool), error) {
	option.Dtstart = shift(forward(start, option, from), ahead)
	if !option.Until.IsZero() {
		if option.Until = shift(option.Until, ahead); option.Until.Before(option.Dtstart) {
			return func() (time.Time, bool) { return time.Time{}, false }, nil
		}
	}
	rule, err := rrule.NewRRule(option)
	if err != nil {
		return nil, fmt.Errorf("is not a recurrence rule: %w", err)
	}
	next := rule.Iterator()
	return func() (time.Time, bool) {
		wall, ok := next()
		return shift(wall, -ahead), ok
	}, nil
}

// forward returns a start shortly before from with the same occurrences after it. A rule with COUNT is counted from its
// start.
func forward(start time.Time, option rrule.ROption, from time.Time) time.Time {
	days := max(option.Interval, 1)
	switch {
	case option.Count > 0 || !start.Before(from):
		return start
	case option.Freq == rrule.WEEKLY:
		days *= 7
	case option.Freq != rrule.DAILY:
		return start
	}
	passed := int(from.Sub(start).Hours()/24) - 1
	if passed < days {
		return start
	}
	return start.AddDate(0, 0, passed/days*days)
}
