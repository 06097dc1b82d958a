package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"slipway.io/slipway/release/audit"
)

// threeWaves returns the machine of a plan: a and b together, then c, then d.
func threeWaves(limit int) *Machine {
	return NewMachine([]ServiceStatus{{ServiceID: "a", Priority: 3}, {ServiceID: "b", Priority: 3},
		{ServiceID: "c", Priority: 2}, {ServiceID: "d", Priority: 1}}, limit, false)
}

// running returns the machine while the first wave runs.
func running() *Machine {
	m := threeWaves(0)
	m.Start()
	for _, n := range m.Next() {
		m.Began(n)
	}
	return m
}

func TestMachine_StateAfterEvents(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(m *Machine)
		state  TaskState
		next   []int
		says   string
	}{
		"Fresh": {"a task starts all items of its first wave", func(*Machine) {}, TaskRunning, nil,
			"wave 1 of 3: 2 services run; 0 of 4 services done"},
		"HalfWave": {"a later wave waits for all items of the earlier one", func(m *Machine) {
			m.Ended(0, ItemSucceeded, "")
		}, TaskRunning, nil, "wave 1 of 3: 1 service runs; 1 of 4 services done"},
		"NextWave": {"the next wave starts when the earlier one has ended", func(m *Machine) {
			endWave(m)
		}, TaskRunning, []int{2}, "wave 2 of 3"},
		"Pausing": {"a pause lets running items finish", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
		}, TaskPausing, nil,
			"2 services that are being released finish first; nothing new starts"},
		"Paused": {"the task is paused once no item runs", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			endWave(m)
		}, TaskPaused, nil, "send resume to go on"},
		"PauseTakenBack": {"resume in Pausing cancels the pause", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			m.Command(Command{Verb: VerbResume}, time.Time{})
			endWave(m)
		},
			TaskRunning, []int{2}, "wave 2 of 3"},
		"Resumed": {"resume in Paused continues with the next wave", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			endWave(m)
			m.Command(Command{Verb: VerbResume}, time.Time{})
		},
			TaskRunning, []int{2}, "wave 2 of 3"},
		"Stopping": {"a stop lets running items finish", func(m *Machine) {
			m.Command(Command{Verb: VerbStop}, time.Time{})
		}, TaskStopping, nil, "2 services that are being released finish first"},
		"Stopped": {"a stop is final once no item runs", func(m *Machine) {
			m.Command(Command{Verb: VerbStop}, time.Time{})
			endWave(m)
		}, TaskStopped, nil, "2 of 4 services done"},
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
		"FailedAtOnce": {"a failure fails the task at once, while another item still runs", func(m *Machine) {
			m.Ended(0, ItemFailed, "bad image")
		},
			TaskFailed, nil, "service a failed: bad image"},
		"FailedWhilePausing": {"a failure during Pausing goes straight to Failed", func(m *Machine) {
			m.Command(Command{Verb: VerbPause}, time.Time{})
			m.Ended(1, ItemFailed, "bad image")
		},
			TaskFailed, nil, "service b failed: bad image"},
		"FailedWhileStopping": {"a failure during Stopping goes straight to Failed", func(m *Machine) {
			m.Command(Command{Verb: VerbStop}, time.Time{})
			m.Ended(1, ItemFailed, "bad image")
		},
			TaskFailed, nil, "service b failed: bad image"},
		"Interrupted": {"a system failure interrupts the task, and the reason says what to do", func(m *Machine) {
			m.Interrupted(0, "cluster default cannot be reached")
		},
			TaskInterrupted, nil, "cluster default cannot be reached: fix it and send resume, or stop"},
		"InterruptedResumed": {"resume continues the interrupted item, which still counts as running",
			func(m *Machine) {
				m.Interrupted(0, "missing")
				m.Command(Command{Verb: VerbResume}, time.Time{})
			}, TaskRunning, nil, "2 services run"},
		"InterruptedStopped": {"a stop waits until the interrupted item has restored what it borrowed; abandoning it " +
			"does not fail the task", func(m *Machine) {
			m.Interrupted(0, "missing")
			m.Ended(1, ItemSucceeded, "")
			m.Command(Command{Verb: VerbStop}, time.Time{})
			require.Equal(t, TaskStopping, m.State)
			m.Abandoned(0, "given up")
		}, TaskStopped, nil, "1 of 4 services done"},
		"InterruptedStoppedInTheLastWave": {"an abandoned service was not released: the task is Stopped, not Succeeded",
			func(m *Machine) {
				endWave(m)
				m.Began(2)
				m.Ended(2, ItemSucceeded, "")
				m.Began(3)
				m.Interrupted(3, "missing")
				m.Command(Command{Verb: VerbStop}, time.Time{})
				m.Abandoned(3, "given up")
			}, TaskStopped, nil, "3 of 4 services done"},
		"AbandonedUnasked": {"an item that is abandoned without a stop of the task fails the task", func(m *Machine) {
			m.Interrupted(0, "missing")
			m.Abandoned(0, "its workflow received a stop")
		}, TaskFailed, nil, "service a failed"},
		"PauseWithoutRest": {"a pause in the last wave has no effect: the task succeeds", func(m *Machine) {
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

func TestMachine_VerbIsLegalOnlyInItsStates(t *testing.T) {
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
		TaskStopping: func() *Machine { m := running(); m.Command(Command{Verb: VerbStop}, time.Time{}); return m },
		TaskStopped: func() *Machine {
			m := running()
			m.Command(Command{Verb: VerbStop}, time.Time{})
			endWave(m)
			return m
		},
		TaskInterrupted: func() *Machine { m := running(); m.Interrupted(0, "missing"); return m },
		TaskFailed:      func() *Machine { m := running(); m.Ended(0, ItemFailed, "x"); return m },
		TaskSucceeded: func() *Machine {
			m := NewMachine([]ServiceStatus{{ServiceID: "a"}}, 0, false)
			m.Start()
			m.Began(0)
			m.Ended(0, ItemSucceeded, "")
			return m
		},
	}
	// legal is the table in docs/plans.md.
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
				require.NotEmpty(t, message, "every answer has a message")
				if want == audit.Refused {
					require.Equal(t, state, m.State, "a refused verb changes nothing")
				}
			})
		}
	}
}

func TestMachine_StartsNoItem_BeforeStart(t *testing.T) {
	m := threeWaves(0)
	m.Command(Command{Verb: VerbPause}, time.Time{})
	require.Equal(t, TaskPaused, m.State, "a pending task pauses at once")
	m.Command(Command{Verb: VerbResume}, time.Time{})
	require.Equal(t, TaskPending, m.State, "after resume it is pending again")
	require.Empty(t, m.Next(), "nothing starts before the task may run")
	m.Start()
	require.Equal(t, []int{0, 1}, m.Next())
}

func TestMachine_RunsAtMostLimitItems(t *testing.T) {
	m := threeWaves(1)
	m.Start()
	require.Equal(t, []int{0}, m.Next(), "at most one service runs at once")
	m.Began(0)
	require.Empty(t, m.Next(), "no other starts while one runs")
	m.Ended(0, ItemSucceeded, "")
	require.Equal(t, []int{1}, m.Next(), "the next one starts when the first has ended")
}

// For any order of events, waves never overlap, and without further commands the task ends or is paused.
func TestMachine_NeverOverlapsWaves_ForAnyEvents(t *testing.T) {
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
		require.True(t, m.Finished() || m.State == TaskPaused, "without further commands, %s ends or is paused",
			m.State)
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
		m.Interrupted(n, "missing")
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
	for n := range m.Items {
		if m.Item(n) == ItemRunning {
			m.Ended(n, ItemSucceeded, "")
		}
	}
	m.Command(Command{Verb: VerbResume}, time.Time{})
	for _, n := range m.Next() {
		m.Began(n)
	}
}

// A task names the rollouts that it waits for. A stop with `to` also stops them.
func TestMachine_StopAndPause_WhileRolloutsRun(t *testing.T) {
	t.Parallel()
	machine := func(running ...int) *Machine {
		m := NewMachine([]ServiceStatus{{ServiceID: "a"}, {ServiceID: "b", RollOut: true}}, 0, false)
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
		"Pause": {"the message names the rollouts that the task waits for", machine(0, 1),
			[]Command{{Verb: VerbPause}}, audit.Accepted, "rollouts release service b", TaskPausing},
		"Stop": {"a plain stop lets rollouts continue", machine(0, 1), []Command{{Verb: VerbStop}},
			audit.Accepted, "`stop` with `to`", TaskStopping},
		"StopTo": {"the rollout is stopped as well", machine(0, 1), []Command{{Verb: VerbStop, To: "stable"}},
			audit.Accepted, "the rollouts of service b are stopped to stable", TaskStopping},
		"NoRollout": {"`to` would be ignored", machine(0), []Command{{Verb: VerbStop, To: "stable"}}, audit.Refused,
			"send stop without it", TaskRunning},
		"Twice": {"the answer names the remedy", machine(1), []Command{{Verb: VerbStop}, {Verb: VerbStop}},
			audit.Refused, "`stop` with `to`", TaskStopping},
		"StopThenTo": {"a stop that waits for an approval can be completed", machine(1),
			[]Command{{Verb: VerbStop}, {Verb: VerbStop, To: "new"}}, audit.Accepted, "stopped to new", TaskStopping},
		"NoneLeft": {"only the other service runs", machine(0),
			[]Command{{Verb: VerbStop}, {Verb: VerbStop, To: "new"}}, audit.Refused, "wait for Stopped", TaskStopping},
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
			if outcome == audit.Accepted && test.m.StopTo != "" {
				require.Contains(t, test.m.Reason, "are stopped to "+test.m.StopTo,
					"the reason does not suggest a stop that is in progress")
				require.NotContains(t, test.m.Reason, "`stop` with `to`")
				next := NewMachine([]ServiceStatus{{ServiceID: "a"}, {ServiceID: "b", RollOut: true}}, 0, false)
				next.Memory = test.m.Memory
				next.updateState()
				require.Equal(t, test.m.Reason, next.Reason, "the state survives continue-as-new")
			}
		})
	}
}

// A rollout that the task itself has stopped fails its service, but not the task.
func TestMachine_IsStopped_WhenItsStopEndedRollout(t *testing.T) {
	t.Parallel()
	m := NewMachine([]ServiceStatus{{ServiceID: "a", RollOut: true}}, 0, false)
	m.Start()
	m.Began(0)
	_, _ = m.Command(Command{Verb: VerbStop, To: "stable"}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	m.Abandoned(0, "rolled back")
	require.Equal(t, TaskStopped, m.State)
}
