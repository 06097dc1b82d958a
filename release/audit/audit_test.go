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
	entry := audit.Entry{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Actor: c.Actor, Via: c.Via, Verb: c.Verb,
		Reason: c.Reason, Key: c.Key}
	return l.Apply(entry, c, func(*audit.Entry) (string, string) { return fmt.Sprintf("%s is done", c.Verb), refusal })
}

func TestLog_Key_AnswersRepeat_RefusesOtherCommand(t *testing.T) {
	t.Parallel()
	first := command{Verb: "pause", Actor: "ann", Reason: "lunch", Key: "k", Via: "cli"}
	cases := map[string]struct {
		second  command
		outcome audit.Outcome
		message string
		entries int
	}{
		"a repeat gets the same answer": {first, audit.Accepted, "pause is done", 1},
		"another interface is a repeat": {command{Verb: "pause", Actor: "ann", Reason: "lunch", Key: "k",
			Via: "http"}, audit.Accepted, "pause is done", 1},
		"another verb is refused": {command{Verb: "stop", Actor: "ann", Reason: "lunch", Key: "k"},
			audit.Refused, `the key "k" was used for pause: nothing was done; take a new key`, 2},
		"another body of the verb is refused": {command{Verb: "pause", Actor: "ann", Reason: "dinner", Key: "k"},
			audit.Refused, `the key "k" was used for another pause: nothing was done; take a new key`, 2},
		"another key is another command":  {command{Verb: "pause", Key: "l"}, audit.Accepted, "pause is done", 2},
		"without a key each is a command": {command{Verb: "pause"}, audit.Accepted, "pause is done", 2},
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
			require.Equal(t, []any{audit.Accepted, "pause is done"}, []any{outcome, message},
				"later commands do not change the answer to the first")
		})
	}
}

func TestLog_Key_RepeatsRefusal(t *testing.T) {
	t.Parallel()
	var log audit.Log
	take(&log, command{Verb: "resume", Key: "k"}, "it is not paused")
	outcome, message := take(&log, command{Verb: "resume", Key: "k"}, "")
	require.Equal(t, audit.Refused, outcome, "the repeat of a refused command is not executed later")
	require.Equal(t, "it is not paused", message)
	require.Equal(t, []string{"unknown", "temporal"}, []string{log.Entries[0].Actor, log.Entries[0].Via})
}

// A key is remembered for longer than its entry is shown, and the log fits into one payload together with the rest of a
// release's state, for any commands.
func TestLog_SizeIsBounded_ForAnyTexts(t *testing.T) {
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
				take(&log, command{Verb: "rollback", Actor: text[:600], Via: text[:90], Key: fmt.Sprint(text[:600], i),
					Reason: text}, text)
			}
			require.Len(t, log.Entries, 1+audit.MaxRefused)
			require.Equal(t, int64(1990-audit.MaxRefused), log.RefusalsDropped)
			require.Equal(t, int64(1991), log.Seq, "dropped entries are still counted")
			for i := range audit.MaxAccepted + 10 {
				e := audit.Entry{At: time.Now(), Verb: "rollback", Actor: text[:600], Via: text[:90],
					Key: fmt.Sprint(text[:600], i), Reason: text, Outcome: audit.Accepted, Message: text}
				log.Append(e)
				e.Outcome = audit.Refused
				log.Append(e)
			}
			require.Len(t, log.Entries, audit.MaxAccepted+audit.MaxRefused)
			outcome, message := take(&log, command{Verb: "rollback", Key: "first"}, "")
			require.Equal(t, audit.Accepted, outcome)
			require.Equal(t, "rollback was done; its message is no longer stored", message)
			require.Equal(t, int64(1991+2*(audit.MaxAccepted+10)), log.Seq, "the first key is still known: no entry is added")
			raw, err := json.Marshal(log)
			require.NoError(t, err)
			require.Less(t, len(raw), 400_000)
			var again audit.Log
			require.NoError(t, json.Unmarshal(raw, &again))
			require.True(t, again.HasKey("first"), "the keys survive encoding")
		})
	}
}

// If the log gets too large, the oldest texts are truncated first; a log of usual size is not truncated.
func TestLog_TruncatesOldestTexts_WhenTooLarge(t *testing.T) {
	t.Parallel()
	var usual, large audit.Log
	short, long := strings.Repeat("s", 300), strings.Repeat("長", 2000)
	for range audit.MaxAccepted {
		take(&usual, command{Verb: "pause", Reason: short}, "")
		take(&large, command{Verb: "pause", Reason: long}, "")
	}
	require.Equal(t, short, usual.Entries[0].Reason, "100 reasons of 300 characters are not truncated")
	require.Equal(t, long, large.Entries[audit.MaxAccepted-1].Reason, "the newest is not truncated")
	require.Equal(t, strings.Repeat("長", 32)+"…", large.Entries[0].Reason,
		"an old one is truncated between two characters")

	handedOut := large.Entries
	complete := 0
	for _, e := range handedOut {
		if e.Reason == long {
			complete++
		}
	}
	take(&large, command{Verb: "pause", Reason: long}, "")
	for _, e := range handedOut {
		if e.Reason == long {
			complete--
		}
	}
	require.Zero(t, complete, "slices that were returned before are not modified")
}

// A refusal whose reason was dropped is still a refusal.
func TestLog_RepeatsOldRefusal_WithoutItsReason(t *testing.T) {
	t.Parallel()
	var log audit.Log
	take(&log, command{Verb: "resume", Key: "first"}, "it is not paused")
	for i := range 500 {
		take(&log, command{Verb: "resume", Key: fmt.Sprint(i)}, strings.Repeat("x", 2000))
	}
	outcome, message := take(&log, command{Verb: "resume", Key: "first"}, "")
	require.Equal(t, audit.Refused, outcome)
	require.Equal(t, "resume was refused; the reason is no longer stored: use a new key to try again", message)
}

// Refused commands, which any client can send in any number, push out no accepted one, and truncate none of its texts.
func TestLog_KeepsAcceptedEntries_WhenFlooded(t *testing.T) {
	t.Parallel()
	var log audit.Log
	reason := strings.Repeat("r", 300)
	take(&log, command{Verb: "start", Actor: "ann"}, "")
	take(&log, command{Verb: "approve", Actor: "cfo", Reason: reason}, "")
	flood := strings.Repeat("長", 2000)
	for i := range 125 {
		take(&log, command{Verb: "jump", Actor: "mallory", Reason: fmt.Sprint(i, flood)}, "there is no such step")
	}
	require.Equal(t, []audit.Verb{"start", "approve"}, []audit.Verb{log.Entries[0].Verb, log.Entries[1].Verb})
	require.Equal(t, reason, log.Entries[1].Reason)
	require.Len(t, log.Entries, 2+audit.MaxRefused)
	require.Equal(t, int64(125-audit.MaxRefused), log.RefusalsDropped)
	require.Equal(t, int64(127), log.Seq)
	require.True(t, strings.HasPrefix(log.Entries[1+audit.MaxRefused].Reason, "124"), "the newest refusal is kept")
	take(&log, command{Verb: "pause"}, "")
	require.Equal(t, audit.Verb("pause"), log.Entries[2+audit.MaxRefused].Verb, "the order stays that of time")
	raw, err := json.Marshal(log)
	require.NoError(t, err)
	var again audit.Log
	require.NoError(t, json.Unmarshal(raw, &again))
	require.Equal(t, log.RefusalsDropped, again.RefusalsDropped, "the count continues as new")
}

// If accepted entries alone are too many, the start and the approvals are dropped last.
func TestLog_DropsApprovalsLast_WhenFullOfAcceptedEntries(t *testing.T) {
	t.Parallel()
	var log audit.Log
	verbs := func() map[audit.Verb]int {
		count := map[audit.Verb]int{}
		for _, e := range log.Entries {
			count[e.Verb]++
		}
		return count
	}
	take(&log, command{Verb: "start"}, "")
	for range 60 {
		take(&log, command{Verb: "approve"}, "")
	}
	for range 300 {
		take(&log, command{Verb: "pause"}, "")
	}
	require.Equal(t, map[audit.Verb]int{"start": 1, "approve": 60, "pause": 39}, verbs())
	for range 300 {
		take(&log, command{Verb: "approve"}, "")
	}
	require.Equal(t, map[audit.Verb]int{"start": 1, "approve": 99}, verbs())
	take(&log, command{Verb: "pause"}, "")
	require.Equal(t, map[audit.Verb]int{"start": 1, "approve": 98, "pause": 1}, verbs(), "the newest entry is kept")
}

// The mark comes first, so that no shortened name looks verified.
func TestUnverified_MarksNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "unverified: cfo@example.com", audit.Unverified("cfo@example.com"))
	require.Empty(t, audit.Unverified(""))
	long := audit.Unverified("cfo@example.com" + strings.Repeat(" x", 2000) + "\n")
	require.True(t, strings.HasPrefix(long, "unverified: cfo@example.com x x"), long)
	require.LessOrEqual(t, len(long), 200, "every front door accepts it")
	require.NotContains(t, audit.Unverified("a\nb"), "\n")
}
