package plan

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/audit"
)

// Command is a verb with its payload. All fields but Verb are optional.
type Command struct {
	Verb   Verb   `json:"verb"`
	Actor  string `json:"actor,omitempty"`
	Via    string `json:"via,omitempty"`
	Reason string `json:"reason,omitempty"`
	Key    string `json:"key,omitempty"`
	// To is where a stop leaves the rollouts of services that are being released: stable, new or frozen. "": they are left alone, and go on to their end.
	To string `json:"to,omitempty"`
	// Prevented is what keeps the verb from being carried out, as was found out for it; "" when nothing does.
	Prevented string `json:"-"`
}

func (c Command) entry(now time.Time) audit.Entry {
	return audit.Entry{At: now, Actor: c.Actor, Via: c.Via, Verb: c.Verb, Reason: c.Reason, Key: c.Key}
}

// Command carries out a verb where the state allows it, and notes it. The message says what it did, or why not and what to do instead.
func (m *Machine) Command(c Command, now time.Time) (audit.Outcome, string) {
	return m.log.Take(c.entry(now), c, func(*audit.Entry) (done, refusal string) {
		if done, refusal = m.carryOut(c); refusal == "" {
			m.settle()
		}
		return done, refusal
	})
}

// Refuse notes a command that could not be read.
func (m *Machine) Refuse(c Command, why string, now time.Time) {
	e := c.entry(now)
	e.Outcome, e.Message = audit.Refused, why
	m.log.Note(e)
}

// Audit is the log of what people have sent.
func (m *Machine) Audit() *audit.Log { return &m.log }

// carryOut does what the state allows: either done or refusal is set.
func (m *Machine) carryOut(c Command) (done, refusal string) {
	if c.Prevented != "" {
		return "", c.Prevented
	}
	switch c.Verb {
	case VerbPause:
		return m.pause()
	case VerbResume:
		return m.resume()
	case VerbStop:
		return m.stop(c.To)
	case VerbApprove:
		return m.approve(c.Reason)
	default:
		return "", fmt.Sprintf("a task has no verb %q: it knows pause, resume, stop and approve", c.Verb)
	}
}

func (m *Machine) pause() (done, refusal string) {
	switch m.State {
	case TaskPending, TaskRunning:
		m.State = TaskPausing
		return m.finishing() + "; nothing new starts", ""
	case TaskPausing, TaskPaused:
		return "", fmt.Sprintf("the task is %s already: send resume to go on", m.State)
	default:
		return "", m.illegal(VerbPause)
	}
}

func (m *Machine) resume() (done, refusal string) {
	switch m.State {
	case TaskPausing:
		m.State = TaskRunning
		return "resumed: the pause is taken back", ""
	case TaskPaused:
		m.State = TaskRunning
		if !m.started {
			m.State = TaskPending
		}
		return "resumed: the next services start", ""
	case TaskInterrupted:
		for n := range m.items {
			m.items[n].Interrupted = ""
		}
		m.State = TaskRunning
		return "resumed: the interrupted services go on from where they are", ""
	case TaskRunning, TaskPending:
		return "", fmt.Sprintf("the task is %s: there is nothing to resume", m.State)
	default:
		return "", m.illegal(VerbResume)
	}
}

func (m *Machine) stop(to string) (done, refusal string) {
	rolling := m.rolling()
	switch m.State {
	case TaskPending, TaskRunning, TaskPausing, TaskPaused, TaskInterrupted:
		if to != "" && len(rolling) == 0 {
			return "", "no rollout of the task runs, so there is nothing that `to` could be for: send stop without it"
		}
		m.State = TaskStopping
		if m.stopTo = to; to != "" {
			return m.stoppingRollouts() + "; nothing new starts", ""
		}
		return m.finishing() + "; nothing new starts", ""
	case TaskStopping:
		switch {
		case to != "" && len(rolling) > 0:
			m.stopTo = to
			return m.stoppingRollouts(), ""
		case len(rolling) > 0:
			return "", "the task is Stopping already: " + m.finishing()
		}
		return "", "the task is Stopping already: wait for Stopped"
	default:
		return "", m.illegal(VerbStop)
	}
}

// stoppingRollouts says what becomes of the rollouts.
func (m *Machine) stoppingRollouts() string {
	return fmt.Sprintf("the rollouts of %s are stopped to %s", m.named(m.rolling()), m.stopTo)
}

func (m *Machine) illegal(verb Verb) string {
	switch {
	case m.State.Final():
		return fmt.Sprintf("the task is %s, which is final: it cannot %s; execute the plan anew", m.State, verb)
	case m.State == TaskStopping:
		return fmt.Sprintf("the task is Stopping: it cannot %s; execute the plan anew once it is Stopped", verb)
	default:
		return fmt.Sprintf("a task that is %s cannot %s; resume or stop it", m.State, verb)
	}
}

// Memory is everything that a machine has to remember when its workflow continues as new. It is only ever extended.
type Memory struct {
	State   TaskState      `json:"state"`
	Reason  string         `json:"reason"`
	Started bool           `json:"started,omitempty"`
	Items   []itemProgress `json:"items"`
	Log     audit.Log      `json:"log"`
	// StopTo is where the rollouts are stopped to.
	StopTo string `json:"stopTo,omitempty"`
	// Opening is what is known of the task's times.
	Opening *Opening `json:"opening,omitempty"`
}

// itemProgress is how far one item is.
type itemProgress struct {
	State ItemState `json:"state"`
	// Interrupted is the system trouble that holds a running item up, "" when none does.
	Interrupted string `json:"interrupted,omitempty"`
	// Abandoned says that the item was given up while system trouble held it, or that its rollouts were stopped with the task: a failure of its own, not
	// one that fails the task.
	Abandoned bool   `json:"abandoned,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Memory is what the machine has to remember.
func (m *Machine) Memory() Memory {
	return Memory{State: m.State, Reason: m.Reason, Started: m.started, Items: m.items, Log: m.log, StopTo: m.stopTo, Opening: m.opening}
}

// Recall has a new machine go on where another one was.
func (m *Machine) Recall(was Memory) {
	m.State, m.Reason, m.started, m.items, m.log, m.opening = was.State, was.Reason, was.Started, was.Items, was.Log, was.Opening
	m.stopTo = was.StopTo
}
