package serving

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/workloadops"
)

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

// hold is a pause: who asked for it, and since when it lasts.
type hold struct {
	by    string
	since time.Time
}

// needsApproval says whether a person is asked before a party begins: before each but the first.
func (m *Machine) needsApproval(party int) bool {
	p := m.in.Policy
	return m.in.Kind == KindUpdate && p.Order == OrderSequential && p.Approval == ApprovalBetweenParties && m.sequence()[0] != party
}

// asks is the place of the party for which an approval is waited for; false when for none.
func (m *Machine) asks() (party int, waits bool) {
	if m.stage != StageCommit {
		return 0, false
	}
	for i, p := range m.parties {
		if !p.asked.IsZero() && !p.approved {
			return i, true
		}
	}
	return 0, false
}

// held says that the operation waits for a person.
func (m *Machine) held() bool {
	_, waits := m.asks()
	return waits || m.paused != nil && !m.Over()
}

// WaitingFor is the person whom the operation waits for, and what they are to send; nil when it waits for nobody.
func (m *Machine) WaitingFor() *kuscia.WaitingFor {
	if !m.held() {
		return nil
	}
	if m.paused != nil {
		return &kuscia.WaitingFor{Kind: WaitResume, Since: stamped(m.paused.since), Message: fmt.Sprintf(
			"it is paused since %s, %s: no party begins until `slipway serving resume %s`, or the signal `resume`%s",
			timeText(m.paused.since), m.paused.by, m.in.ID, m.insteadOfWaiting())}
	}
	i, _ := m.asks()
	name, since := m.in.Parties[i].Name(), m.parties[i].asked
	return &kuscia.WaitingFor{Kind: WaitApproval, Since: stamped(since), Party: name, Gate: m.gate(i), Message: fmt.Sprintf(
		"party %s waits for an approval since %s, and %d of %d parties run the new version: `slipway serving approve %s`, or the signal `approve`, has it begin%s",
		name, timeText(since), m.applied(), len(m.parties), m.in.ID, m.insteadOfWaiting())}
}

// insteadOfWaiting is what else a person can send.
func (m *Machine) insteadOfWaiting() string {
	if m.in.Kind == KindUpdate {
		return "; `stop` has everybody go back"
	}
	return ""
}

// gate stands for one party's turn in one run of the operation.
func (m *Machine) gate(party int) string {
	return workloadops.Gate(m.run, m.in.UID, strconv.FormatInt(m.in.Generation, 10), m.in.TargetDigest, strconv.Itoa(party))
}

// applied is how many parties run the new version.
func (m *Machine) applied() int {
	n := 0
	for _, p := range m.parties {
		if p.applied {
			n++
		}
	}
	return n
}

// free notes that a person has let the operation go on: for who has not begun, time counts from now on.
func (m *Machine) free(now time.Time) {
	for i := range m.parties {
		if !m.parties[i].begun {
			m.parties[i].freed = now
		}
	}
}

// stamped is a time as a status keeps it.
func stamped(at time.Time) metav1.Time { return metav1.NewTime(at.UTC().Truncate(time.Second)) }

func timeText(at time.Time) string { return at.UTC().Format(time.RFC3339) }
