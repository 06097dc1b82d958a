package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/audit"
)

type command struct {
	Verb   audit.Verb `json:"verb"`
	Actor  string     `json:"actor,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Key    string     `json:"key,omitempty"`
	Via    string     `json:"via,omitempty"`
}

func take(l *audit.Log, c command, refusal string) (audit.Outcome, string) {
	entry := audit.Entry{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Actor: c.Actor, Via: c.Via, Verb: c.Verb, Reason: c.Reason, Key: c.Key}
	return l.Take(entry, c, func(*audit.Entry) (string, string) { return fmt.Sprintf("%s is done", c.Verb), refusal })
}

func TestAKeyIsOneCommand(t *testing.T) {
	t.Parallel()
	first := command{Verb: "pause", Actor: "ann", Reason: "lunch", Key: "k", Via: "cli"}
	cases := map[string]struct {
		second  command
		outcome audit.Outcome
		message string
		entries int
	}{
		"a repeat is answered as then":        {first, audit.Accepted, "pause is done", 1},
		"another front door is a repeat":      {command{Verb: "pause", Actor: "ann", Reason: "lunch", Key: "k", Via: "http"}, audit.Accepted, "pause is done", 1},
		"another verb is refused":             {command{Verb: "stop", Actor: "ann", Reason: "lunch", Key: "k"}, audit.Refused, `the key "k" was used for pause: nothing was done; take a new key`, 2},
		"another body of the verb is refused": {command{Verb: "pause", Actor: "ann", Reason: "dinner", Key: "k"}, audit.Refused, `the key "k" was used for another pause: nothing was done; take a new key`, 2},
		"another key is another command":      {command{Verb: "pause", Key: "l"}, audit.Accepted, "pause is done", 2},
		"without a key each is a command":     {command{Verb: "pause"}, audit.Accepted, "pause is done", 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log audit.Log
			take(&log, first, "")
			outcome, message := take(&log, c.second, "")
			require.Equal(t, c.outcome, outcome)
			require.Equal(t, c.message, message)
			require.Len(t, log.Entries, c.entries)
			outcome, message = take(&log, first, "")
			require.Equal(t, []any{audit.Accepted, "pause is done"}, []any{outcome, message}, "what came between changes nothing about the first")
		})
	}
}

func TestARefusalIsAnAnswerToo(t *testing.T) {
	t.Parallel()
	var log audit.Log
	take(&log, command{Verb: "resume", Key: "k"}, "it is not paused")
	outcome, message := take(&log, command{Verb: "resume", Key: "k"}, "")
	require.Equal(t, audit.Refused, outcome, "the repeat of a refused command is not carried out later")
	require.Equal(t, "it is not paused", message)
	require.Equal(t, []string{"unknown", "temporal"}, []string{log.Entries[0].Actor, log.Entries[0].Via})
}

// A key outlives the entries that are shown, and the log fits into one payload, beside all else that a release remembers, whatever was sent.
func TestALogIsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"of three bytes a character": strings.Repeat("長", 2000),
		"that JSON escapes":          strings.Repeat("<", 2000),
		"of control characters":      strings.Repeat("\x01", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log audit.Log
			take(&log, command{Verb: "rollback", Key: "first"}, "")
			for i := range 1990 {
				take(&log, command{Verb: "rollback", Actor: text[:600], Via: text[:90], Key: fmt.Sprint(text[:600], i), Reason: text}, text)
			}
			require.Len(t, log.Entries, audit.MaxEntries)
			require.Equal(t, int64(1991), log.Seq, "entries are counted all the same")
			outcome, message := take(&log, command{Verb: "rollback", Key: "first"}, "")
			require.Equal(t, audit.Accepted, outcome)
			require.Equal(t, "rollback was done then; what it said is not kept any more", message)
			require.Equal(t, int64(1991), log.Seq, "the first key is known still: nothing is noted")
			raw, err := json.Marshal(log)
			require.NoError(t, err)
			require.Less(t, len(raw), 400_000)
			var again audit.Log
			require.NoError(t, json.Unmarshal(raw, &again))
			require.True(t, again.Knows("first"), "what is taken along knows the keys")
		})
	}
}

// Texts are cut where the log as a whole gets too large, the oldest first: what is usual is kept whole.
func TestOldTextsGiveWay(t *testing.T) {
	t.Parallel()
	var usual, large audit.Log
	short, long := strings.Repeat("s", 300), strings.Repeat("長", 2000)
	for range audit.MaxEntries {
		take(&usual, command{Verb: "pause", Reason: short}, "")
		take(&large, command{Verb: "pause", Reason: long}, "")
	}
	require.Equal(t, short, usual.Entries[0].Reason, "100 reasons of 300 characters are kept whole")
	require.Equal(t, long, large.Entries[audit.MaxEntries-1].Reason, "the newest is kept whole")
	require.Equal(t, strings.Repeat("長", 32)+"…", large.Entries[0].Reason, "an old one is cut between two characters")

	handedOut := large.Entries
	whole := 0
	for _, e := range handedOut {
		if e.Reason == long {
			whole++
		}
	}
	take(&large, command{Verb: "pause", Reason: long}, "")
	for _, e := range handedOut {
		if e.Reason == long {
			whole--
		}
	}
	require.Zero(t, whole, "what was handed out before stays as it was")
}

// A refusal whose reason is not kept any more is a refusal still.
func TestAnOldRefusalIsARefusal(t *testing.T) {
	t.Parallel()
	var log audit.Log
	take(&log, command{Verb: "resume", Key: "first"}, "it is not paused")
	for i := range 500 {
		take(&log, command{Verb: "resume", Key: fmt.Sprint(i)}, strings.Repeat("x", 2000))
	}
	outcome, message := take(&log, command{Verb: "resume", Key: "first"}, "")
	require.Equal(t, audit.Refused, outcome)
	require.Equal(t, "resume was refused then; why is not kept any more: take a new key to ask again", message)
}
