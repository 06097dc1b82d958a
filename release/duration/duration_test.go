package duration

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const day = 24 * time.Hour

func TestParse_Durations_AreReadAsPeopleWriteThem(t *testing.T) {
	t.Parallel()
	for text, test := range map[string]struct {
		reason string
		want   time.Duration
	}{
		"90":                   {"a number is in seconds", 90 * time.Second},
		"0":                    {"so is none", 0},
		"090":                  {"is it octal?", -1},
		"-5":                   {"callers refuse what is negative", -5 * time.Second},
		"99999999999999999999": {"more than fits in 64 bits", math.MaxInt64 / time.Second * time.Second},
		"90s":                  {"Argo's and Go's way", 90 * time.Second},
		"6s":                   {"one digit", 6 * time.Second},
		"5m":                   {"minutes", 5 * time.Minute},
		"1h30m":                {"several parts", 90 * time.Minute},
		"1h0m0s":               {"as Go prints it", time.Hour},
		"1.5h":                 {"a fraction", 90 * time.Minute},
		"500ms":                {"below a second: a setting may be", 500 * time.Millisecond},
		"-5s":                  {"callers refuse what is negative", -5 * time.Second},
		"1d12h":                {"days", day + 12*time.Hour},
		"2w":                   {"weeks", 14 * day},
		"P1DT4H":               {"ISO 8601", day + 4*time.Hour},
		"PT90S":                {"ISO 8601 without days", 90 * time.Second},
		"P2W":                  {"ISO 8601 in weeks", 14 * day},
		"999999w":              {"more than fits", math.MaxInt64},
		"292y":                 {"no such unit", -1},
		"":                     {"nothing", -1},
		"P":                    {"ISO 8601 without a part", -1},
		"P1DT":                 {"a time without a part", -1},
		"1d 2h":                {"no blanks", -1},
		"5 m":                  {"no blanks before the unit", -1},
		"five":                 {"no number", -1},
		"5min":                 {"no such unit", -1},
		"30m1h":                {"Go takes parts in any order", 90 * time.Minute},
		"1:30":                 {"a clock is no duration", -1},
		"1e3":                  {"no exponents", -1},
	} {
		got, err := Parse(text)
		if test.want == -1 {
			require.Error(t, err, "%q: %s", text, test.reason)
			continue
		}
		require.NoError(t, err, "%q: %s", text, test.reason)
		require.Equal(t, test.want, got, "%q: %s", text, test.reason)
	}
}

// What Go prints is read back, so that a duration of an answer can be sent.
func TestParse_PrintedDuration_IsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "duration"))
		got, err := Parse(d.String())
		require.NoError(t, err)
		require.Equal(t, d, got)
	})
}

func TestFlag_NoDuration_IsRefusedWithExamples(t *testing.T) {
	t.Parallel()
	var f Flag
	require.Equal(t, "0", f.String(), "a zero default is not printed")
	require.NoError(t, f.Set("90"))
	require.Equal(t, "1m30s", f.String())
	require.EqualError(t, f.Set("soon"),
		`"soon" is not a duration: use, for example, 90 (in seconds), 90s, 5m or 1h30m`)
	require.Equal(t, 90*time.Second, time.Duration(f), "a refused value changes nothing")
}
