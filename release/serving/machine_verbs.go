package serving

import (
	"fmt"
	"slices"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
)

// Verb is what a person can ask of an operation on a serving.
type Verb string

// The verbs.
const (
	// VerbApprove has the party begin that waits for an approval.
	VerbApprove Verb = "approve"
	// VerbPause holds the operation: no other party begins.
	VerbPause Verb = "pause"
	// VerbResume goes on after a pause.
	VerbResume Verb = "resume"
	// VerbStop ends an update: every party goes back to the version of before.
	VerbStop Verb = "stop"
)

// Verbs are all verbs, in the order in which people read them.
var Verbs = []Verb{VerbApprove, VerbPause, VerbResume, VerbStop}

// Command is a verb with its payload. All fields but Verb are optional.
type Command struct {
	Verb                    Verb
	Actor, Via, Reason, Key string
	// Party is who is approved, as PartyName calls it, Gate the token of that as it was seen; "" is whoever waits now.
	Party, Gate string
}

// The most decisions that an operation keeps, and that its status shows.
const (
	maxHistory      = 100
	maxShownHistory = 20
)

// Command carries out a verb and notes it in the history, refused ones too. A refusal changes nothing and says what can be done instead.
// A key that was used before is the same command: the same answer, and nothing is done twice.
func (m *Machine) Command(c Command, now time.Time) (plan.Outcome, string) {
	done, refusal := "", ""
	if i := slices.IndexFunc(m.history, func(d kuscia.Decision) bool { return c.Key != "" && d.Key == c.Key }); i >= 0 {
		former := m.history[i]
		if former.Verb == string(c.Verb) {
			return plan.Outcome(former.Outcome), former.Message
		}
		refusal = fmt.Sprintf("the key %q was used for %s: take another", c.Key, former.Verb)
	}
	if i, waits := m.asks(); waits && c.Party == "" && c.Verb == VerbApprove {
		c.Party = m.in.Parties[i].Name()
	}
	if refusal == "" {
		done, refusal = m.carryOut(c, now)
	}
	if refusal != "" {
		m.note(c, plan.OutcomeRefused, refusal, now)
		return plan.OutcomeRefused, refusal
	}
	m.note(c, plan.OutcomeAccepted, done, now)
	m.advance(now)
	return plan.OutcomeAccepted, done
}

// Refuse notes a command that could not be read.
func (m *Machine) Refuse(c Command, why string, now time.Time) {
	m.note(c, plan.OutcomeRefused, why, now)
}

// carryOut does what the state allows: either done or refusal is set.
func (m *Machine) carryOut(c Command, now time.Time) (done, refusal string) {
	if m.Over() {
		return "", "the operation is over: " + m.Says()
	}
	switch c.Verb {
	case VerbApprove:
		return m.approve(c, now)
	case VerbPause:
		return m.pause(c, now)
	case VerbResume:
		return m.resume(now)
	case VerbStop:
		return m.stop(c)
	default:
		return "", fmt.Sprintf("there is no verb %q: send one of %v", c.Verb, Verbs)
	}
}

func (m *Machine) approve(c Command, now time.Time) (done, refusal string) {
	i, waits := m.asks()
	switch {
	case !waits && (c.Gate != "" || c.Party != ""):
		return "", "what is approved is not waited for any more: " + m.Says()
	case !waits:
		return "", "no approval is waited for now: " + m.Says()
	case c.Party != m.in.Parties[i].Name():
		return "", fmt.Sprintf("meant for party %s, but it is %s that waits: look at it again", c.Party, m.in.Parties[i].Name())
	case c.Gate != "" && c.Gate != m.gate(i):
		return "", fmt.Sprintf("the gate is of something else: party %s waits now: look at it again", m.in.Parties[i].Name())
	case m.paused != nil:
		return "", "it is paused: resume it, then approve"
	}
	m.parties[i].approved = true
	m.free(now)
	return fmt.Sprintf("party %s is approved: it begins", m.in.Parties[i].Name()), ""
}

func (m *Machine) pause(c Command, now time.Time) (done, refusal string) {
	switch {
	case m.in.Kind == KindDelete:
		return "", "a deletion cannot be held: what the parties run is being removed"
	case m.in.Kind == KindRecreate:
		return "", "what somebody has deleted is being put back: there is nothing to hold"
	case m.stage == StageBack:
		return "", "it is on its way back: that cannot be held, wait until it is over"
	case m.paused != nil:
		return "", fmt.Sprintf("it is paused already, %s: resume goes on", m.paused.by)
	case m.stage == StageCommit && m.all(func(p partyState) bool { return p.begun }):
		return "", "every party has begun with it: there is nothing left to hold" + m.insteadOfWaiting()
	}
	m.paused = &hold{by: byWhom(c), since: now}
	return "no party begins until it is resumed; what has begun goes on", ""
}

func (m *Machine) resume(now time.Time) (done, refusal string) {
	if m.paused == nil {
		return "", "it is not paused: " + m.Says()
	}
	m.paused = nil
	m.free(now)
	return "it goes on", ""
}

// stop takes an update back in all parties: it is all or nothing. Nothing else has a version of before.
func (m *Machine) stop(c Command) (done, refusal string) {
	switch {
	case m.in.Kind == KindCreate:
		return "", "nothing ran before it, so that there is nothing to go back to: delete the serving, or update it to what is to run"
	case m.in.Kind == KindRecreate:
		return "", "what somebody has deleted is being put back: delete the serving if it is not to run any more"
	case m.in.Kind == KindDelete:
		return "", "a deletion cannot be taken back: create the serving again when it is gone"
	case m.stage == StageBack:
		return "", "every party is on its way back already: wait until that is over"
	case m.stage == StagePrepare && !m.inherited:
		m.stage, m.paused = StageOver, nil
		m.reason, m.message = ReasonUpdateRolledBack, "stopped "+byWhom(c)+"; nothing was changed in any party"
		return "it ends: nothing was changed in any party", ""
	}
	m.goBack("stopped " + byWhom(c))
	return "every party goes back to the version of before", ""
}

// byWhom says who sent a command, and why: "by ann: the numbers are bad".
func byWhom(c Command) string {
	text := "by " + actorOf(c)
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

func actorOf(c Command) string {
	if c.Actor == "" {
		return "somebody"
	}
	return c.Actor
}

// note keeps a decision.
func (m *Machine) note(c Command, outcome plan.Outcome, message string, now time.Time) {
	d := kuscia.Decision{At: stamped(now), Actor: c.Actor, Via: c.Via, Verb: string(c.Verb), Party: c.Party, Reason: c.Reason, Key: c.Key,
		Outcome: string(outcome), Message: message}
	if d.Actor == "" {
		d.Actor = "unknown"
	}
	if d.Via == "" {
		d.Via = "temporal"
	}
	m.history = last(append(m.history, d), maxHistory)
}

// History is what people have sent, oldest first.
func (m *Machine) History() []kuscia.Decision { return m.history }

// newest is as much of the history as the status shows.
func (m *Machine) newest() []kuscia.Decision { return last(m.history, maxShownHistory) }

func last(history []kuscia.Decision, most int) []kuscia.Decision {
	if over := len(history) - most; over > 0 {
		return slices.Clone(history[over:])
	}
	return history
}
