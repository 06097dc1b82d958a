package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/window"
)

// Machine is the pure state machine of a task. It decides which items may start, what a verb does, and which state
// follows, with a reason.
type Machine struct {
	Memory

	// services are read for their IDs, and for whether rollouts release them; those may wait for approvals.
	services []ServiceStatus
	waves    []Wave
	// limit is the maximum number of items that run at once; 0: no limit.
	limit int
	// timed means that items begin only when the task's times allow it.
	timed bool
}

// Memory is the state of a machine that survives continue-as-new. Fields may be added, but not removed.
type Memory struct {
	State  TaskState `json:"state"`
	Reason string    `json:"reason"`
	// Started means that the task may run. Earlier commands only change the state in which it starts.
	Started bool           `json:"started,omitempty"`
	Items   []itemProgress `json:"items"`
	// Log is the history of received commands.
	Log audit.Log `json:"log"`
	// StopTo is the end (stable, new, frozen) to which a stop brings the rollouts; "": they continue.
	StopTo string `json:"stopTo,omitempty"`
	// WindowState is the last answer about the task's times; nil before the first one.
	WindowState *WindowState `json:"opening,omitempty"`
}

// itemProgress is the progress of one item.
type itemProgress struct {
	State ItemState `json:"state"`
	// Interrupted is the system failure that interrupts a running item, "" if there is none.
	Interrupted string `json:"interrupted,omitempty"`
	// Abandoned means that the item was given up during an interruption, or that its rollouts were stopped with the
	// task. Such a failure does not fail the task.
	Abandoned bool   `json:"abandoned,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// NewMachine returns a machine whose items, one for each service of a task, are all pending. At most limit items run at
// once, 0: no limit. If timed is set, they begin only when the task's times allow it.
func NewMachine(services []ServiceStatus, limit int, timed bool) *Machine {
	items := slices.Repeat([]itemProgress{{State: ItemPending}}, len(services))
	return &Machine{Memory: Memory{State: TaskPending, Reason: "about to start", Items: items}, services: services,
		waves: Task{Services: services}.Waves(), limit: limit, timed: timed}
}

// Item returns the state of item n (an index into the document).
func (m *Machine) Item(n int) ItemState { return m.Items[n].State }

// Start lets the task run: it leaves the state Pending.
func (m *Machine) Start() {
	m.Started = true
	if m.State == TaskPending {
		m.State = TaskRunning
	}
	m.updateState()
}

// GiveUp stops a task that never began.
func (m *Machine) GiveUp(reason string) {
	m.State, m.Reason = TaskStopped, reason
}

// Next returns the items that may start now: those of the earliest wave that has not ended, within the limit, and only
// if the task is Running.
func (m *Machine) Next() []int {
	if m.State != TaskRunning || !m.Started || len(m.waves) == 0 {
		return nil
	}
	room := len(m.Items)
	if m.limit > 0 {
		room = m.limit - m.Running()
	}
	var next []int
	for _, n := range m.waves[m.currentWave()].Items {
		if len(next) < room && m.Items[n].State == ItemPending {
			next = append(next, n)
		}
	}
	return next
}

// Began records that an item runs.
func (m *Machine) Began(n int) {
	m.Items[n].State = ItemRunning
	m.updateState()
}

// Ended records how an item ended.
func (m *Machine) Ended(n int, state ItemState, reason string) {
	m.Items[n] = itemProgress{State: state, Reason: reason}
	m.updateState()
}

// Abandoned records that an item was given up during an interruption, or that its rollouts were stopped with the task.
// If the task is being stopped, this does not fail the task.
func (m *Machine) Abandoned(n int, reason string) {
	m.Items[n] = itemProgress{State: ItemFailed, Reason: reason, Abandoned: m.State == TaskStopping}
	m.updateState()
}

// Interrupted records that a system failure interrupts a running item; an empty reason means that it continues.
func (m *Machine) Interrupted(n int, reason string) {
	if m.Items[n].State != ItemRunning {
		return
	}
	m.Items[n].Interrupted = reason
	m.updateState()
}

// InterruptedItems returns the interrupted items, in the document's order.
func (m *Machine) InterruptedItems() []int {
	return m.where(func(n int) bool { return m.Items[n].State == ItemRunning && m.Items[n].Interrupted != "" })
}

// where returns the items with a property, in the document's order.
func (m *Machine) where(is func(n int) bool) (items []int) {
	for n := range m.Items {
		if is(n) {
			items = append(items, n)
		}
	}
	return items
}

// Finished reports whether the task is in a final state and none of its items runs.
func (m *Machine) Finished() bool { return m.State.Final() && m.Running() == 0 }

// Skip marks every item that never began as skipped; it is called once the task has ended.
func (m *Machine) Skip() {
	for n := range m.Items {
		if m.Items[n].State == ItemPending {
			m.Items[n] = itemProgress{State: ItemSkipped, Reason: "never begun: the task is " + string(m.State)}
		}
	}
}

// updateState computes the state that follows from the items and the verbs so far.
func (m *Machine) updateState() {
	if n, failed := m.firstFailed(); failed && m.State != TaskFailed && !m.State.Final() {
		m.State = TaskFailed
		m.Reason = fmt.Sprintf("service %s failed: %s", m.services[n].ServiceID, m.Items[n].Reason)
	}
	if m.State.Final() {
		return
	}
	held := len(m.InterruptedItems())
	switch {
	case held > 0 && (m.State == TaskRunning || m.State == TaskPausing):
		m.State = TaskInterrupted
	case held == 0 && m.State == TaskInterrupted:
		m.State = TaskRunning
	}
	busy := m.Running()
	switch {
	case m.count(ItemSucceeded) == len(m.Items) && m.State != TaskPending:
		m.State = TaskSucceeded
	case busy == 0 && m.State == TaskPausing:
		m.State = TaskPaused
	case busy == 0 && m.State == TaskStopping:
		m.State = TaskStopped
	}
	m.Reason = m.explain()
}

// explain describes in a sentence what the task does, or why it does not progress.
func (m *Machine) explain() string {
	done := fmt.Sprintf("%d of %s done", m.count(ItemSucceeded), phrase.Count(len(m.Items), "service"))
	switch m.State {
	case TaskPending:
		return "about to start"
	case TaskRunning:
		text := fmt.Sprintf("wave %d of %d: %s; %s", m.currentWave()+1, len(m.waves),
			phrase.CountOf(m.Running(), "service runs", "services run"), done)
		if wait := m.Waiting(); wait != nil {
			text += "; nothing else begins: " + wait.Message
		}
		return text
	case TaskPausing, TaskStopping:
		return m.finishing() + "; nothing new starts; " + done
	case TaskPaused:
		return done + ": send resume to go on, or stop"
	case TaskStopped:
		return done
	case TaskInterrupted:
		return m.interruptionReasons() + ": fix it and send resume, or stop"
	case TaskSucceeded:
		return fmt.Sprintf("released: %s", phrase.Count(len(m.Items), "service"))
	default:
		return m.Reason
	}
}

// interruptionReasons lists the reasons of the interruptions, each once.
func (m *Machine) interruptionReasons() string {
	var reasons []string
	for _, n := range m.InterruptedItems() {
		if r := m.Items[n].Interrupted; !slices.Contains(reasons, r) {
			reasons = append(reasons, r)
		}
	}
	const most = 3
	if len(reasons) > most {
		reasons = append(reasons[:most], fmt.Sprintf("and %d more", len(reasons)-most))
	}
	return strings.Join(reasons, "; ")
}

// finishing describes what has to end before the task pauses or stops. Rollouts continue and may wait for approvals.
func (m *Machine) finishing() string {
	busy, rolling := m.Running(), m.rolling()
	if busy == 0 {
		return "nothing is being released"
	}
	text := phrase.CountOf(busy, "service that is being released finishes first",
		"services that are being released finish first")
	switch {
	case len(rolling) == 0:
		return text
	case m.StopTo != "":
		return m.stoppingRollouts()
	}
	return fmt.Sprintf("%s; rollouts release %s: they may wait for an approval, and `stop` with `to` (stable, new or "+
		"frozen) ends them", text, m.named(rolling))
}

// rolling returns the running items that rollouts release.
func (m *Machine) rolling() []int {
	return m.where(func(n int) bool { return m.Items[n].State == ItemRunning && m.services[n].RollOut })
}

// named formats items as "service a", or "services a, b and 2 more".
func (m *Machine) named(items []int) string {
	return nameServices(phrase.Each(items, func(n int) string { return string(m.services[n].ServiceID) }), 3)
}

// nameServices names at most this many services.
func nameServices(ids []string, most int) string {
	if len(ids) == 1 {
		return "service " + ids[0]
	}
	return "services " + phrase.List(ids, most)
}

// currentWave returns the index of the earliest wave that has not ended, or of the last wave if all have.
func (m *Machine) currentWave() int {
	for i, w := range m.waves {
		if slices.ContainsFunc(w.Items, func(n int) bool { return !m.Items[n].State.Ended() }) {
			return i
		}
	}
	return len(m.waves) - 1
}

func (m *Machine) count(state ItemState) int {
	return len(m.where(func(n int) bool { return m.Items[n].State == state }))
}

// Running returns how many items run.
func (m *Machine) Running() int { return m.count(ItemRunning) }

func (m *Machine) firstFailed() (int, bool) {
	n := slices.IndexFunc(m.Items, func(it itemProgress) bool { return it.State == ItemFailed && !it.Abandoned })
	return n, n >= 0
}

// WaitWindow is the kind of wait of a task whose times do not allow items to begin.
const WaitWindow = "window"

// WindowState is the last answer about a task's times (release windows and freezes).
type WindowState struct {
	window.Answer
	// Since is when the wait began; the zero time if the task does not wait.
	Since time.Time `json:"since,omitzero"`
}

// NextAt returns the items that may start at a time.
func (m *Machine) NextAt(now time.Time) []int {
	if !m.windowOpen(now) {
		return nil
	}
	return m.Next()
}

// windowOpen reports whether the last answer is still valid and allows an item to begin.
func (m *Machine) windowOpen(now time.Time) bool {
	o := m.WindowState
	return !m.timed || o != nil && o.Open && (o.Until == nil || now.Before(*o.Until))
}

// NeedsWindowCheck reports whether the task's times have to be evaluated: an item could begin, and the last answer has
// expired.
func (m *Machine) NeedsWindowCheck(now time.Time) bool {
	if m.windowOpen(now) || len(m.Next()) == 0 {
		return false
	}
	o := m.WindowState
	return o == nil || o.Open || o.Until != nil && !now.Before(*o.Until)
}

// SetWindow stores the current answer about the task's times.
func (m *Machine) SetWindow(a window.Answer, now time.Time) {
	o := WindowState{Answer: a}
	if !a.Open {
		o.Since = now
		if previous := m.WindowState; previous != nil && !previous.Open {
			o.Since = previous.Since
		}
	}
	m.WindowState = &o
	m.updateState()
}

// Waiting returns the release window that the next items wait for; nil if they wait for none.
func (m *Machine) Waiting() *RolloutWait {
	o := m.WindowState
	if !m.timed || o == nil || o.Open || len(m.Next()) == 0 {
		return nil
	}
	return &RolloutWait{Kind: WaitWindow, Since: o.Since, Until: o.Until, Message: o.Reason}
}

// approve lets items that wait for a release window begin anyway. The times apply again after the time at which the
// wait would have ended.
func (m *Machine) approve(reason string) (done, refusal string) {
	wait := m.Waiting()
	switch {
	case m.State.Final() || m.State == TaskStopping:
		return "", m.illegalVerb(VerbApprove)
	case wait == nil && (m.State == TaskPausing || m.State == TaskPaused):
		return "", fmt.Sprintf("the task is %s: resume it, then approve what waits for a release window", m.State)
	case wait == nil:
		return "", m.nothingToApprove()
	case strings.TrimSpace(reason) == "":
		return "", "an approve overrides the release windows and needs a reason: " + wait.Message
	}
	m.WindowState = &WindowState{Answer: window.Answer{Open: true, Until: wait.Until}}
	done = "it begins now, although " + wait.Message
	if wait.Until == nil {
		return done + "; the task's release windows no longer apply", ""
	}
	return fmt.Sprintf("%s; until then its release windows do not apply", done), ""
}

// nothingToApprove explains why there is nothing to approve, and points to rollouts that may wait for an approval.
func (m *Machine) nothingToApprove() string {
	if rolling := m.rolling(); len(rolling) > 0 {
		return fmt.Sprintf("the task's own release windows hold nothing back: what the rollouts of %s wait for is "+
			"approved on the rollout, which the "+
			"task's workloads name (slipway rollout approve NAMESPACE/NAME)", m.named(rolling))
	}
	return "the task waits for no release window: there is nothing to approve"
}
