package serving

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Outcome is how the operation stands: the digest that the parties are brought to, and what went wrong.
type Outcome struct {
	Version string
	// Served says that all parties run Version, which is the one that was asked.
	Served          bool
	Reason, Message string
	// Failures are the sentences of the parties that failed, by their place.
	Failures map[int]string
	// Complete is when everything of a party was seen in its place, by its place.
	Complete map[int]time.Time
	// WaitingFor is the person whom it waits for, nil when for nobody; History the newest of what people have sent.
	WaitingFor *kuscia.WaitingFor
	History    []kuscia.AuditEntry
}

// Outcome is how the operation stands.
func (m *Machine) Outcome() Outcome {
	o := Outcome{Version: m.in.TargetDigest, Reason: m.s.Reason, Message: m.s.Message, WaitingFor: m.WaitingFor(),
		History: last(m.History(), maxShownHistory), Failures: map[int]string{}, Complete: map[int]time.Time{}}
	if m.s.Reason == ReasonUpdateRolledBack {
		o.Version = m.in.PreviousDigest
	}
	switch {
	case o.WaitingFor != nil:
		o.Reason, o.Message = waitReasons[o.WaitingFor.Kind], o.WaitingFor.Message
	case m.s.WentBack && m.s.Stage == StageOver:
		o.Message += "; every party is on the version of before"
	case m.s.WentBack:
		o.Message += "; every party goes back to the version of before"
	case m.s.Stage != StageOver:
		o.Reason, o.Message = m.unreachableParty()
	}
	for i, p := range m.s.Parties {
		sentence := p.Failed
		if m.in.Kind == KindUpdate || m.in.Kind == KindDelete { // who is back on the former version has not failed
			sentence = p.Owing
		}
		if sentence != "" {
			o.Failures[i] = sentence
		}
		if !p.Completed.IsZero() {
			o.Complete[i] = p.Completed
		}
	}
	o.Served = m.s.Stage == StageOver && m.s.Reason == "" && !m.Superseded() && (m.in.Kind == KindCreate || m.in.Kind == KindUpdate)
	return o
}

// unreachableParty names the first party whose cluster its worker cannot reach. Whose worker is away is seen without the operation.
func (m *Machine) unreachableParty() (reason, message string) {
	for i, p := range m.s.Parties {
		if p.ClusterUnreachable != "" {
			return ReasonPartyUnreachable, fmt.Sprintf("party %s: %s; it is tried again", m.in.Parties[i].Name(), p.ClusterUnreachable)
		}
	}
	return "", ""
}

// Changed says that the operation has changed since an outcome, but for the times at which parties were complete.
func (m *Machine) Changed(former Outcome) bool {
	now := m.Outcome()
	return now.Version != former.Version || now.Reason != former.Reason || now.Message != former.Message ||
		!maps.Equal(now.Failures, former.Failures) || !slices.Equal(now.History, former.History)
}

// Message is one sentence on what the operation does now, and why it does not go on.
func (m *Machine) Message() string {
	if m.s.Superseded != "" {
		return "it gave way to " + m.s.Superseded
	}
	var waits []string
	for i := range m.s.Parties {
		if text := m.partyMessage(i); text != "" {
			waits = append(waits, m.in.Parties[i].Name()+" "+text)
		}
	}
	text := stageText[m.s.Stage]
	if m.s.Stage == StagePrepare && m.s.Unsure {
		text = "the parties are asked once more whether they can run it: the worker died when it brought them to it"
	}
	if m.s.Reason != "" || m.waitsForPerson() {
		text = m.Outcome().Message
	}
	if m.in.Cause != "" {
		text += "; it puts back what others have changed: " + m.in.Cause
	}
	if len(waits) > 0 {
		text += " (" + strings.Join(waits, "; ") + ")"
	}
	return text
}

// partyMessage is what one party does now, and what keeps it from that; "" when it has nothing to do.
func (m *Machine) partyMessage(party int) string {
	p, step := m.s.Parties[party], m.Wanted(party)
	until, ends := m.waitsUntil(party)
	switch {
	case p.WorkerUnreachable != "" && ends:
		return fmt.Sprintf("is waited for until %s (%s)", timeText(until), p.WorkerUnreachable)
	case step == StepNone:
		return ""
	case p.absent() != "":
		return fmt.Sprintf("is waited for (%s)", p.absent())
	case m.KnownFailure(party) != "":
		return fmt.Sprintf("%s; the last tries failed, and it is tried again every %s: %s", stepText[step], OwedRetryInterval, p.Owing)
	case p.Owing != "":
		return fmt.Sprintf("%s; the last try failed, and it is tried again at %s: %s", stepText[step], timeText(p.Again), p.Owing)
	}
	return stepText[step]
}

var stageText = map[Stage]string{
	StagePrepare: "the parties are asked whether they can run it; nothing is changed yet",
	StageCommit:  "the parties are brought to the version that was asked",
	StageBack:    "the parties go back to the version of before",
	StageRemove:  "what the parties run is removed",
	StageOver:    "it is done",
}

var stepText = map[Step]string{
	StepPrepare: "is asked", StepApply: "is brought to it", StepCreate: "is asked, and brought to it", StepBack: "goes back", StepRemove: "removes it",
}

// Standing is how a party stands in an operation.
type Standing struct {
	// Does is what the party does now, or has done: "is brought to it", "runs it".
	Does string
	// Problem is why it does not come to that, "" when nothing is in the way.
	Problem string
	// WorkerUnreachable: its worker is silent. ClusterUnreachable: its worker cannot reach its cluster.
	WorkerUnreachable, ClusterUnreachable bool
	// Since is since when this operation waits for an unreachable party, Until how long it does so; the zero time: as long as it
	// takes.
	Since, Until time.Time
}

// Done says that nothing is left to do in the party.
func (s Standing) Done() bool {
	return s.Does == textRuns || s.Does == textBack || s.Does == textRemoved
}

// What a party that has nothing to do stands at.
const (
	textRuns    = "runs it"
	textBack    = "is back on the version of before"
	textRemoved = "has removed it"
	textCan     = "can run it"
	textCannot  = "cannot run it"
	textTurn    = "waits for its turn"
)

// Standing is how the party at that place stands.
func (m *Machine) Standing(party int) Standing {
	p, step := m.s.Parties[party], m.Wanted(party)
	s := Standing{Does: stepText[step], Problem: p.Failed}
	if step == StepNone {
		s.Does = p.rests()
	}
	until, ends := m.waitsUntil(party)
	switch {
	case step == StepNone && !ends:
		return s
	case p.WorkerUnreachable != "":
		s.WorkerUnreachable, s.Problem, s.Since, s.Until = true, p.WorkerUnreachable, latest(m.s.Began, p.WorkerUnreachableSince), until
	case p.ClusterUnreachable != "":
		s.ClusterUnreachable, s.Problem, s.Since = true, p.ClusterUnreachable, p.ClusterUnreachableSince
	case p.Owing != "":
		s.Problem = p.Owing
	}
	return s
}

// rests is what a party stands at that has nothing to do now.
func (p PartyState) rests() string {
	switch {
	case p.Removed:
		return textRemoved
	case p.Back:
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
