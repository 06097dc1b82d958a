// Package audit keeps the history of a release: received commands with their actors and outcomes, and the idempotency
// keys that distinguish a repeated command from a new one.
package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/phrase"
)

// Outcome is the outcome of a command. Refused commands are part of the history, too.
type Outcome string

// The outcomes.
const (
	Accepted Outcome = "accepted"
	Refused  Outcome = "refused"
)

// Verb is a command on a release.
type Verb string

// Entry is one command, or one automatic decision of a rule, with its outcome.
type Entry struct {
	At    time.Time `json:"at"`
	Actor string    `json:"actor"`
	Via   string    `json:"via"`
	Verb  Verb      `json:"verb"`
	// Step is the rollout's step, and Party the serving's party, that the command is for.
	Step   int    `json:"step,omitempty"`
	Party  string `json:"party,omitempty"`
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
	// Message describes what the command did, or why it was refused and what to do instead.
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
}

// The defaults of an entry.
const (
	unknownActor = "unknown"
	viaTemporal  = "temporal"
)

// unverified begins the name of an actor that a client wrote itself. It comes first because long names are truncated.
const unverified = "unverified: "

// maxActor is the maximum length of an unverified name without the mark, in bytes.
const maxActor = 150

// Unverified returns the actor of a command that arrived through an object of Kubernetes, where nothing in the API
// server verified the name; "" for none.
func Unverified(actor string) string {
	if actor == "" {
		return ""
	}
	return unverified + phrase.Line(actor, maxActor)
}

// Machine is the common interface of the state machines of all releases. C is a command with its payload.
type Machine[C any] interface {
	// Command executes a command and logs it. A repeated command, recognised by its key, gets the same answer and is
	// not executed again.
	Command(c C, now time.Time) (Outcome, string)
	// Refuse logs a command that could not be read.
	Refuse(c C, why string, now time.Time)
	// Audit returns the history of received commands.
	Audit() *Log
	// Finished reports whether nothing is left to do.
	Finished() bool
}

// The limits of a log. Refused entries have a limit of their own, so that they never push out an accepted one.
const (
	MaxAccepted = 100
	MaxRefused  = 30
	maxKeys     = 2000
)

// When a workflow continues as new, its log and the rest of its state go into one payload of at most 2 MiB. The log has
// at most 400,000 bytes as JSON: 2,000 answers of 106 bytes with 40,000 bytes of messages, and 130 entries of 150 bytes
// with 128,000 bytes of texts.
const (
	// maxAnswer is the maximum size of an answer's message. The messages of all answers together have at most
	// maxAnswers; older ones are dropped.
	maxAnswer  = 400
	maxAnswers = 40_000
	// maxTexts is the maximum size of the texts of all accepted entries together, maxRefusedTexts that of refused ones.
	// Above it, each text of older entries is truncated to maxOldText.
	maxTexts        = 40_000
	maxRefusedTexts = 10_000
	maxOldText      = 100
)

// Log is the history of a release. The zero Log is empty. It survives continue-as-new, so fields may be added, but not
// removed.
type Log struct {
	// Entries are the newest accepted entries and the newest refused ones, oldest first.
	Entries []Entry `json:"entries,omitempty"`
	// RefusalsDropped is the number of refused entries that were dropped.
	RefusalsDropped int64 `json:"refusalsDropped,omitempty"`
	// Answers are the answers to commands that had a key.
	Answers []Answer `json:"answers,omitempty"`
	// Seq is the number of entries that were ever added.
	Seq int64 `json:"seq,omitempty"`
}

// Answer is the answer to a command that had a key.
type Answer struct {
	// Key and Body are digests of the key and of the command without it.
	Key     string  `json:"key"`
	Body    string  `json:"body"`
	Verb    Verb    `json:"verb"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
}

// Apply executes a command unless its key was used before: then a repeat gets the same answer, and a different command
// is refused. body is the command. do executes it and returns what was done or why it was refused; it may complete the
// entry.
func (l *Log) Apply(e Entry, body any, do func(e *Entry) (done, refusal string)) (Outcome, string) {
	fingerprint := Fingerprint(body)
	if earlier := l.answerTo(e.Key); earlier != nil {
		if earlier.Body == fingerprint {
			return earlier.Outcome, earlier.text()
		}
		e.Outcome, e.Message = Refused, fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key",
			e.Key, earlier.previousUse(e.Verb))
		l.Append(e)
		return e.Outcome, e.Message
	}
	done, refusal := do(&e)
	e.Outcome, e.Message = Accepted, done
	if refusal != "" {
		e.Outcome, e.Message = Refused, refusal
	}
	l.Append(e)
	if e.Key != "" {
		l.remember(Answer{Key: shortDigest(e.Key), Body: fingerprint, Verb: e.Verb, Outcome: e.Outcome,
			Message: truncate(e.Message, maxAnswer)})
	}
	return e.Outcome, e.Message
}

// remember stores an answer, and drops the messages of older answers if all together are too large.
func (l *Log) remember(a Answer) {
	l.Answers = Newest(append(l.Answers, a), maxKeys)
	sum := 0
	for i := len(l.Answers) - 1; i >= 0; i-- {
		if sum += jsonSize(l.Answers[i].Message); sum > maxAnswers {
			l.Answers[i].Message = ""
		}
	}
}

// text returns the message of an answer, or a substitute if the message was dropped.
func (a *Answer) text() string {
	switch {
	case a.Message != "":
		return a.Message
	case a.Outcome == Refused:
		return string(a.Verb) + " was refused; the reason is no longer stored: use a new key to try again"
	}
	return string(a.Verb) + " was done; its message is no longer stored"
}

// HasKey reports whether a key was used before.
func (l *Log) HasKey(key string) bool { return l.answerTo(key) != nil }

func (l *Log) answerTo(key string) *Answer {
	if key == "" {
		return nil
	}
	wanted := shortDigest(key)
	i := slices.IndexFunc(l.Answers, func(a Answer) bool { return a.Key == wanted })
	if i < 0 {
		return nil
	}
	return &l.Answers[i]
}

// previousUse describes what a key was used for.
func (a *Answer) previousUse(verb Verb) string {
	use := string(a.Verb)
	if a.Verb == verb {
		use = "another " + use
	}
	if a.Outcome == Refused && a.Message != "" {
		use += ", which was refused (" + a.Message + ")"
	}
	return use
}

// Append adds an entry.
func (l *Log) Append(e Entry) {
	e.Actor, e.Via = cmp.Or(e.Actor, unknownActor), cmp.Or(e.Via, viaTemporal)
	l.Seq++
	e.Key = StoredKey(e.Key)
	var dropped int64
	l.Entries, dropped = Keep(append(l.Entries, e), MaxAccepted, MaxRefused)
	l.RefusalsDropped += dropped
	l.truncateOld()
}

// Keep returns the entries of a history that are kept within the limits, in their order, and how many refused ones are
// dropped. The newest refused entries are kept. Of accepted ones, those that let the release go on are dropped last,
// and its start only if nothing else is left to drop.
func Keep(entries []Entry, accepted, refused int) (kept []Entry, refusalsDropped int64) {
	kept = slices.Clone(entries)
	refusals := 0
	for _, e := range kept {
		if e.isRefused() {
			refusals++
		}
	}
	for ; refusals > refused; refusals-- {
		i := slices.IndexFunc(kept, Entry.isRefused)
		kept = slices.Delete(kept, i, i+1)
		refusalsDropped++
	}
	for len(kept)-refusals > accepted {
		i := leastNeeded(kept)
		kept = slices.Delete(kept, i, i+1)
	}
	return kept, refusalsDropped
}

func (e Entry) isRefused() bool { return e.Outcome == Refused }

// The verbs of the entries that say who started a release, and who let it go on.
var (
	starting = []Verb{"start", "undo"}
	lasting  = append([]Verb{"approve", "promote"}, starting...)
)

// leastNeeded returns the index of the accepted entry that is dropped first. That is never the newest entry: its sender
// looks for it.
func leastNeeded(entries []Entry) int {
	older := entries[:len(entries)-1]
	for _, spared := range [][]Verb{lasting, starting} {
		i := slices.IndexFunc(older, func(e Entry) bool { return !e.isRefused() && !slices.Contains(spared, e.Verb) })
		if i >= 0 {
			return i
		}
	}
	return slices.IndexFunc(entries, func(e Entry) bool { return !e.isRefused() })
}

// truncateOld truncates the texts of older entries if all together are too large. It does not modify slices that were
// returned before.
func (l *Log) truncateOld() {
	left, copied := map[bool]int{false: maxTexts, true: maxRefusedTexts}, false
	for i := len(l.Entries) - 1; i >= 0; i-- {
		old, sum := l.Entries[i], 0
		texts := []*string{&old.Actor, &old.Via, &old.Party, &old.Reason, &old.Message}
		for _, text := range texts {
			sum += jsonSize(*text)
		}
		if left[old.isRefused()] -= sum + jsonSize(old.Key); left[old.isRefused()] >= 0 {
			continue
		}
		for _, text := range texts {
			*text = truncate(*text, maxOldText)
		}
		if old != l.Entries[i] && !copied {
			l.Entries, copied = slices.Clone(l.Entries), true
		}
		l.Entries[i] = old
	}
}

// maxPlainKey is the maximum size of a key that is stored unchanged, in bytes.
const maxPlainKey = 100

// StoredKey returns a key as it is stored in an entry: a long key is replaced by its digest.
func StoredKey(key string) string {
	if jsonSize(key) <= maxPlainKey {
		return key
	}
	return shortDigest(key)
}

// Newest returns at most that many of the newest entries of a list.
func Newest[T any](list []T, most int) []T { return slices.Clone(list[max(len(list)-most, 0):]) }

// fingerprintLength is the length of a shortened digest, in characters.
const fingerprintLength = 16

// Fingerprint returns a digest of a command without its key and the interface it came through (via).
func Fingerprint(body any) string {
	raw, err := json.Marshal(body)
	if err != nil {
		return ""
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) == nil {
		delete(fields, "key")
		delete(fields, "via")
		if raw, err = json.Marshal(fields); err != nil {
			return ""
		}
	}
	return shortDigest(string(raw))
}

func shortDigest(text string) string { return digest.Of(text)[:fingerprintLength] }

// jsonSize returns an upper bound of the size of a text as JSON, in bytes.
func jsonSize(text string) int {
	bytes := 0
	for _, r := range text {
		bytes += runeJSONSize(r)
	}
	return bytes
}

// runeJSONSize returns an upper bound of the size of a character as JSON: an escaped character has six bytes.
func runeJSONSize(r rune) int {
	switch r {
	case '"', '\\', '<', '>', '&', '\u2028', '\u2029', utf8.RuneError:
		return 6
	}
	if r < ' ' {
		return 6
	}
	return utf8.RuneLen(r)
}

// truncate shortens a text to at most `most` bytes as JSON, without splitting a character.
func truncate(text string, most int) string {
	if jsonSize(text) <= most {
		return text
	}
	bytes := len("…")
	for i, r := range text {
		if bytes += runeJSONSize(r); bytes > most {
			return text[:i] + "…"
		}
	}
	return text
}
