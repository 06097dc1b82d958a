// Package audit keeps who asked what of a release and what became of it: commands, refusals, the history, and the keys that tell a repeat from a new command.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
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
	// Command carries a command out and notes it. A repeat of one that was sent before, known by its key, is answered as then, and nothing is done twice.
	Command(c C, now time.Time) (Outcome, string)
	// Refuse notes a command that could not be read.
	Refuse(c C, why string, now time.Time)
	// Audit is the log of what was sent.
	Audit() *Log
	// Over says that nothing is left to be done.
	Over() bool
}

// The most entries that a log shows, keys that it remembers, and bytes of an answer that it keeps with a key: what a release has to remember travels in one
// payload of at most 2 MiB when its workflow continues as new.
const (
	MaxEntries = 100
	maxKeys    = 2000
	maxAnswer  = 400
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

// Take has a command carried out, unless its key was used before: then a repeat gets the same answer, and another command is refused. body is the command;
// do says what was done or why it was refused, and may complete the entry.
func (l *Log) Take(e Entry, body any, do func(e *Entry) (done, refusal string)) (Outcome, string) {
	fingerprint := Fingerprint(body)
	if earlier := l.answerTo(e.Key); earlier != nil {
		if earlier.Body == fingerprint {
			return earlier.Outcome, earlier.Message
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
		l.Answers = newest(append(l.Answers, Answer{Key: digest(e.Key), Body: fingerprint, Verb: e.Verb, Outcome: e.Outcome, Message: cut(e.Message)}), maxKeys)
	}
	return e.Outcome, e.Message
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
	l.Entries = newest(append(l.Entries, e), MaxEntries)
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

// cut shortens an answer to what is kept with its key, without breaking a character.
func cut(text string) string {
	if len(text) <= maxAnswer {
		return text
	}
	end := maxAnswer - len("…")
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}
