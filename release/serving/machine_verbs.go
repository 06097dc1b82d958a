package serving

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/workloadops"
)

// Verb is what a person can ask of an operation on a serving.
type Verb = audit.Verb

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
	Verb   Verb   `json:"verb"`
	Actor  string `json:"actor,omitempty"`
	Via    string `json:"via,omitempty"`
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
	// Party is who is approved, as PartyName calls it, Gate the token of that as it was seen; "" is whoever waits now.
	Party string `json:"party,omitempty"`
	Gate  string `json:"gate,omitempty"`
}

func (c Command) entry(now time.Time) audit.Entry {
	return audit.Entry{At: stamped(now).Time, Actor: c.Actor, Via: c.Via, Verb: c.Verb, Party: c.Party, Reason: c.Reason, Key: c.Key}
}

const maxShownHistory = 20

// Command carries out a verb and notes it in the history, refused ones too. A refusal changes nothing and says what can be done instead.
func (m *Machine) Command(c Command, now time.Time) (audit.Outcome, string) {
	return m.s.Log.Take(c.entry(now), c, func(e *audit.Entry) (done, refusal string) {
		if i, waits := m.waitingParty(); waits && c.Party == "" && c.Verb == VerbApprove {
			c.Party = m.in.Parties[i].Name()
			e.Party = c.Party
		}
		if done, refusal = m.carryOut(c, now); refusal == "" {
			m.advance(now)
		}
		return done, refusal
	})
}

// Refuse notes a command that could not be read.
func (m *Machine) Refuse(c Command, why string, now time.Time) {
	e := c.entry(now)
	e.Outcome, e.Message = audit.Refused, why
	m.s.Log.Note(e)
}

// Audit is the log of what people have sent.
func (m *Machine) Audit() *audit.Log { return &m.s.Log }

// carryOut does what the state allows: either done or refusal is set.
func (m *Machine) carryOut(c Command, now time.Time) (done, refusal string) {
	if m.Over() {
		return "", "the operation is over: " + m.Message()
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
	i, waits := m.waitingParty()
	switch {
	case !waits && (c.Gate != "" || c.Party != ""):
		return "", "what is approved is not waited for any more: " + m.Message()
	case !waits:
		return "", "no approval is waited for now: " + m.Message()
	case c.Party != m.in.Parties[i].Name():
		return "", fmt.Sprintf("meant for party %s, but it is %s that waits: look at it again", c.Party, m.in.Parties[i].Name())
	case c.Gate != "" && c.Gate != m.gate(i):
		return "", fmt.Sprintf("the gate is of something else: party %s waits now: look at it again", m.in.Parties[i].Name())
	case m.s.Paused != nil:
		return "", "it is paused: resume it, then approve"
	}
	m.s.Parties[i].Approved = true
	m.restartClocks(now)
	return fmt.Sprintf("party %s is approved: it begins", m.in.Parties[i].Name()), ""
}

func (m *Machine) pause(c Command, now time.Time) (done, refusal string) {
	switch {
	case m.in.Kind == KindDelete:
		return "", "a deletion cannot be held: what the parties run is being removed"
	case m.in.Kind == KindRecreate:
		return "", "what somebody has deleted is being put back: there is nothing to hold"
	case m.s.Stage == StageBack:
		return "", "it is on its way back: that cannot be held, wait until it is over"
	case m.s.Paused != nil:
		return "", fmt.Sprintf("it is paused already, %s: resume goes on", m.s.Paused.By)
	case m.s.AtOnce:
		return "", "the parties are asked and brought to it in one go: there is nothing to hold in between"
	case m.s.Stage == StageCommit && m.all(func(p PartyState) bool { return p.Begun }):
		return "", "every party has begun with it: there is nothing left to hold" + m.insteadOfWaiting()
	}
	m.s.Paused = &Hold{By: byWhom(c), Since: now}
	return "no party begins until it is resumed; what has begun goes on", ""
}

func (m *Machine) resume(now time.Time) (done, refusal string) {
	if m.s.Paused == nil {
		return "", "it is not paused: " + m.Message()
	}
	m.s.Paused = nil
	m.restartClocks(now)
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
	case m.s.Stage == StageBack:
		return "", "every party is on its way back already: wait until that is over"
	case m.s.Stage == StagePrepare && !m.s.Inherited:
		m.s.Stage, m.s.Paused = StageOver, nil
		m.s.Reason, m.s.Message = ReasonUpdateRolledBack, "stopped "+byWhom(c)+"; nothing was changed in any party"
		return "it ends: nothing was changed in any party", ""
	}
	m.goBack("stopped " + byWhom(c))
	return "every party goes back to the version of before", ""
}

// byWhom says who sent a command, and why: "by ann: the numbers are bad".
func byWhom(c Command) string {
	text := "by " + cmp.Or(c.Actor, "somebody")
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// History is what people have sent, oldest first, as a KusciaDeployment shows it.
func (m *Machine) History() []kuscia.AuditEntry {
	var shown []kuscia.AuditEntry
	for _, e := range m.s.Log.Entries {
		shown = append(shown, kuscia.AuditEntry{At: metav1.NewTime(e.At), Actor: e.Actor, Via: e.Via, Verb: string(e.Verb), Party: e.Party,
			Reason: e.Reason, Key: e.Key, Outcome: string(e.Outcome), Message: e.Message})
	}
	return shown
}

// last are the newest entries of a history, this many at most.
func last(history []kuscia.AuditEntry, most int) []kuscia.AuditEntry {
	return slices.Clone(history[max(len(history)-most, 0):])
}

// The kinds of waits for a person, as rollouts call them.
const (
	// WaitApproval: somebody says whether the next party begins.
	WaitApproval = "approval"
	// WaitResume: somebody has paused the operation.
	WaitResume = "resume"
)

// The reasons of a status while a person is waited for.
const (
	ReasonWaitingForApproval = "WaitingForApproval"
	ReasonPaused             = "Paused"
)

var waitReasons = map[string]string{WaitApproval: ReasonWaitingForApproval, WaitResume: ReasonPaused}

// needsApproval says whether a person is asked before a party begins: before each but the first.
func (m *Machine) needsApproval(party int) bool {
	p := m.in.Policy
	return m.in.Kind == KindUpdate && p.Order == OrderSequential && p.Approval == ApprovalBetweenParties && m.sequence()[0] != party
}

// waitingParty is the place of the party for which an approval is waited for; false when for none.
func (m *Machine) waitingParty() (party int, waits bool) {
	if m.s.Stage != StageCommit {
		return 0, false
	}
	for i, p := range m.s.Parties {
		if !p.Asked.IsZero() && !p.Approved {
			return i, true
		}
	}
	return 0, false
}

// waitsForPerson says that the operation waits for a person.
func (m *Machine) waitsForPerson() bool {
	_, waits := m.waitingParty()
	return waits || m.s.Paused != nil && !m.Over()
}

// WaitingFor is the person whom the operation waits for, and what they are to send; nil when it waits for nobody.
func (m *Machine) WaitingFor() *kuscia.WaitingFor {
	if !m.waitsForPerson() {
		return nil
	}
	if m.s.Paused != nil {
		return &kuscia.WaitingFor{Kind: WaitResume, Since: stamped(m.s.Paused.Since), Message: fmt.Sprintf(
			"it is paused since %s, %s: no party begins until `slipway serving resume %s`, or the signal `resume`%s",
			timeText(m.s.Paused.Since), m.s.Paused.By, m.in.ID, m.insteadOfWaiting())}
	}
	i, _ := m.waitingParty()
	name, since, applied := m.in.Parties[i].Name(), m.s.Parties[i].Asked, 0
	for _, p := range m.s.Parties {
		if p.Applied {
			applied++
		}
	}
	return &kuscia.WaitingFor{Kind: WaitApproval, Since: stamped(since), Party: name, Gate: m.gate(i), Message: fmt.Sprintf(
		"party %s waits for an approval since %s, and %d of %d parties run the new version: "+
			"`slipway serving approve %s`, or the signal `approve`, has it begin%s",
		name, timeText(since), applied, len(m.s.Parties), m.in.ID, m.insteadOfWaiting())}
}

// insteadOfWaiting is what else a person can send.
func (m *Machine) insteadOfWaiting() string {
	if m.in.Kind == KindUpdate {
		return "; `stop` has everybody go back"
	}
	return ""
}

// gate stands for one party's turn in one operation.
func (m *Machine) gate(party int) string {
	return workloadops.Gate(m.run, m.in.UID, strconv.FormatInt(m.in.Generation, 10), m.in.TargetDigest, strconv.Itoa(party))
}

// restartClocks notes that a person has let the operation go on: for who has not begun, time counts from now on.
func (m *Machine) restartClocks(now time.Time) {
	for i := range m.s.Parties {
		if !m.s.Parties[i].Begun {
			m.s.Parties[i].Freed = now
		}
	}
}

func stamped(at time.Time) metav1.Time { return metav1.NewTime(at.UTC().Truncate(time.Second)) }

func timeText(at time.Time) string { return at.UTC().Format(time.RFC3339) }
