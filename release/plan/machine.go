package plan

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/phrase"
)

// Machine is the pure state machine of a task. It decides which items may start, what a verb does, and which state
// follows, with a reason.
type Machine struct {
	State  TaskState
	Reason string

	names []string
	waves []Wave
	items []itemProgress
	// rollsOut is true for items that rollouts release; those may wait for approvals.
	rollsOut []bool
	// limit is the maximum number of items that run at once; 0: no limit.
	limit int
	// log is the history of received commands.
	log audit.Log
	// timed means that items begin only when the task's times allow it. windowState is the last answer about them, nil
	// before the first one.
	timed bool
	// stopTo is the end (stable, new, frozen) to which a stop brings the rollouts; "": they continue.
	stopTo      string
	windowState *WindowState
	// started means that the task may run. Earlier commands only change the state in which it starts.
	started bool
}

// NewMachine returns a machine whose items are all pending. waves index into names, the services' IDs; at most limit
// items run at once, 0: no limit.
func NewMachine(names []string, waves []Wave, limit int) *Machine {
	items := make([]itemProgress, len(names))
	m := &Machine{State: TaskPending, Reason: "about to start", names: names, waves: waves, items: items,
		rollsOut: make([]bool, len(names)), limit: limit}
	for i := range m.items {
		m.items[i].State = ItemPending
	}
	return m
}

// RollsOut marks item n as released by rollouts.
func (m *Machine) RollsOut(n int) { m.rollsOut[n] = true }

// Item returns the state of item n (an index into the document).
func (m *Machine) Item(n int) ItemState { return m.items[n].State }

// Start lets the task run: it leaves the state Pending.
func (m *Machine) Start() {
	m.started = true
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
	if m.State != TaskRunning || !m.started || len(m.waves) == 0 {
		return nil
	}
	room := len(m.items)
	if m.limit > 0 {
		room = m.limit - m.Running()
	}
	var next []int
	for _, n := range m.waves[m.currentWave()].Items {
		if len(next) < room && m.items[n].State == ItemPending {
			next = append(next, n)
		}
	}
	return next
}

// Began records that an item runs.
func (m *Machine) Began(n int) {
	m.items[n].State = ItemRunning
	m.updateState()
}

// Ended records how an item ended.
func (m *Machine) Ended(n int, state ItemState, reason string) {
	m.items[n] = itemProgress{State: state, Reason: reason}
	m.updateState()
}

// Abandoned records that an item was given up during an interruption, or that its rollouts were stopped with the task.
// If the task is being stopped, this does not fail the task.
func (m *Machine) Abandoned(n int, reason string) {
	m.items[n] = itemProgress{State: ItemFailed, Reason: reason, Abandoned: m.State == TaskStopping}
	m.updateState()
}

// Interrupted records that a system failure interrupts a running item; an empty reason means that it continues.
func (m *Machine) Interrupted(n int, reason string) {
	if m.items[n].State != ItemRunning {
		return
	}
	m.items[n].Interrupted = reason
	m.updateState()
}

// InterruptedItems returns the interrupted items, in the document's order.
func (m *Machine) InterruptedItems() []int {
	var held []int
	for n, it := range m.items {
		if it.State == ItemRunning && it.Interrupted != "" {
			held = append(held, n)
		}
	}
	return held
}

// Finished reports whether the task is in a final state and none of its items runs.
func (m *Machine) Finished() bool { return m.State.Final() && m.Running() == 0 }

// Skip marks every item that never began as skipped; it is called once the task has ended.
func (m *Machine) Skip() {
	for n := range m.items {
		if m.items[n].State == ItemPending {
			m.items[n] = itemProgress{State: ItemSkipped, Reason: "never begun: the task is " + string(m.State)}
		}
	}
}

// updateState computes the state that follows from the items and the verbs so far.
func (m *Machine) updateState() {
	if n, failed := m.firstFailed(); failed && m.State != TaskFailed && !m.State.Final() {
		m.State = TaskFailed
		m.Reason = fmt.Sprintf("service %s failed: %s", m.names[n], m.items[n].Reason)
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
	case m.count(ItemSucceeded) == len(m.items) && m.State != TaskPending:
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
	done := fmt.Sprintf("%d of %s done", m.count(ItemSucceeded), phrase.Count(len(m.items), "service"))
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
		return fmt.Sprintf("released: %s", phrase.Count(len(m.items), "service"))
	default:
		return m.Reason
	}
}

// interruptionReasons lists the reasons of the interruptions, each once.
func (m *Machine) interruptionReasons() string {
	var reasons []string
	for _, n := range m.InterruptedItems() {
		if r := m.items[n].Interrupted; !slices.Contains(reasons, r) {
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
	case m.stopTo != "":
		return m.stoppingRollouts()
	}
	return fmt.Sprintf("%s; rollouts release %s: they may wait for an approval, and `stop` with `to` (stable, new or "+
		"frozen) ends them", text,
		m.named(rolling))
}

// rolling returns the running items that rollouts release.
func (m *Machine) rolling() (items []int) {
	for n, it := range m.items {
		if it.State == ItemRunning && m.rollsOut[n] {
			items = append(items, n)
		}
	}
	return items
}

// named formats items as "service a", or "services a, b and 2 more".
func (m *Machine) named(items []int) string {
	var ids []string
	for _, n := range items {
		ids = append(ids, m.names[n])
	}
	if len(ids) == 1 {
		return "service " + ids[0]
	}
	return "services " + phrase.List(ids, 3)
}

// currentWave returns the index of the earliest wave that has not ended, or of the last wave if all have.
func (m *Machine) currentWave() int {
	for i, w := range m.waves {
		if slices.ContainsFunc(w.Items, func(n int) bool { return !m.items[n].State.Ended() }) {
			return i
		}
	}
	return len(m.waves) - 1
}

func (m *Machine) count(state ItemState) int {
	n := 0
	for _, it := range m.items {
		if it.State == state {
			n++
		}
	}
	return n
}

// Running returns how many items run.
func (m *Machine) Running() int { return m.count(ItemRunning) }

func (m *Machine) firstFailed() (int, bool) {
	n := slices.IndexFunc(m.items, func(it itemProgress) bool { return it.State == ItemFailed && !it.Abandoned })
	return n, n >= 0
}
