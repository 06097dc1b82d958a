package window

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/test/race"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func once(start, duration string) Window { return Window{Start: start, Duration: duration} }

func TestNextOpening(t *testing.T) {
	t.Parallel()
	newYork := func(start, duration, rule string) Window {
		return Window{Start: start, Duration: duration, RRule: rule, TimeZone: "America/New_York"}
	}
	for _, c := range []struct {
		why   string
		times []Times
		at    string
		// opens is when it opens: "" for now, or "never". until is how long it stays open.
		opens, until string
	}{
		{"without restrictions it is open", nil, "2026-03-01T00:00:00Z", "", ""},
		{"a time that has passed", []Times{{NotBefore: "2026-03-01T00:00:00Z"}}, "2026-03-01T00:00:00Z", "", ""},
		{"a time with an offset", []Times{{NotBefore: "2026-03-01T00:00:00+08:00"}}, "2026-02-28T15:59:59Z",
			"2026-02-28T16:00:00Z", ""},
		{"02:30 does not exist: it is 03:30, as RFC 5545 reads it with the offset before the gap",
			[]Times{{Windows: []Window{newYork("2026-03-01T02:30:00", "1h", "FREQ=DAILY")}}},
			"2026-03-08T00:00:00-05:00", "2026-03-08T07:30:00Z", ""},
		{"the day after has 02:30 again", []Times{{Windows: []Window{newYork("2026-03-01T02:30:00", "1h",
			"FREQ=DAILY")}}},
			"2026-03-08T08:30:00Z", "2026-03-09T06:30:00Z", ""},
		{"01:30 exists twice: it is the first", []Times{{Windows: []Window{newYork("2026-10-01T01:30:00", "30m",
			"FREQ=DAILY")}}},
			"2026-11-01T00:00:00-04:00", "2026-11-01T05:30:00Z", ""},
		{"the second 01:30 is no window", []Times{{Windows: []Window{newYork("2026-10-01T01:30:00", "30m",
			"FREQ=DAILY")}}},
			"2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z", ""},
		{"a change of half an hour", []Times{{Windows: []Window{{Start: "2026-10-01T02:15:00", Duration: "1h",
			RRule:    "FREQ=DAILY",
			TimeZone: "Australia/Lord_Howe"}}}}, "2026-10-03T15:00:00Z", "2026-10-03T15:45:00Z", ""},
		{"a zone that left out a whole day", []Times{{Windows: []Window{{Start: "2011-12-30T10:00:00", Duration: "1h",
			TimeZone: "Pacific/Apia"}}}},
			"2011-12-29T00:00:00Z", "2011-12-30T20:00:00Z", ""},
		{"a clock change does not change its length: eight hours from 22:00 last until 07:00",
			[]Times{{Windows: []Window{newYork("2026-03-07T22:00:00", "8h", "")}}}, "2026-03-08T10:59:00Z", "",
			"2026-03-08T11:00:00Z"},
		{"leap days alone", []Times{{Windows: []Window{{Start: "2024-02-29T10:00:00Z", Duration: "1h",
			RRule: "FREQ=YEARLY"}}}},
			"2026-01-01T00:00:00Z", "2028-02-29T10:00:00Z", ""},
		{"2100 is no leap year", []Times{{Windows: []Window{{Start: "2024-02-29T10:00:00Z", Duration: "1h",
			RRule: "FREQ=YEARLY"}}}},
			"2096-03-01T00:00:00Z", "2104-02-29T10:00:00Z", ""},
		{"the 31st is not in every month", []Times{{Windows: []Window{{Start: "2026-01-31T10:00:00Z", Duration: "1h",
			RRule: "FREQ=MONTHLY"}}}},
			"2026-02-01T00:00:00Z", "2026-03-31T10:00:00Z", ""},
		{"the last Friday", []Times{{Windows: []Window{{Start: "2026-01-01T10:00:00Z", Duration: "1h",
			RRule: "FREQ=MONTHLY;BYDAY=-1FR"}}}},
			"2026-02-28T00:00:00Z", "2026-03-27T10:00:00Z", ""},
		{"every second week keeps its week", []Times{{Windows: []Window{{Start: "2020-01-07T10:00:00Z", Duration: "1h",
			RRule: "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,TH"}}}}, "2026-11-20T00:00:00Z", "2026-12-01T10:00:00Z", ""},
		{"a window has ended", []Times{{Windows: []Window{once("2026-01-01T00:00:00Z", "1h")}}}, "2026-01-01T01:00:00Z",
			"never", ""},
		{"the last of three has ended", []Times{{Windows: []Window{{Start: "2026-01-01T00:00:00Z", Duration: "1h",
			RRule: "FREQ=DAILY;COUNT=3"}}}},
			"2026-01-03T01:00:00Z", "never", ""},
		{"the last of three", []Times{{Windows: []Window{{Start: "2026-01-01T00:00:00Z", Duration: "1h",
			RRule: "FREQ=DAILY;COUNT=3"}}}},
			"2026-01-02T01:00:00Z", "2026-01-03T00:00:00Z", ""},
		{"UNTIL is on the window's own clock", []Times{{Windows: []Window{newYork("2026-01-01T23:00:00", "1h",
			"FREQ=DAILY;UNTIL=20260102T230000")}}},
			"2026-01-03T03:00:00Z", "2026-01-03T04:00:00Z", ""},
		{"UNTIL in UTC", []Times{{Windows: []Window{newYork("2026-01-01T23:00:00", "1h",
			"FREQ=DAILY;UNTIL=20260103T035959Z")}}},
			"2026-01-03T03:00:00Z", "never", ""},
		{"in a window, until it ends", []Times{{Windows: []Window{once("2026-01-01T00:00:00Z", "1h")}}},
			"2026-01-01T00:30:00Z", "", "2026-01-01T01:00:00Z"},
		{"in a window, until a freeze begins", []Times{{Windows: []Window{once("2026-01-01T00:00:00Z", "1h")},
			Freezes: []Window{once("2026-01-01T00:40:00Z", "1h")}}}, "2026-01-01T00:30:00Z", "",
			"2026-01-01T00:40:00Z"},
		{"a freeze within a window", []Times{{Windows: []Window{once("2026-01-01T00:00:00Z", "4h")},
			Freezes: []Window{once("2026-01-01T01:00:00Z", "1h")}}}, "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z",
			""},
		{"a freeze that ends with its window", []Times{{Windows: []Window{{Start: "2026-01-01T00:00:00Z",
			Duration: "1h", RRule: "FREQ=WEEKLY"}},
			Freezes: []Window{once("2026-01-01T00:30:00Z", "30m")}}}, "2026-01-01T00:30:00Z", "2026-01-08T00:00:00Z",
			""},
		{"back to back: the end of the first is the begin of the second",
			[]Times{{Windows: []Window{once("2026-01-01T00:00:00Z", "1h"),
				once("2026-01-01T01:00:00Z", "1h")}}}, "2026-01-01T01:00:00Z", "", "2026-01-01T02:00:00Z"},
		{"freezes back to back", []Times{{Freezes: []Window{once("2026-01-01T00:00:00Z", "1h"),
			once("2026-01-01T01:00:00Z", "1h")}}},
			"2026-01-01T00:10:00Z", "2026-01-01T02:00:00Z", ""},
		{"a daily freeze that lasts the whole day",
			[]Times{{Freezes: []Window{{Start: "2026-01-01T00:00:00Z", Duration: "1d", RRule: "FREQ=DAILY"}}}},
			"2026-05-01T00:10:00Z", "never", ""},
		{"a day of 25 hours leaves an hour between two freezes of a day",
			[]Times{{Freezes: []Window{newYork("2026-01-01T00:00:00", "1d", "FREQ=DAILY")}}},
			"2026-10-30T00:00:00Z", "2026-11-02T04:00:00Z", ""},
		{"the plan's windows and the execution's both count",
			[]Times{{Windows: []Window{once("2026-01-01T00:00:00Z", "4h")}},
				{Windows: []Window{once("2026-01-01T03:00:00Z", "4h")}}}, "2026-01-01T00:10:00Z",
			"2026-01-01T03:00:00Z",
			""},
		{"they have no moment in common", []Times{{Windows: []Window{once("2026-01-01T00:00:00Z", "1h")}},
			{Windows: []Window{once("2026-01-01T03:00:00Z", "4h")}}}, "2026-01-01T00:10:00Z", "never", ""},
		{"a time in the far future still opens", []Times{{NotBefore: "2060-01-01T00:00:00Z"}}, "2026-01-01T00:00:00Z",
			"2060-01-01T00:00:00Z", ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			answer, err := NextOpening(Question{Times: c.times, At: at(c.at)})
			require.NoError(t, err)
			switch c.opens {
			case "":
				require.True(t, answer.Open, answer.Reason)
				require.Empty(t, answer.Reason)
			case "never":
				require.True(t, answer.Never(), "%+v", answer)
				require.Contains(t, answer.Reason, "does not open again")
				return
			default:
				require.False(t, answer.Open)
				c.until = c.opens
				require.Contains(t, answer.Reason, c.opens, "it names the time")
				require.LessOrEqual(t, strings.Count(answer.Reason, c.opens), 1, answer.Reason)
			}
			if c.until == "" {
				require.Nil(t, answer.Until)
				return
			}
			require.NotNil(t, answer.Until)
			require.Equal(t, c.until, phrase.Time(*answer.Until))
		})
	}
}

// The search is compared with a scan of every minute, which checks each window on its own.
func TestNextOpening_EqualsScanOfEveryMinute(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"}
	rules := []string{"", "FREQ=DAILY", "FREQ=DAILY;INTERVAL=3", "FREQ=WEEKLY;BYDAY=MO,WE,SU", "FREQ=WEEKLY;INTERVAL=2",
		"FREQ=DAILY;COUNT=4",
		"FREQ=MONTHLY;BYDAY=-1SU", "FREQ=MONTHLY;BYMONTHDAY=-1,15", "FREQ=DAILY;UNTIL=20261101T120000Z"}
	window := rapid.Custom(func(t *rapid.T) Window {
		begin := time.Date(2026, 10, rapid.IntRange(10, 31).Draw(t, "day"), rapid.IntRange(0, 23).Draw(t, "hour"),
			rapid.SampledFrom([]int{0, 30}).Draw(t, "minute"), 0, 0, time.UTC)
		return Window{Start: begin.Format("2006-01-02T15:04:05"),
			Duration: fmt.Sprintf("%dm", rapid.SampledFrom([]int{30, 60, 240, 1440, 3000}).Draw(t, "lasts")),
			RRule:    rapid.SampledFrom(rules).Draw(t, "rule"), TimeZone: rapid.SampledFrom(zones).Draw(t, "zone")}
	})
	rapid.Check(t, func(t *rapid.T) {
		times := []Times{{Windows: rapid.SliceOfN(window, 0, 3).Draw(t, "windows"),
			Freezes: rapid.SliceOfN(window, 0, 3).Draw(t, "freezes")},
			{Windows: rapid.SliceOfN(window, 0, 1).Draw(t, "windows of the execution")}}
		from := time.Date(2026, 10, 20, 0, rapid.IntRange(0, 20*24*60).Draw(t, "at"), 0, 0, time.UTC)
		answer, err := NextOpening(Question{Times: times, At: from})
		require.NoError(t, err)
		spans := scanned(t, times)
		require.Equal(t, spans.open(from), answer.Open, answer.Reason)
		const minutes = 12 * 24 * 60
		for n := range minutes {
			moment := from.Add(time.Duration(n) * time.Minute)
			if answer.Until != nil && !moment.Before(*answer.Until) {
				require.True(t, answer.Open || spans.open(moment), "it opens at %s", moment)
				return
			}
			require.Equal(t, answer.Open, spans.open(moment), "at %s: %+v", moment, answer)
		}
	})
}

type scan struct{ windows, freezes [][]span }

func scanned(t require.TestingT, times []Times) (s scan) {
	all := func(list []Window) (spans []span) {
		for _, w := range list {
			c, bad := w.compile()
			require.Empty(t, bad)
			next := func() (time.Time, bool) { return time.Time{}, false }
			if c.rule != nil {
				var err error
				next, err = walls(c.wall, *c.rule, c.wall)
				require.NoError(t, err)
			} else {
				spans = append(spans, span{instantOf(c.wall, c.zone), instantOf(c.wall, c.zone).Add(c.lasts)})
			}
			for range 100 {
				if wall, ok := next(); ok {
					begin := instantOf(wall, c.zone)
					spans = append(spans, span{begin, begin.Add(c.lasts)})
				}
			}
		}
		return spans
	}
	for _, one := range times {
		if len(one.Windows) > 0 {
			s.windows = append(s.windows, all(one.Windows))
		}
		s.freezes = append(s.freezes, all(one.Freezes))
	}
	return s
}

func (s scan) open(t time.Time) bool {
	in := func(spans []span) bool {
		for _, one := range spans {
			if !t.Before(one.begin) && t.Before(one.end) {
				return true
			}
		}
		return false
	}
	for _, windows := range s.windows {
		if !in(windows) {
			return false
		}
	}
	for _, freezes := range s.freezes {
		if in(freezes) {
			return false
		}
	}
	return true
}

func read(text string) (Times, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse([]byte(text))
	if !ok {
		return Times{}, found.Sorted()
	}
	times := Read(root.Mapping(Keys...))
	times.CheckTimes("", found)
	return times, found.Sorted()
}

func TestRead_RejectsInvalidTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"notBefore: tomorrow",
			`line 1, notBefore: "tomorrow" is not a time with an offset: write 2026-12-01T08:00:00Z, or +01:00 in place of Z`},
		{"notBefore: 2026-12-01T08:00:00",
			`line 1, notBefore: "2026-12-01T08:00:00" is not a time with an offset: write 2026-12-01T08:00:00Z, or +01:00 in place of Z`},
		{"notBefore: 1026-12-01T08:00:00Z", `line 1, notBefore: is in the year 1026: use a year from 2000 to 2199`},
		{"windows:\n- {duration: 4h}", `line 2, windows[0].start: is required: give the time when it first begins`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z}",
			`line 2, windows[0].duration: is required: give its length, for example 4h`},
		{"freezes:\n- {start: 2026-01-01T00:00:00Z, duration: 0h}",
			`line 2, freezes[0].duration: is "0h", which is no time at all: write 4h, for example`},
		{"freezes:\n- {start: 2026-01-01T00:00:00Z, duration: -4h}",
			`line 2, freezes[0].duration: "-4h" is not a duration: write 90m, 4h or 1d12h, or PT4H`},
		{"freezes:\n- {start: 2026-01-01T00:00:00Z, duration: 53w}",
			`line 2, freezes[0].duration: is "53w": a window lasts at most 366 days`},
		{"freezes:\n- {start: 2026-01-01T00:00:00Z, duration: P1DT}",
			`line 2, freezes[0].duration: "P1DT" is not a duration: write 90m, 4h or 1d12h, or PT4H`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, timezone: UTC}",
			`line 2, windows[0].timezone: unknown key "timezone": did you mean "timeZone"? Keys are case-sensitive`},
		{"windows:\n- {start: 2026-01-01T00:00:00, duration: 4h, timeZone: Europe/Berln}",
			`line 2, windows[0].timeZone: "Europe/Berln" is not the name of a time zone: use a name of the IANA database, such as Europe/Berlin or UTC`},
		{"windows:\n- {start: 2026-01-01T00:00:00, duration: 4h}",
			`line 2, windows[0].start: "2026-01-01T00:00:00" has no offset: add timeZone, or an offset such as Z`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=HOURLY}",
			`line 2, windows[0].rrule: has FREQ=HOURLY: it is one of DAILY, WEEKLY, MONTHLY, YEARLY`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=DAILY;BYHOUR=3}",
			`line 2, windows[0].rrule: has BYHOUR: the time of day is that of start; write one window for each time of the day`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=WEEKLY;BYDAY=2TU}",
			`line 2, windows[0].rrule: has numbers in BYDAY: they belong to MONTHLY and YEARLY, not to WEEKLY`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=WEEKLY;BYDAY=XX}",
			`line 2, windows[0].rrule: has BYDAY=XX: want days of MO, TU, WE, TH, FR, SA, SU`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: 'FREQ=MONTHLY;BYDAY=-1FR,2DI'}",
			`line 2, windows[0].rrule: has BYDAY=-1FR,2DI: want days of MO, TU, WE, TH, FR, SA, SU`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=WEEKLY;WKST=SO}",
			`line 2, windows[0].rrule: has WKST=SO: want days of MO, TU, WE, TH, FR, SA, SU`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=DAILY;COUNT=2;UNTIL=20260102T000000Z}",
			`line 2, windows[0].rrule: has COUNT and UNTIL: keep one`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=DAILY;UNTIL=20260102}",
			`line 2, windows[0].rrule: has UNTIL=20260102: write 20261231T235959 on the window's own clock, or 20261231T225959Z`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=DAILY;INTERVAL=0}",
			`line 2, windows[0].rrule: has INTERVAL=0: it is a number from 1 to 1000`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30}",
			`line 2, windows[0].rrule: never occurs: no day from start on matches it`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h, rrule: FREQ=YEARLY;BYMONTH=13}",
			`line 2, windows[0].rrule: is not a recurrence rule: bymonth must be between 1 and 12`},
		{"windows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h}\nfreezes:\n- {start: 2025-12-31T00:00:00Z, " +
			"duration: 2d}", `line 1, windows: never open: each of them lies within a freeze or ends before notBefore`},
		{"notBefore: 2026-02-01T00:00:00Z\nwindows:\n- {start: 2026-01-01T00:00:00Z, duration: 4h}",
			`line 2, windows: never open: each of them lies within a freeze or ends before notBefore`},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, wrong := read(c.text)
			require.Len(t, wrong, 1, "%v", wrong)
			require.Equal(t, c.want, wrong[0].Error())
		})
	}
}

// A start is warned in advance that it will wait, or that a time is in the past.
func TestWarnings_OfWaitingAndPastTimes(t *testing.T) {
	t.Parallel()
	now := at("2026-11-24T12:00:00Z")
	frozen := Times{Freezes: []Window{once("2026-11-24T00:00:00Z", "1d")}}
	for _, c := range []struct {
		why          string
		times        Times
		held, lapsed string
	}{
		{"no times, no warnings", Times{}, "", ""},
		{"a time in the future", Times{NotBefore: "2026-11-25T06:00:00+01:00"},
			"nothing begins before 2026-11-25T05:00:00Z: the time to begin (notBefore) is 2026-11-25T05:00:00Z", ""},
		{"a freeze", frozen,
			"nothing begins before 2026-11-25T00:00:00Z: a freeze (from 2026-11-24T00:00:00Z for 1d) lasts until " +
				"2026-11-25T00:00:00Z", ""},
		{"a time in the past has no effect", Times{NotBefore: "2025-12-01T06:00:00+01:00"}, "",
			"notBefore 2025-12-01T06:00:00+01:00 is in the past and has no effect"},
		{"the current moment is no mistake", Times{NotBefore: "2026-11-24T12:00:00Z"}, "", ""},
		{"times that never open are rejected instead", Times{Windows: []Window{once("2020-01-01T00:00:00Z", "1h")}}, "",
			""},
	} {
		require.Equal(t, c.held, DelayReason(now, c.times), c.why)
		require.Equal(t, c.lapsed, c.times.Lapsed(now), c.why)
	}
	require.Contains(t, DelayReason(now, frozen, Times{NotBefore: "2026-11-26T00:00:00Z"}),
		"nothing begins before 2026-11-26T00:00:00Z", "all of them must allow it")
}

func TestRead_AcceptsEveryForm(t *testing.T) {
	t.Parallel()
	for _, duration := range []string{"90m", "4h", "1d12h", "PT4H", "P1DT12H", "P2W", "3600s", "1w"} {
		_, wrong := read("windows:\n- {start: 2026-01-01T00:00:00Z, duration: " + duration + ", rrule: 'FREQ=DAILY'}")
		require.Empty(t, wrong, duration)
	}
	times, wrong := read("notBefore: 2026-12-01T08:00:00+01:00\nfreezes:\n- {start: 2026-12-24T00:00, duration: 3d, " +
		"timeZone: Europe/Berlin, rrule: FREQ=YEARLY}")
	require.Empty(t, wrong)
	require.Equal(t, Times{NotBefore: "2026-12-01T08:00:00+01:00",
		Freezes: []Window{{Start: "2026-12-24T00:00", Duration: "3d",
			TimeZone: "Europe/Berlin", RRule: "FREQ=YEARLY"}}}, times)
	require.False(t, times.AnyTime())
	require.Len(t, Restricting(times, Times{}), 1)
}

// An answer takes less than an attempt's time limit even in the worst case: a workflow waits for it.
func TestNextOpening_AnswersInTime_ForWorstCase(t *testing.T) {
	race.SkipBounds(t)
	t.Parallel()
	var times Times
	for n := range MaxWindows {
		begin := time.Date(2000, 1, 1, 0, n, 0, 0, time.UTC).Format(time.RFC3339)
		times.Windows = append(times.Windows, Window{Start: begin, Duration: "1m", RRule: "FREQ=DAILY"})
		times.Freezes = append(times.Freezes, Window{Start: begin, Duration: "1d", RRule: "FREQ=DAILY;COUNT=10000"})
	}
	began := time.Now()
	answer, err := NextOpening(Question{Times: []Times{times}, At: at("2026-01-01T00:00:00Z")})
	require.NoError(t, err)
	require.False(t, answer.Open)
	require.Less(t, time.Since(began), 8*time.Second, "an attempt has ten seconds")
}

func FuzzRead(f *testing.F) {
	f.Add("notBefore: 2026-12-01T08:00:00+01:00\nwindows:\n- {start: 2026-12-24T00:00, duration: 3d, timeZone: " +
		"Europe/Berlin, rrule: FREQ=YEARLY}")
	f.Add("freezes:\n- {start: 2026-01-01T00:00:00Z, duration: P1DT, rrule: 'FREQ=MONTHLY;BYDAY=-1FR;COUNT=3'}")
	f.Fuzz(func(t *testing.T, text string) {
		times, wrong := read(text)
		if len(wrong) > 0 {
			return
		}
		answer, err := NextOpening(Question{Times: []Times{times}, At: at("2026-06-01T00:00:00Z")})
		require.NoError(t, err, "valid times can be evaluated")
		if answer.Until != nil && !answer.Open {
			again, err := NextOpening(Question{Times: []Times{times}, At: *answer.Until})
			require.NoError(t, err)
			require.True(t, again.Open || again.Until.After(*answer.Until), "it is open at the time when it opens")
		}
	})
}
