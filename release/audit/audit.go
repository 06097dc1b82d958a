// Package audit keeps who asked what of a release and what became of it: commands, refusals, the history, and the keys that tell a repeat
// from a new command.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Outcome says what became of a command. A refused one belongs to the history too.
type Outcome string

// The outcomes.
const (
	Accepted Outcome = "accepted"
	Refused  Outcome = "refused"
)

// Verb is what a person can ask of a release.
type Verb string

// Entry is one command that somebody sent, or a rule that decided in nobody's name, and what became of it.
type Entry struct {
	At    time.Time `json:"at"`
	Actor string    `json:"actor"`
	Via   string    `json:"via"`
	Verb  Verb      `json:"verb"`
	// Step is the step of a rollout, Party the party of a serving, that it was meant for.
	Step   int    `json:"step,omitempty"`
	Party  string `json:"party,omitempty"`
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
	// Message says what the command did, or why it was refused and what to do instead.
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
}

// What an entry says when the sender did not.
const (
	unknownActor = "unknown"
	viaTemporal  = "temporal"
)

// Machine is what the state machines of all releases have in common: C is a command with its payload.
type Machine[C any] interface {
	// Command carries a command out and notes it. A repeat of one that was sent before, known by its key, is answered as then, and nothing
	// is done twice.
	Command(c C, now time.Time) (Outcome, string)
	// Refuse notes a command that could not be read.
	Refuse(c C, why string, now time.Time)
	// Audit is the log of what was sent.
	Audit() *Log
	// Over says that nothing is left to be done.
	Over() bool
}

// MaxEntries is how many entries a log shows, maxKeys how many keys it remembers.
const (
	MaxEntries = 100
	maxKeys    = 2000
)

// A log travels in one payload of at most 2 MiB, with all that a release has to remember, when its workflow continues as new. It weighs
// at most 400,000 bytes as JSON: 2,000 answers of 106 bytes with 60,000 bytes of messages, and 100 entries of 150 bytes with 110,000
// bytes of texts.
const (
	// maxAnswer is what one answer keeps of its message; the answers' messages together weigh at most maxAnswers, and older ones give way.
	maxAnswer  = 400
	maxAnswers = 60_000
	// maxTexts is what the texts of all entries weigh together; each text of older ones is cut to maxOldText where that is too much.
	maxTexts   = 60_000
	maxOldText = 100
)

// Log is the history of a release. The zero Log is empty. It is taken along when a workflow continues as new, and only ever extended.
type Log struct {
	// Entries are the newest, oldest first.
	Entries []Entry `json:"entries,omitempty"`
	// Answers are what became of the commands that had a key.
	Answers []Answer `json:"answers,omitempty"`
	// Seq is how many entries were ever noted.
	Seq int64 `json:"seq,omitempty"`
}

// Answer is what became of a command that had a key.
type Answer struct {
	// Key and Body are digests of the key and of the command without it.
	Key     string  `json:"key"`
	Body    string  `json:"body"`
	Verb    Verb    `json:"verb"`
	Outcome Outcome `json:"outcome"`
	Message string  `json:"message"`
}

// Take has a command carried out, unless its key was used before: then a repeat gets the same answer, and another command is refused.
// body is the command; do says what was done or why it was refused, and may complete the entry.
func (l *Log) Take(e Entry, body any, do func(e *Entry) (done, refusal string)) (Outcome, string) {
	fingerprint := Fingerprint(body)
	if earlier := l.answerTo(e.Key); earlier != nil {
		if earlier.Body == fingerprint {
			return earlier.Outcome, earlier.text()
		}
		e.Outcome, e.Message = Refused, fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key", e.Key, earlier.other(e.Verb))
		l.Note(e)
		return e.Outcome, e.Message
	}
	done, refusal := do(&e)
	e.Outcome, e.Message = Accepted, done
	if refusal != "" {
		e.Outcome, e.Message = Refused, refusal
	}
	l.Note(e)
	if e.Key != "" {
		l.remember(Answer{Key: digest(e.Key), Body: fingerprint, Verb: e.Verb, Outcome: e.Outcome, Message: cut(e.Message, maxAnswer)})
	}
	return e.Outcome, e.Message
}

// remember keeps an answer. The messages of older ones go where all together weigh too much.
func (l *Log) remember(a Answer) {
	l.Answers = newest(append(l.Answers, a), maxKeys)
	sum := 0
	for i := len(l.Answers) - 1; i >= 0; i-- {
		if sum += weight(l.Answers[i].Message); sum > maxAnswers {
			l.Answers[i].Message = ""
		}
	}
}

// text is the message of an answer, or what is left to say when that is not kept any more.
func (a *Answer) text() string {
	switch {
	case a.Message != "":
		return a.Message
	case a.Outcome == Refused:
		return string(a.Verb) + " was refused then; why is not kept any more: take a new key to ask again"
	}
	return string(a.Verb) + " was done then; what it said is not kept any more"
}

// Knows says whether a key was used before.
func (l *Log) Knows(key string) bool { return l.answerTo(key) != nil }

func (l *Log) answerTo(key string) *Answer {
	if key == "" {
		return nil
	}
	wanted := digest(key)
	for i := range l.Answers {
		if l.Answers[i].Key == wanted {
			return &l.Answers[i]
		}
	}
	return nil
}

// other is what a key was used for, in words.
func (a *Answer) other(verb Verb) string {
	if a.Verb == verb {
		return "another " + string(verb)
	}
	return string(a.Verb)
}

// Note keeps an entry.
func (l *Log) Note(e Entry) {
	if e.Actor == "" {
		e.Actor = unknownActor
	}
	if e.Via == "" {
		e.Via = viaTemporal
	}
	l.Seq++
	e.Key = KeptKey(e.Key)
	l.Entries = newest(append(l.Entries, e), MaxEntries)
	l.cutOld()
}

// cutOld cuts the texts of older entries where all together weigh too much. What was handed out before stays as it was.
func (l *Log) cutOld() {
	sum, copied := 0, false
	for i := len(l.Entries) - 1; i >= 0; i-- {
		old := l.Entries[i]
		texts := []*string{&old.Actor, &old.Via, &old.Party, &old.Reason, &old.Message}
		for _, text := range texts {
			sum += weight(*text)
		}
		if sum += weight(old.Key); sum <= maxTexts {
			continue
		}
		for _, text := range texts {
			*text = cut(*text, maxOldText)
		}
		if old != l.Entries[i] && !copied {
			l.Entries, copied = slices.Clone(l.Entries), true
		}
		l.Entries[i] = old
	}
}

// longestKey is how many bytes a key has that is kept as it is.
const longestKey = 100

// KeptKey is a key as an entry has it: a long one is told by its digest.
func KeptKey(key string) string {
	if weight(key) <= longestKey {
		return key
	}
	return digest(key)
}

// newest is the end of a list that has grown too long. What was handed out before stays as it was.
func newest[T any](list []T, most int) []T {
	if over := len(list) - most; over > 0 {
		return append([]T(nil), list[over:]...)
	}
	return list
}

// fingerprintLength is how many characters of a digest are kept.
const fingerprintLength = 16

// Fingerprint tells commands apart by what they ask: the key and the front door do not count.
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
	return digest(string(raw))
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:fingerprintLength]
}

// weight is how many bytes a text has as JSON.
func weight(text string) int {
	bytes := 0
	for _, r := range text {
		bytes += runeWeight(r)
	}
	return bytes
}

// runeWeight is at least what JSON makes of a character: what it escapes takes six bytes.
func runeWeight(r rune) int {
	switch r {
	case '"', '\\', '<', '>', '&', '\u2028', '\u2029', utf8.RuneError:
		return 6
	}
	if r < ' ' {
		return 6
	}
	return utf8.RuneLen(r)
}

// cut shortens a text to that weight, without breaking a character.
func cut(text string, most int) string {
	if weight(text) <= most {
		return text
	}
	bytes := len("…")
	for i, r := range text {
		if bytes += runeWeight(r); bytes > most {
			return text[:i] + "…"
		}
	}
	return text
}
