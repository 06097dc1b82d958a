package serving

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/audit"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
)

// Verb is a command of a user to an operation on a serving.
type Verb = audit.Verb

const (
	// VerbApprove starts the party that waits for an approval.
	VerbApprove Verb = "approve"
	// VerbPause pauses the operation: no further party starts.
	VerbPause Verb = "pause"
	// VerbResume continues after a pause.
	VerbResume Verb = "resume"
	// VerbStop ends an update: every party is rolled back to the previous version.
	VerbStop Verb = "stop"
)

// Verbs are all verbs, in the order in which they are shown to users.
var Verbs = []Verb{VerbApprove, VerbPause, VerbResume, VerbStop}

// Command is a verb with its parameters. All fields except Verb are optional.
type Command struct {
	Verb   Verb   `json:"verb"`
	Actor  string `json:"actor,omitempty"`
	Via    string `json:"via,omitempty"`
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
	// Party is the approved party, in the format of PartyName, Gate its approval gate as last shown; "" means the party
	// that waits now.
	Party string `json:"party,omitempty"`
	Gate  string `json:"gate,omitempty"`
}

func (c Command) entry(now time.Time) audit.Entry {
	return audit.Entry{At: wholeSeconds(now).Time, Actor: c.Actor, Via: c.Via, Verb: c.Verb, Party: c.Party,
		Reason: c.Reason, Key: c.Key}
}

// The limits of the history in a status.
const (
	maxShownAccepted = 20
	maxShownRefused  = 10
)

// Command executes a verb and records it in the history, including refused ones. A refusal changes nothing; its text
// says what to do instead.
func (m *Machine) Command(c Command, now time.Time) (audit.Outcome, string) {
	return m.s.Log.Apply(c.entry(now), c, func(e *audit.Entry) (done, refusal string) {
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

// Refuse records a command that could not be decoded.
func (m *Machine) Refuse(c Command, why string, now time.Time) {
	e := c.entry(now)
	e.Outcome, e.Message = audit.Refused, why
	m.s.Log.Append(e)
}

// Audit returns the log of commands.
func (m *Machine) Audit() *audit.Log { return &m.s.Log }

// carryOut executes a command if the state allows it: either done or refusal is set.
func (m *Machine) carryOut(c Command, now time.Time) (done, refusal string) {
	if m.Finished() {
		return "", "the operation has ended: " + m.Message()
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
		return "", "stale approval: no party waits for it any more: " + m.Message()
	case !waits:
		return "", "no party is waiting for an approval: " + m.Message()
	case c.Party != m.in.Parties[i].Name():
		return "", fmt.Sprintf("the approval is for party %s, but party %s is waiting. Review and retry", c.Party,
			m.in.Parties[i].Name())
	case c.Gate != "" && c.Gate != m.gate(i):
		return "", fmt.Sprintf("stale approval: party %s is waiting now. Review and retry", m.in.Parties[i].Name())
	case m.s.Paused != nil:
		return "", "the operation is paused: resume it, then approve"
	}
	m.s.Parties[i].Approved = true
	m.restartClocks(now)
	return fmt.Sprintf("party %s is approved and starts", m.in.Parties[i].Name()), ""
}

func (m *Machine) pause(c Command, now time.Time) (done, refusal string) {
	switch {
	case m.in.Kind == KindDelete:
		return "", "a deletion cannot be paused: the parties' objects are being deleted"
	case m.in.Kind == KindRecreate:
		return "", "a recreation cannot be paused: the parties' objects are being restored"
	case m.s.Stage == StageRollback:
		return "", "a rollback cannot be paused: wait until it ends"
	case m.s.Paused != nil:
		return "", fmt.Sprintf("already paused %s: send resume to continue", m.s.Paused.By)
	case m.s.SingleStep:
		return "", "the parties are checked and updated in one step, which cannot be paused"
	case m.s.Stage == StageCommit && m.all(func(p PartyState) bool { return p.Begun }):
		return "", "every party has started: there is nothing left to pause" + m.alternativeText()
	}
	m.s.Paused = &Pause{By: actorText(c), Since: now}
	return "no party starts until it is resumed; parties that have started continue", ""
}

func (m *Machine) resume(now time.Time) (done, refusal string) {
	if m.s.Paused == nil {
		return "", "it is not paused: " + m.Message()
	}
	m.s.Paused = nil
	m.restartClocks(now)
	return "resumed", ""
}

// stop rolls an update back in all parties, since an update is all or nothing. No other operation has a previous
// version.
func (m *Machine) stop(c Command) (done, refusal string) {
	switch {
	case m.in.Kind == KindCreate:
		return "", "a creation has no previous version to roll back to: delete the serving, or update it"
	case m.in.Kind == KindRecreate:
		return "", "a recreation cannot be stopped: delete the serving if it should not run any more"
	case m.in.Kind == KindDelete:
		return "", "a deletion cannot be undone: create the serving again when it has been deleted"
	case m.s.Stage == StageRollback:
		return "", "every party is being rolled back already: wait until that ends"
	case m.s.Stage == StagePrepare && !m.s.Inherited:
		m.s.Stage, m.s.Paused = StageDone, nil
		m.s.Reason, m.s.Message = ReasonUpdateRolledBack, "stopped "+actorText(c)+"; nothing was changed in any party"
		return "it ends: nothing was changed in any party", ""
	}
	m.rollBack("stopped " + actorText(c))
	return "every party goes back to the previous version", ""
}

// actorText returns who sent a command, and why: "by ann: the numbers are bad".
func actorText(c Command) string {
	text := "by " + cmp.Or(c.Actor, "an unnamed user")
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// History returns the commands of users, oldest first, as a KusciaDeployment shows them.
func (m *Machine) History() []kuscia.AuditEntry { return auditEntries(m.s.Log.Entries) }

// shownHistory returns the history as a status shows it, and how many refused commands it doesn't have.
func (m *Machine) shownHistory() (shown []kuscia.AuditEntry, refusalsDropped int64) {
	kept, dropped := audit.Keep(m.s.Log.Entries, maxShownAccepted, maxShownRefused)
	return auditEntries(kept), m.s.Log.RefusalsDropped + dropped
}

func auditEntries(entries []audit.Entry) []kuscia.AuditEntry {
	var shown []kuscia.AuditEntry
	for _, e := range entries {
		shown = append(shown, kuscia.AuditEntry{At: metav1.NewTime(e.At), Actor: e.Actor, Via: e.Via,
			Verb: string(e.Verb), Party: e.Party,
			Reason: e.Reason, Key: e.Key, Outcome: string(e.Outcome), Message: e.Message})
	}
	return shown
}

// The kinds of waits for a user, with the same names as for rollouts.
const (
	// WaitApproval: the next party starts after an approval.
	WaitApproval = "approval"
	// WaitResume: the operation is paused until it is resumed.
	WaitResume = "resume"
)

// The reasons of a status while the operation waits for a user.
const (
	ReasonWaitingForApproval = "WaitingForApproval"
	ReasonPaused             = "Paused"
)

var waitReasons = map[string]string{WaitApproval: ReasonWaitingForApproval, WaitResume: ReasonPaused}

// needsApproval reports whether a party needs an approval before it starts: each one except the first.
func (m *Machine) needsApproval(party int) bool {
	p := m.in.Policy
	return m.in.Kind == KindUpdate && p.Order == OrderSequential && p.Approval == ApprovalBetweenParties &&
		m.sequence()[0] != party
}

// waitingParty returns the index of the party that waits for an approval; false if there is none.
func (m *Machine) waitingParty() (party int, waits bool) {
	if m.s.Stage != StageCommit {
		return 0, false
	}
	for i, p := range m.s.Parties {
		if !p.ApprovalSince.IsZero() && !p.Approved {
			return i, true
		}
	}
	return 0, false
}

// waitsForPerson reports whether the operation waits for a user.
func (m *Machine) waitsForPerson() bool {
	_, waits := m.waitingParty()
	return waits || m.s.Paused != nil && !m.Finished()
}

// WaitingFor returns the decision of a user that the operation waits for, and the command to send; nil if there is
// none.
func (m *Machine) WaitingFor() *kuscia.WaitingFor {
	if !m.waitsForPerson() {
		return nil
	}
	if m.s.Paused != nil {
		return &kuscia.WaitingFor{Kind: WaitResume, Since: wholeSeconds(m.s.Paused.Since), Message: fmt.Sprintf(
			"paused since %s %s: no party starts until `slipway serving resume %s` or the signal `resume`%s",
			phrase.Time(m.s.Paused.Since), m.s.Paused.By, m.in.ID, m.alternativeText())}
	}
	i, _ := m.waitingParty()
	name, since, applied := m.in.Parties[i].Name(), m.s.Parties[i].ApprovalSince, 0
	for _, p := range m.s.Parties {
		if p.Applied {
			applied++
		}
	}
	return &kuscia.WaitingFor{Kind: WaitApproval, Since: wholeSeconds(since), Party: name, Gate: m.gate(i),
		Message: fmt.Sprintf("party %s has been waiting for an approval since %s; %d of %d parties run the new "+
			"version: `slipway serving approve %s` or the signal `approve` starts it%s", name, phrase.Time(since),
			applied, len(m.s.Parties), m.in.ID, m.alternativeText())}
}

// alternativeText returns the other command that a user can send.
func (m *Machine) alternativeText() string {
	if m.in.Kind == KindUpdate {
		return "; `stop` rolls every party back"
	}
	return ""
}

// gate returns the approval gate of one party in one operation.
func (m *Machine) gate(party int) string {
	return audit.Gate(m.run, m.in.UID, strconv.FormatInt(m.in.Generation, 10), m.in.TargetDigest, strconv.Itoa(party))
}

// restartClocks records that a user has let the operation continue: the deadlines of parties that have not started
// count from now.
func (m *Machine) restartClocks(now time.Time) {
	for i := range m.s.Parties {
		if !m.s.Parties[i].Begun {
			m.s.Parties[i].ResumedAt = now
		}
	}
}

func wholeSeconds(at time.Time) metav1.Time { return metav1.NewTime(at.UTC().Truncate(time.Second)) }
