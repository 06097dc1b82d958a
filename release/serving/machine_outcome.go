package serving

import (
	"fmt"
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
	o := Outcome{Version: m.in.TargetDigest, Reason: m.reason, Message: m.message, WaitingFor: m.WaitingFor(), History: m.newest()}
	if m.reason == ReasonUpdateRolledBack {
		o.Version = m.in.PreviousDigest
	}
	switch {
	case o.WaitingFor != nil:
		o.Reason, o.Message = waitReasons[o.WaitingFor.Kind], o.WaitingFor.Message
	case m.wentBack && m.stage == StageOver:
		o.Message += "; every party is on the version of before"
	case m.wentBack:
		o.Message += "; every party goes back to the version of before"
	case m.stage != StageOver:
		o.Reason, o.Message = m.trouble()
	}
	for i, p := range m.parties {
		sentence := p.failed
		if m.in.Kind == KindUpdate || m.in.Kind == KindDelete { // who is back on the former version has not failed
			sentence = p.owing
		}
		if sentence != "" {
			o.Failures = with(o.Failures, i, sentence)
		}
		if !p.completed.IsZero() {
			o.Complete = with(o.Complete, i, p.completed)
		}
	}
	o.Served = m.stage == StageOver && m.reason == "" && !m.Superseded() && (m.in.Kind == KindCreate || m.in.Kind == KindUpdate)
	return o
}

// trouble names the first party whose cluster its worker cannot reach. Whose worker is away is seen without the operation.
func (m *Machine) trouble() (reason, message string) {
	for i, p := range m.parties {
		if p.lost != "" {
			return ReasonPartyUnreachable, fmt.Sprintf("party %s: %s; it is tried again", m.in.Parties[i].Name(), p.lost)
		}
	}
	return "", ""
}

func with[T any](m map[int]T, key int, value T) map[int]T {
	if m == nil {
		m = map[int]T{}
	}
	m[key] = value
	return m
}

// News says that the operation stands otherwise than when it was told last. When parties were complete is told with the rest.
func (m *Machine) News(told Outcome) bool {
	now := m.Outcome()
	for i := range m.parties {
		if now.Failures[i] != told.Failures[i] {
			return true
		}
	}
	return now.Version != told.Version || now.Reason != told.Reason || now.Message != told.Message || !slices.Equal(now.History, told.History)
}

// Says is one sentence on what the operation does now, and why it does not go on.
func (m *Machine) Says() string {
	if m.superseded != "" {
		return "it gave way to " + m.superseded
	}
	var waits []string
	for i := range m.parties {
		if text := m.saysOf(i); text != "" {
			waits = append(waits, m.in.Parties[i].Name()+" "+text)
		}
	}
	text := stageText[m.stage]
	if m.reason != "" || m.held() {
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

// saysOf is what one party does now, and what keeps it from that; "" when it has nothing to do.
func (m *Machine) saysOf(party int) string {
	p, step := m.parties[party], m.Wanted(party)
	until, ends := m.waitsUntil(party)
	switch {
	case p.away != "" && ends:
		return fmt.Sprintf("is waited for until %s (%s)", until.UTC().Format(time.RFC3339), p.away)
	case step == StepNone:
		return ""
	case p.absent() != "":
		return fmt.Sprintf("is waited for (%s)", p.absent())
	case m.Told(party) != "":
		return fmt.Sprintf("%s; the last tries failed, and it is tried again every %s: %s", stepText[step], OwedAgain, p.owing)
	case p.owing != "":
		return fmt.Sprintf("%s; the last try failed, and it is tried again at %s: %s", stepText[step], p.again.UTC().Format(time.RFC3339), p.owing)
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
	StepPrepare: "is asked", StepApply: "is brought to it", StepBack: "goes back", StepRemove: "removes it",
}

// Standing is how a party stands in an operation.
type Standing struct {
	// Does is what the party does now, or has done: "is brought to it", "runs it".
	Does string
	// Trouble is why it does not come to that; "" when nothing is in the way.
	Trouble string
	// Away: its worker is silent. Lost: its worker cannot reach its cluster.
	Away, Lost bool
	// Since is since when this operation waits for a party that is away or lost, Until how long it does so; the zero time: as long as it takes.
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
	p, step := m.parties[party], m.Wanted(party)
	s := Standing{Does: stepText[step], Trouble: p.failed}
	if step == StepNone {
		s.Does = p.rests()
	}
	until, ends := m.waitsUntil(party)
	switch {
	case step == StepNone && !ends:
		return s
	case p.away != "":
		s.Away, s.Trouble, s.Since, s.Until = true, p.away, latest(m.began, p.since), until
	case p.lost != "":
		s.Lost, s.Trouble, s.Since = true, p.lost, p.lostSince
	case p.owing != "":
		s.Trouble = p.owing
	}
	return s
}

// rests is what a party stands at that has nothing to do now.
func (p partyState) rests() string {
	switch {
	case p.removed:
		return textRemoved
	case p.back:
		return textBack
	case p.failed != "":
		return textCannot
	case p.applied:
		return textRuns
	case p.prepared:
		return textCan
	}
	return textTurn
}
