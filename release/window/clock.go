package window

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for container images without time zone files
)

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

// durationForms match 1w2d3h4m5s, P1DT4H and P2W, with any part left out.
var durationForms = []*regexp.Regexp{
	regexp.MustCompile(`^(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?$`),
	regexp.MustCompile(`^P(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?$`),
}

var durationUnits = []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}

// maxDuration is the maximum duration of a window.
const maxDuration = 366 * 24 * time.Hour

// parseDuration parses the duration of a window.
func parseDuration(text string) (time.Duration, error) {
	for _, form := range durationForms {
		parts := form.FindStringSubmatch(text)
		if parts == nil || strings.HasSuffix(text, "T") || text == "" || text == "P" {
			continue
		}
		var sum time.Duration
		for i, part := range parts[1:] {
			n, _ := strconv.ParseInt("0"+part, 10, 64)
			if n > int64(maxDuration/durationUnits[i]) {
				return 0, tooLong(text)
			}
			sum += time.Duration(n) * durationUnits[i]
		}
		switch {
		case sum <= 0:
			return 0, fmt.Errorf("is %s, which is no time at all: write 4h, for example", quote(text))
		case sum > maxDuration:
			return 0, tooLong(text)
		}
		return sum, nil
	}
	return 0, fmt.Errorf("%s is not a duration: write 90m, 4h or 1d12h, or PT4H", quote(text))
}

func tooLong(text string) error {
	return fmt.Errorf("is %s: a window lasts at most %d days", quote(text), maxDuration/(24*time.Hour))
}
