package window

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // an image without files of time zones has them in the binary
)

// A wall is what a clock shows, as a time in UTC: calendars are reckoned with walls, which have no gaps and no repeats.

// wallOf is what the zone's clock shows at an instant.
func wallOf(at time.Time, zone *time.Location) time.Time {
	local := at.In(zone)
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, time.UTC)
}

// instantOf is when the zone's clock shows a wall, by RFC 5545, 3.3.5: the first time where it shows it twice. A wall that a change of the clock
// leaves out is read with the offset before the change: 02:30 is 03:30 on the day when 02:00 becomes 03:00.
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

// offsetAt is how far the zone is ahead of UTC at an instant.
func offsetAt(at time.Time, zone *time.Location) time.Duration {
	_, seconds := at.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// clock is an instant for people.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// The layouts of a start: RFC 3339 without an offset, seconds left out or not.
var localLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04"}

// The years in which a time may lie.
const firstYear, lastYear = 2000, 2199

func yearInRange(t time.Time) error {
	if y := t.Year(); y < firstYear || y > lastYear {
		return fmt.Errorf("lies in the year %d: years from %d to %d are reckoned with", y, firstYear, lastYear)
	}
	return nil
}

// parseInstant reads a time with an offset.
func parseInstant(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is not a time with an offset: write 2026-12-01T08:00:00Z, or +01:00 in place of Z", quote(text))
	}
	return at, yearInRange(at)
}

// parseStart reads a start: what the clock of its zone shows.
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
	return time.Time{}, nil, fmt.Errorf("%s is not a time: write 2026-12-01T08:00:00 with a timeZone, or 2026-12-01T08:00:00+01:00", quote(text))
}

// parseZone reads the name of a zone; nil when there is none.
func parseZone(name string) (*time.Location, error) {
	if name == "" {
		return nil, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fmt.Errorf("%s is not the name of a time zone: write one of the IANA database, such as Europe/Berlin or UTC", quote(name))
	}
	return zone, nil
}

// durationForms are 1w2d3h4m5s and P1DT4H, and P2W, with any part left out.
var durationForms = []*regexp.Regexp{
	regexp.MustCompile(`^(?:(\d{1,9})w)?(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?$`),
	regexp.MustCompile(`^P(?:(\d{1,9})W)?(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?)?$`),
}

var durationUnits = []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}

// longest is how long a window lasts at most.
const longest = 366 * 24 * time.Hour

// parseDuration reads how long a window lasts.
func parseDuration(text string) (time.Duration, error) {
	for _, form := range durationForms {
		parts := form.FindStringSubmatch(text)
		if parts == nil || strings.HasSuffix(text, "T") || text == "" || text == "P" {
			continue
		}
		var sum time.Duration
		for i, part := range parts[1:] {
			n, _ := strconv.ParseInt("0"+part, 10, 64)
			if n > int64(longest/durationUnits[i]) {
				return 0, tooLong(text)
			}
			sum += time.Duration(n) * durationUnits[i]
		}
		switch {
		case sum <= 0:
			return 0, fmt.Errorf("is %s, which lasts no time: write 4h, say", quote(text))
		case sum > longest:
			return 0, tooLong(text)
		}
		return sum, nil
	}
	return 0, fmt.Errorf("%s is not a duration: write 90m, 4h or 1d12h, or PT4H", quote(text))
}

func tooLong(text string) error {
	return fmt.Errorf("is %s: a window lasts at most %d days", quote(text), longest/(24*time.Hour))
}
