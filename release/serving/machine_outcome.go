package serving

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/phrase"
)

// Outcome is the state of an operation: the digest of the version that it applies, and its failures.
type Outcome struct {
	Version string
	// Served is true when all parties run Version, and it is the requested one.
	Served          bool
	Reason, Message string
	// Failures are the failure messages of the parties that failed, by their index.
	Failures map[int]string
	// Complete is when a party was last seen complete, by its index.
	Complete map[int]time.Time
	// WaitingFor is the decision of a user that the operation waits for, nil if there is none; History holds the newest
	// commands of users.
	WaitingFor *kuscia.WaitingFor
	History    []kuscia.AuditEntry
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64
}

// Outcome returns the current state of the operation.
func (m *Machine) Outcome() Outcome {
	o := Outcome{Version: m.in.TargetDigest, Reason: m.s.Reason, Message: m.s.Message, WaitingFor: m.WaitingFor(),
		Failures: map[int]string{}, Complete: map[int]time.Time{}}
	o.History, o.RefusalsDropped = m.shownHistory()
	if m.s.Reason == ReasonUpdateRolledBack {
		o.Version = m.in.PreviousDigest
	}
	switch {
	case o.WaitingFor != nil:
		o.Reason, o.Message = waitReasons[o.WaitingFor.Kind], o.WaitingFor.Message
	case m.s.RolledBack && m.s.Stage == StageDone:
		o.Message += "; every party runs the previous version"
	case m.s.RolledBack:
		o.Message += "; every party goes back to the previous version"
	case m.s.Stage != StageDone:
		o.Reason, o.Message = m.unreachableParty()
	}
	for i, p := range m.s.Parties {
		sentence := p.Failed
		// a party that runs the previous version again has not failed
		if m.in.Kind == KindUpdate || m.in.Kind == KindDelete {
			sentence = p.RetryReason
		}
		if sentence != "" {
			o.Failures[i] = sentence
		}
		if !p.Completed.IsZero() {
			o.Complete[i] = p.Completed
		}
	}
	o.Served = m.s.Stage == StageDone && m.s.Reason == "" && !m.Superseded() &&
		(m.in.Kind == KindCreate || m.in.Kind == KindUpdate)
	return o
}

// unreachableParty returns the first party whose worker cannot reach its cluster. An unreachable worker is detected
// outside of the operation.
func (m *Machine) unreachableParty() (reason, message string) {
	for i, p := range m.s.Parties {
		if p.ClusterUnreachable != "" {
			return ReasonPartyUnreachable, fmt.Sprintf("party %s: %s; retrying", m.in.Parties[i].Name(),
				p.ClusterUnreachable)
		}
	}
	return "", ""
}

// Changed reports whether the operation has changed since an outcome, ignoring the times at which parties were
// complete.
func (m *Machine) Changed(former Outcome) bool {
	now := m.Outcome()
	return now.Version != former.Version || now.Reason != former.Reason || now.Message != former.Message ||
		!maps.Equal(now.Failures, former.Failures) || !slices.Equal(now.History, former.History) ||
		now.RefusalsDropped != former.RefusalsDropped
}

// Message describes in one sentence what the operation does now, and why it does not proceed.
func (m *Machine) Message() string {
	if m.s.Superseded != "" {
		return "superseded by " + m.s.Superseded
	}
	var waits []string
	for i := range m.s.Parties {
		if text := m.partyMessage(i); text != "" {
			waits = append(waits, m.in.Parties[i].Name()+" "+text)
		}
	}
	text := stageText[m.s.Stage]
	if m.s.Stage == StagePrepare && m.s.CreateUncertain {
		text = "every party is checked again: the worker stopped while it was updating them"
	}
	if m.s.Reason != "" || m.waitsForPerson() {
		text = m.Outcome().Message
	}
	if m.in.Cause != "" {
		text += "; it restores what other clients changed: " + m.in.Cause
	}
	if len(waits) > 0 {
		text += " (" + strings.Join(waits, "; ") + ")"
	}
	return text
}

// partyMessage describes what one party does now, and what prevents it; "" if it has nothing to do.
func (m *Machine) partyMessage(party int) string {
	p, step := m.s.Parties[party], m.NextStep(party)
	until, ends := m.waitsUntil(party)
	switch {
	case p.WorkerUnreachable != "" && ends:
		return fmt.Sprintf("is unreachable, waiting until %s (%s)", phrase.Time(until), p.WorkerUnreachable)
	case step == StepNone:
		return ""
	case p.unreachableReason() != "":
		return fmt.Sprintf("is unreachable, waiting (%s)", p.unreachableReason())
	case m.KnownFailure(party) != "":
		return fmt.Sprintf("%s; the last attempts failed, retrying every %s: %s", stepText[step],
			PersistentRetryInterval, p.RetryReason)
	case p.RetryReason != "":
		return fmt.Sprintf("%s; the last attempt failed, retrying at %s: %s", stepText[step], phrase.Time(p.RetryAt),
			p.RetryReason)
	}
	return stepText[step]
}

var stageText = map[Stage]string{
	StagePrepare:  "checking whether every party can run the version; nothing is changed yet",
	StageCommit:   "applying the requested version to the parties",
	StageRollback: "rolling the parties back to the previous version",
	StageRemove:   "deleting the parties' objects",
	StageDone:     "it is done",
}

var stepText = map[Step]string{
	StepPrepare: "is being checked", StepApply: "is being updated", StepCreate: "is being checked and updated",
	StepRollback: "is being rolled back",
	StepRemove:   "is deleting its objects",
}

// PartyProgress is the state of a party in an operation.
type PartyProgress struct {
	// Activity is what the party does now, or has done: "is being updated", "runs the version".
	Activity string
	// Problem is what prevents that, "" if nothing does.
	Problem string
	// WorkerUnreachable: the party's worker does not report. ClusterUnreachable: the worker cannot reach the party's
	// cluster.
	WorkerUnreachable, ClusterUnreachable bool
	// Since is when the operation started to wait for an unreachable party, Until when it stops waiting; the zero time
	// means that it waits without a limit.
	Since, Until time.Time
}

// Done reports whether nothing is left to do in the party.
func (s PartyProgress) Done() bool {
	return s.Activity == textRuns || s.Activity == textBack || s.Activity == textRemoved
}

// The states of a party that has nothing to do.
const (
	textRuns    = "runs the version"
	textBack    = "runs the previous version again"
	textRemoved = "has deleted its objects"
	textCan     = "can run the version"
	textCannot  = "cannot run the version"
	textTurn    = "waits for its turn"
)

// PartyProgress returns the state of the party at that index.
func (m *Machine) PartyProgress(party int) PartyProgress {
	p, step := m.s.Parties[party], m.NextStep(party)
	s := PartyProgress{Activity: stepText[step], Problem: p.Failed}
	if step == StepNone {
		s.Activity = p.idleText()
	}
	until, ends := m.waitsUntil(party)
	switch {
	case step == StepNone && !ends:
		return s
	case p.WorkerUnreachable != "":
		s.WorkerUnreachable, s.Problem, s.Since, s.Until = true, p.WorkerUnreachable,
			latest(m.s.Began, p.WorkerUnreachableSince), until
	case p.ClusterUnreachable != "":
		s.ClusterUnreachable, s.Problem, s.Since = true, p.ClusterUnreachable, p.ClusterUnreachableSince
	case p.RetryReason != "":
		s.Problem = p.RetryReason
	}
	return s
}

// idleText describes the state of a party that has nothing to do now.
func (p PartyState) idleText() string {
	switch {
	case p.Removed:
		return textRemoved
	case p.RolledBack:
		return textBack
	case p.Failed != "":
		return textCannot
	case p.Applied:
		return textRuns
	case p.Prepared:
		return textCan
	}
	return textTurn
}
