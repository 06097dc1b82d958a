package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/audit"
)

// threeWaves is a plan of a, b (together), then c, then d.
func threeWaves(limit int) *Machine {
	waves := []Wave{{Priority: 3, Items: []int{0, 1}}, {Priority: 2, Items: []int{2}}, {Priority: 1, Items: []int{3}}}
	return NewMachine([]string{"a", "b", "c", "d"}, waves, limit)
}

// running is the machine with the first wave under way.
func running() *Machine {
	m := threeWaves(0)
	m.Start()
	for _, n := range m.Next() {
		m.Began(n)
	}
	return m
}

func TestMachineStates(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(m *Machine)
		state  TaskState
		next   []int
		says   string
	}{
		"Fresh":    {"a task that has begun starts its first wave, all of it", func(*Machine) {}, TaskRunning, nil, "wave 1 of 3: 2 services run; 0 of 4 services done"},
		"HalfWave": {"a later wave waits for the whole of an earlier one", func(m *Machine) { m.Ended(0, ItemSucceeded, "") }, TaskRunning, nil, "wave 1 of 3: 1 service runs; 1 of 4 services done"},
		"NextWave": {"the next wave starts when the earlier one is over", func(m *Machine) { endWave(m) }, TaskRunning, []int{2}, "wave 2 of 3"},
		"Pausing": {"a pause lets what runs finish", func(m *Machine) { m.Command(Command{Verb: VerbPause}, time.Time{}) }, TaskPausing, nil,
			"2 services that are being released finish first; nothing new starts"},
		"Paused": {"a pause holds back the rest once nothing runs", func(m *Machine) { m.Command(Command{Verb: VerbPause}, time.Time{}); endWave(m) }, TaskPaused, nil, "send resume to go on"},
		"PauseTakenBack": {"resume in Pausing takes the pause back", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			m.Command(Command{Verb: VerbResume}, time.Time{})
			endWave(m)
		},
			TaskRunning, []int{2}, "wave 2 of 3"},
		"Resumed": {"resume in Paused goes on with the next wave", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			endWave(m)
			m.Command(Command{Verb: VerbResume}, time.Time{})
		},
			TaskRunning, []int{2}, "wave 2 of 3"},
		"Stopping": {"a stop lets what runs finish", func(m *Machine) { m.Command(Command{Verb: VerbStop}, time.Time{}) }, TaskStopping, nil, "2 services that are being released finish first"},
		"Stopped":  {"a stop is final once nothing runs", func(m *Machine) { m.Command(Command{Verb: VerbStop}, time.Time{}); endWave(m) }, TaskStopped, nil, "2 of 4 services done"},
		"StopWhilePausing": {"a stop may follow a pause", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			m.Command(Command{Verb: VerbStop}, time.Time{})
			endWave(m)
		}, TaskStopped, nil, "services done"},
		"StopWhilePaused": {"a paused task stops at once", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			endWave(m)
			m.Command(Command{Verb: VerbStop}, time.Time{})
		}, TaskStopped, nil, "services done"},
		"FailedAtOnce": {"a failure fails the task at once, while its neighbour still runs", func(m *Machine) { m.Ended(0, ItemFailed, "bad image") },
			TaskFailed, nil, "service a failed: bad image"},
		"FailedWhilePausing": {"a failure during Pausing goes straight to Failed", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			m.Ended(1, ItemFailed, "bad image")
		},
			TaskFailed, nil, "service b failed: bad image"},
		"FailedWhileStopping": {"a failure during Stopping goes straight to Failed", func(m *Machine) { m.Command(Command{Verb: VerbStop}, time.Time{}); m.Ended(1, ItemFailed, "bad image") },
			TaskFailed, nil, "service b failed: bad image"},
		"Interrupted": {"system trouble interrupts, and says what to do", func(m *Machine) { m.Interrupted(0, "cluster default cannot be reached") },
			TaskInterrupted, nil, "cluster default cannot be reached: mend it and send resume, or stop"},
		"InterruptedResumed": {"resume goes on with the interrupted item, which still counts as running", func(m *Machine) {
			m.Interrupted(0, "gone")
			m.Command(Command{Verb: VerbResume}, time.Time{})
		}, TaskRunning, nil, "2 services run"},
		"InterruptedStopped": {"a stop waits until the interrupted item has given back what it borrowed; being given up is not the task's failure", func(m *Machine) {
			m.Interrupted(0, "gone")
			m.Ended(1, ItemSucceeded, "")
			m.Command(Command{Verb: VerbStop}, time.Time{})
			require.Equal(t, TaskStopping, m.State)
			m.Abandoned(0, "given up")
		}, TaskStopped, nil, "1 of 4 services done"},
		"InterruptedStoppedInTheLastWave": {"a service that was given up was not released: the task is stopped, not succeeded", func(m *Machine) {
			endWave(m)
			m.Began(2)
			m.Ended(2, ItemSucceeded, "")
			m.Began(3)
			m.Interrupted(3, "gone")
			m.Command(Command{Verb: VerbStop}, time.Time{})
			m.Abandoned(3, "given up")
		}, TaskStopped, nil, "3 of 4 services done"},
		"AbandonedUnasked": {"an item that gives up though nobody stopped the task is a failure", func(m *Machine) {
			m.Interrupted(0, "gone")
			m.Abandoned(0, "its workflow was told to stop")
		}, TaskFailed, nil, "service a failed"},
		"PauseWithoutRest": {"a pause in the last wave has nothing to hold back: the task succeeds", func(m *Machine) {
			endWave(m)
			m.Began(2)
			m.Ended(2, ItemSucceeded, "")
			m.Began(3)
			m.Command(Command{Verb: VerbPause}, time.Time{})
			m.Ended(3, ItemSucceeded, "")
		}, TaskSucceeded, nil, "released: 4 services"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := running()
			tc.do(m)
			require.Equal(t, tc.state, m.State, tc.reason)
			require.Equal(t, tc.next, m.Next(), tc.reason)
			require.Contains(t, m.Reason, tc.says, tc.reason)
		})
	}
}

func endWave(m *Machine) {
	m.Ended(0, ItemSucceeded, "")
	m.Ended(1, ItemSucceeded, "")
}

func TestMachineVerbs(t *testing.T) {
	states := map[TaskState]func() *Machine{
		TaskPending: func() *Machine { return threeWaves(0) },
		TaskRunning: running,
		TaskPausing: func() *Machine { m := running(); m.Command(Command{Verb: VerbPause}, time.Time{}); return m },
		TaskPaused: func() *Machine {
			m := running()
			m.Command(Command{Verb: VerbPause}, time.Time{})
			endWave(m)
			return m
		},
		TaskStopping:    func() *Machine { m := running(); m.Command(Command{Verb: VerbStop}, time.Time{}); return m },
		TaskStopped:     func() *Machine { m := running(); m.Command(Command{Verb: VerbStop}, time.Time{}); endWave(m); return m },
		TaskInterrupted: func() *Machine { m := running(); m.Interrupted(0, "gone"); return m },
		TaskFailed:      func() *Machine { m := running(); m.Ended(0, ItemFailed, "x"); return m },
		TaskSucceeded: func() *Machine {
			m := NewMachine([]string{"a"}, []Wave{{Items: []int{0}}}, 0)
			m.Start()
			m.Began(0)
			m.Ended(0, ItemSucceeded, "")
			return m
		},
	}
	// Which verb is legal in which state: the table in docs/plans.md.
	legal := map[Verb][]TaskState{
		VerbPause:  {TaskPending, TaskRunning},
		VerbStop:   {TaskPending, TaskRunning, TaskPausing, TaskPaused, TaskInterrupted},
		VerbResume: {TaskPausing, TaskPaused, TaskInterrupted},
	}
	for state, build := range states {
		for verb, where := range legal {
			t.Run(string(verb)+"In"+string(state), func(t *testing.T) {
				m := build()
				require.Equal(t, state, m.State, "the case begins in its state")
				outcome, message := m.Command(Command{Verb: verb}, time.Time{})
				want := audit.Refused
				for _, s := range where {
					if s == state {
						want = audit.Accepted
					}
				}
				require.Equal(t, want, outcome, message)
				require.NotEmpty(t, message, "every answer says why")
				if want == audit.Refused {
					require.Equal(t, state, m.State, "a refused verb changes nothing")
				}
			})
		}
	}
}

func TestMachineStartsNothingBeforeItMay(t *testing.T) {
	m := threeWaves(0)
	m.Command(Command{Verb: VerbPause}, time.Time{})
	require.Equal(t, TaskPaused, m.State, "a pending task pauses at once")
	m.Command(Command{Verb: VerbResume}, time.Time{})
	require.Equal(t, TaskPending, m.State, "resumed, it is as pending as before")
	require.Empty(t, m.Next(), "nothing starts before the task may run")
	m.Start()
	require.Equal(t, []int{0, 1}, m.Next())
}

func TestMachineLimit(t *testing.T) {
	m := threeWaves(1)
	m.Start()
	require.Equal(t, []int{0}, m.Next(), "at most one service runs at once")
	m.Began(0)
	require.Empty(t, m.Next(), "there is no room while one runs")
	m.Ended(0, ItemSucceeded, "")
	require.Equal(t, []int{1}, m.Next(), "the wave goes on when there is room")
}

// Whatever happens in whatever order, waves never overlap, the limit holds, and a task that is left alone comes to an end.
func TestMachineNeverOverlapsWaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := threeWaves(rapid.IntRange(0, 3).Draw(t, "limit"))
		m.Start()
		for range 40 {
			step(t, m)
			requireOneWave(t, m)
		}
		for range 20 {
			settleAll(m)
		}
		require.True(t, m.Over() || m.State == TaskPaused, "left alone, %s ends or is paused", m.State)
	})
}

func step(t *rapid.T, m *Machine) {
	n := rapid.IntRange(0, 3).Draw(t, "item")
	switch rapid.IntRange(0, 6).Draw(t, "action") {
	case 0, 1:
		for _, n := range m.Next() {
			m.Began(n)
		}
	case 2:
		if m.Item(n) == ItemRunning {
			m.Ended(n, ItemSucceeded, "")
		}
	case 3:
		m.Interrupted(n, "gone")
	case 4:
		m.Command(Command{Verb: VerbPause}, time.Time{})
	case 5:
		m.Command(Command{Verb: VerbResume}, time.Time{})
	case 6:
		if rapid.IntRange(0, 9).Draw(t, "rare") == 0 {
			m.Command(Command{Verb: VerbStop}, time.Time{})
		}
	}
}

func requireOneWave(t *rapid.T, m *Machine) {
	busy := 0
	for _, w := range m.waves {
		for _, n := range w.Items {
			if m.Item(n) == ItemRunning {
				busy++
				break
			}
		}
	}
	require.LessOrEqual(t, busy, 1, "two waves never run at once")
}

func settleAll(m *Machine) {
	for n := range m.items {
		if m.Item(n) == ItemRunning {
			m.Ended(n, ItemSucceeded, "")
		}
	}
	m.Command(Command{Verb: VerbResume}, time.Time{})
	for _, n := range m.Next() {
		m.Began(n)
	}
}

// A task names the rollouts that it waits for, and stop reaches them when it says where they end.
func TestStopAndRollouts(t *testing.T) {
	t.Parallel()
	machine := func(running ...int) *Machine {
		m := NewMachine([]string{"a", "b"}, []Wave{{Items: []int{0, 1}}}, 0)
		m.RollsOut(1)
		m.Start()
		for _, n := range running {
			m.Began(n)
		}
		return m
	}
	for name, test := range map[string]struct {
		reason   string
		m        *Machine
		commands []Command
		outcome  audit.Outcome
		contains string
		state    TaskState
	}{
		"Pause":      {"who is waited for is named", machine(0, 1), []Command{{Verb: VerbPause}}, audit.Accepted, "rollouts release service b", TaskPausing},
		"Stop":       {"a plain stop leaves rollouts alone", machine(0, 1), []Command{{Verb: VerbStop}}, audit.Accepted, "`stop` with `to`", TaskStopping},
		"StopTo":     {"it reaches the rollout", machine(0, 1), []Command{{Verb: VerbStop, To: "stable"}}, audit.Accepted, "the rollouts of service b are stopped to stable", TaskStopping},
		"NoRollout":  {"`to` would be ignored", machine(0), []Command{{Verb: VerbStop, To: "stable"}}, audit.Refused, "send stop without it", TaskRunning},
		"Twice":      {"the answer says what helps", machine(1), []Command{{Verb: VerbStop}, {Verb: VerbStop}}, audit.Refused, "`stop` with `to`", TaskStopping},
		"StopThenTo": {"the way out of a stop that waits for a person", machine(1), []Command{{Verb: VerbStop}, {Verb: VerbStop, To: "new"}}, audit.Accepted, "stopped to new", TaskStopping},
		"NoneLeft":   {"only the other service runs", machine(0), []Command{{Verb: VerbStop}, {Verb: VerbStop, To: "new"}}, audit.Refused, "wait for Stopped", TaskStopping},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outcome audit.Outcome
			var text string
			for _, c := range test.commands {
				outcome, text = test.m.Command(c, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
			}
			require.Equal(t, test.outcome, outcome, "%s: %s", test.reason, text)
			require.Contains(t, text, test.contains, test.reason)
			require.Equal(t, test.state, test.m.State)
			if outcome == audit.Accepted && test.m.stopTo != "" {
				require.Contains(t, test.m.Reason, "are stopped to "+test.m.stopTo, "nobody is told to do what is being done")
				require.NotContains(t, test.m.Reason, "`stop` with `to`")
				next := NewMachine([]string{"a", "b"}, []Wave{{Items: []int{0, 1}}}, 0)
				next.RollsOut(1)
				next.Recall(test.m.Memory())
				next.settle()
				require.Equal(t, test.m.Reason, next.Reason, "the next run knows as much")
			}
		})
	}
}

// A rollout that the task itself has stopped fails its service, and not the task.
func TestStoppedRolloutsStopTheTask(t *testing.T) {
	t.Parallel()
	m := NewMachine([]string{"a"}, []Wave{{Items: []int{0}}}, 0)
	m.RollsOut(0)
	m.Start()
	m.Began(0)
	_, _ = m.Command(Command{Verb: VerbStop, To: "stable"}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	m.Abandoned(0, "rolled back")
	require.Equal(t, TaskStopped, m.State)
}
