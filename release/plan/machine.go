package plan

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/audit"
)

// Machine is the state machine of a task: which items may start, what a verb does, what state follows, and why.
type Machine struct {
	State  TaskState
	Reason string

	names []string
	waves []Wave
	items []itemProgress
	// rollsOut says which items are released by rollouts, which may wait for people.
	rollsOut []bool
	// limit is how many items run at once at most.
	limit int
	// log is what people have sent.
	log audit.Log
	// timed says that items begin only when the task's times allow it; opening is what is known of them, nil before they were asked.
	timed bool
	// stopTo is where a stop has the rollouts end; "": they are left alone.
	stopTo  string
	opening *Opening
	// started says that the task may run: whatever is asked of it before only decides what follows then.
	started bool
}

// NewMachine begins with every item pending. waves index into names, the services' IDs; at most limit items run at once, 0: no limit.
func NewMachine(names []string, waves []Wave, limit int) *Machine {
	items := make([]itemProgress, len(names))
	m := &Machine{State: TaskPending, Reason: "about to start", names: names, waves: waves, items: items,
		rollsOut: make([]bool, len(names)), limit: limit}
	for i := range m.items {
		m.items[i].State = ItemPending
	}
	return m
}

// RollsOut says that item n is released by rollouts.
func (m *Machine) RollsOut(n int) { m.rollsOut[n] = true }

// Item is the state of item n (an index into the document).
func (m *Machine) Item(n int) ItemState { return m.items[n].State }

// Start leaves Pending.
func (m *Machine) Start() {
	m.started = true
	if m.State == TaskPending {
		m.State = TaskRunning
	}
	m.settle()
}

// GiveUp ends a task that never began.
func (m *Machine) GiveUp(reason string) {
	m.State, m.Reason = TaskStopped, reason
}

// Next are the items that may start now: of the earliest wave that isn't over, while the task is Running, within the limit.
func (m *Machine) Next() []int {
	if m.State != TaskRunning || !m.started || len(m.waves) == 0 {
		return nil
	}
	room := len(m.items)
	if m.limit > 0 {
		room = m.limit - m.Running()
	}
	var next []int
	for _, n := range m.waves[m.wave()].Items {
		if len(next) < room && m.items[n].State == ItemPending {
			next = append(next, n)
		}
	}
	return next
}

// Began records that an item runs.
func (m *Machine) Began(n int) {
	m.items[n].State = ItemRunning
	m.settle()
}

// Ended records how an item ended.
func (m *Machine) Ended(n int, state ItemState, reason string) {
	m.items[n] = itemProgress{State: state, Reason: reason}
	m.settle()
}

// Abandoned records that an item gave up while system trouble held it, or that its rollouts were stopped with the task. Where the task was told to stop, that is not the task's failure.
func (m *Machine) Abandoned(n int, reason string) {
	m.items[n] = itemProgress{State: ItemFailed, Reason: reason, Abandoned: m.State == TaskStopping}
	m.settle()
}

// Interrupted records that system trouble holds a running item up; an empty reason says that it goes on again.
func (m *Machine) Interrupted(n int, reason string) {
	if m.items[n].State != ItemRunning {
		return
	}
	m.items[n].Interrupted = reason
	m.settle()
}

// InterruptedItems are the running items that system trouble holds up, in the document's order.
func (m *Machine) InterruptedItems() []int {
	var held []int
	for n, it := range m.items {
		if it.State == ItemRunning && it.Interrupted != "" {
			held = append(held, n)
		}
	}
	return held
}

// Over says whether the task is in a final state and nothing of it runs any more.
func (m *Machine) Over() bool { return m.State.Final() && m.Running() == 0 }

// Skip ends every item that never began; it is called once the task is over.
func (m *Machine) Skip() {
	for n := range m.items {
		if m.items[n].State == ItemPending {
			m.items[n] = itemProgress{State: ItemSkipped, Reason: "never begun: the task is " + string(m.State)}
		}
	}
}

// settle draws the state that follows from the items and the verbs so far.
func (m *Machine) settle() {
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

// explain says in a sentence what the task does, or why it does not move.
func (m *Machine) explain() string {
	done := fmt.Sprintf("%d of %s done", m.count(ItemSucceeded), countOf(len(m.items), "service", "services"))
	switch m.State {
	case TaskPending:
		return "about to start"
	case TaskRunning:
		text := fmt.Sprintf("wave %d of %d: %s; %s", m.wave()+1, len(m.waves), countOf(m.Running(), "service runs", "services run"), done)
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
		return m.interruptionReasons() + ": mend it and send resume, or stop"
	case TaskSucceeded:
		return fmt.Sprintf("released: %s", countOf(len(m.items), "service", "services"))
	default:
		return m.Reason
	}
}

// interruptionReasons names what holds the interrupted items up, each reason once.
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

// finishing says what the task waits for before it rests or ends. Rollouts go on as they are, and may wait for a person.
func (m *Machine) finishing() string {
	busy, rolling := m.Running(), m.rolling()
	if busy == 0 {
		return "nothing is being released"
	}
	text := countOf(busy, "service that is being released finishes first", "services that are being released finish first")
	switch {
	case len(rolling) == 0:
		return text
	case m.stopTo != "":
		return m.stoppingRollouts()
	}
	return fmt.Sprintf("%s; rollouts release %s: they may wait for an approval, and `stop` with `to` (stable, new or frozen) ends them", text,
		m.named(rolling))
}

// rolling are the running items that are released by rollouts.
func (m *Machine) rolling() (items []int) {
	for n, it := range m.items {
		if it.State == ItemRunning && m.rollsOut[n] {
			items = append(items, n)
		}
	}
	return items
}

// named is "service a", or "services a, b and 2 more".
func (m *Machine) named(items []int) string {
	const most = 3
	var ids []string
	for _, n := range items[:min(len(items), most)] {
		ids = append(ids, m.names[n])
	}
	text := "services " + strings.Join(ids, ", ")
	if len(items) == 1 {
		text = "service " + ids[0]
	}
	if more := len(items) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// wave is the index of the earliest wave that is not over, of the last one when all are.
func (m *Machine) wave() int {
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

// Running is how many items run.
func (m *Machine) Running() int { return m.count(ItemRunning) }

func (m *Machine) firstFailed() (int, bool) {
	n := slices.IndexFunc(m.items, func(it itemProgress) bool { return it.State == ItemFailed && !it.Abandoned })
	return n, n >= 0
}
