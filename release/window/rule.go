package window

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for container images without time zone files

	"github.com/teambition/rrule-go"

	"slipway.io/slipway/release/duration"
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
	until, has := parts["UNTIL"] // the library would parse it in a zone of its own
	option, err := rrule.StrToROption(strings.Join(slices.DeleteFunc(strings.Split(text, ";"), func(part string) bool {
		return strings.HasPrefix(part, "UNTIL=")
	}), ";"))
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

// A wall time is what a clock shows, stored as a time in UTC. Recurrences are computed with wall times, because they
// have no gaps and no repetitions.

// wallOf returns what the zone's clock shows at an instant.
func wallOf(at time.Time, zone *time.Location) time.Time {
	local := at.In(zone)
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0,
		time.UTC)
}

// instantOf returns when the zone's clock shows a wall time, by RFC 5545, 3.3.5: the first occurrence if it occurs
// twice. A wall time that a clock change skips is read with the offset before the change: 02:30 is 03:30 on the day
// when 02:00 becomes 03:00.
func instantOf(wall time.Time, zone *time.Location) time.Time {
	const day = 24 * time.Hour
	before, after := offsetAt(wall.Add(-day), zone), offsetAt(wall.Add(day), zone)
	early, late := wall.Add(-max(before, after)), wall.Add(-min(before, after))
	switch {
	case wallOf(early, zone).Equal(wall):
		return early
	case wallOf(late, zone).Equal(wall):
		return late
	}
	return wall.Add(-before)
}

// offsetAt returns how far the zone is ahead of UTC at an instant.
func offsetAt(at time.Time, zone *time.Location) time.Duration {
	_, seconds := at.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// The layouts of a start: RFC 3339 without an offset, with or without seconds.
var localLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04"}

// The years that times must be in.
const firstYear, lastYear = 2000, 2199

func yearInRange(t time.Time) error {
	if y := t.Year(); y < firstYear || y > lastYear {
		return fmt.Errorf("is in the year %d: use a year from %d to %d", y, firstYear, lastYear)
	}
	return nil
}

// parseInstant parses a time with an offset.
func parseInstant(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a time with an offset: write 2026-12-01T08:00:00Z, or +01:00 in "+
			"place of Z", quote(text))
	}
	return at, yearInRange(at)
}

// parseStart parses a start: a wall time of its zone.
func parseStart(text string, zone *time.Location) (wall time.Time, at *time.Location, err error) {
	if instant, err := time.Parse(time.RFC3339, text); err == nil {
		if zone == nil {
			_, seconds := instant.Zone()
			zone = time.FixedZone("", seconds)
		}
		return wallOf(instant, zone), zone, yearInRange(instant)
	}
	for _, layout := range localLayouts {
		wall, err := time.Parse(layout, text)
		switch {
		case err != nil:
			continue
		case zone == nil:
			return wall, nil, fmt.Errorf("%s has no offset: add timeZone, or an offset such as Z", quote(text))
		}
		return wall.Truncate(time.Second), zone, yearInRange(wall)
	}
	return time.Time{}, nil, fmt.Errorf("%s is not a time: write 2026-12-01T08:00:00 with a timeZone, or "+
		"2026-12-01T08:00:00+01:00", quote(text))
}

// parseZone loads the zone of a name; nil if the name is empty.
func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("%s is not the name of a time zone: use a name of the IANA database, such as "+
			"Europe/Berlin or UTC", quote(name))
	}
	return zone, nil
}

// maxDuration is the maximum duration of a window.
const maxDuration = 366 * 24 * time.Hour

// parseDuration parses the duration of a window.
func parseDuration(text string) (time.Duration, error) {
	lasts, err := duration.Parse(text)
	switch {
	case err != nil || lasts < 0:
		return 0, fmt.Errorf("%s is not a duration: write 90m, 4h or 1d12h, or PT4H", quote(text))
	case lasts == 0:
		return 0, fmt.Errorf("is %s, which is no time at all: write 4h, for example", quote(text))
	case lasts > maxDuration:
		return 0, fmt.Errorf("is %s: a window lasts at most %d days", quote(text), maxDuration/(24*time.Hour))
	case lasts%time.Second != 0:
		return 0, fmt.Errorf("is %s: a window lasts whole seconds", quote(text))
	}
	return lasts, nil
}
