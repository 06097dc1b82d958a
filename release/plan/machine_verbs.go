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
	// To is how a stop ends the running rollouts of the task: stable, new or frozen. "": they continue to their end.
	To string `json:"to,omitempty"`
	// Prevented is the reason why the caller refuses the verb; "" if it does not.
	Prevented string `json:"-"`
}

func (c Command) entry(now time.Time) audit.Entry {
	return audit.Entry{At: now, Actor: c.Actor, Via: c.Via, Verb: c.Verb, Reason: c.Reason, Key: c.Key}
}

// Command executes a verb if the state allows it, and logs it. The message says what was done, or why it was refused
// and what to do instead.
func (m *Machine) Command(c Command, now time.Time) (audit.Outcome, string) {
	return m.Log.Apply(c.entry(now), c, func(*audit.Entry) (done, refusal string) {
		if done, refusal = m.execute(c); refusal == "" {
			m.updateState()
		}
		return done, refusal
	})
}

// Refuse logs a command that could not be read.
func (m *Machine) Refuse(c Command, why string, now time.Time) {
	e := c.entry(now)
	e.Outcome, e.Message = audit.Refused, why
	m.Log.Append(e)
}

// Audit returns the history of received commands.
func (m *Machine) Audit() *audit.Log { return &m.Log }

// execute executes a verb if the state allows it: either done or refusal is set.
func (m *Machine) execute(c Command) (done, refusal string) {
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
		return "", fmt.Sprintf("a task has no verb %q: use pause, resume, stop or approve", c.Verb)
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
		return "", m.illegalVerb(VerbPause)
	}
}

func (m *Machine) resume() (done, refusal string) {
	switch m.State {
	case TaskPausing:
		m.State = TaskRunning
		return "resumed: the pause is cancelled", ""
	case TaskPaused:
		m.State = TaskRunning
		if !m.Started {
			m.State = TaskPending
		}
		return "resumed: the next services start", ""
	case TaskInterrupted:
		for n := range m.Items {
			m.Items[n].Interrupted = ""
		}
		m.State = TaskRunning
		return "resumed: the interrupted services go on from where they are", ""
	case TaskRunning, TaskPending:
		return "", fmt.Sprintf("the task is %s: there is nothing to resume", m.State)
	default:
		return "", m.illegalVerb(VerbResume)
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
		if m.StopTo = to; to != "" {
			return m.stoppingRollouts() + "; nothing new starts", ""
		}
		return m.finishing() + "; nothing new starts", ""
	case TaskStopping:
		switch {
		case to != "" && len(rolling) > 0:
			m.StopTo = to
			return m.stoppingRollouts(), ""
		case len(rolling) > 0:
			return "", "the task is Stopping already: " + m.finishing()
		}
		return "", "the task is Stopping already: wait for Stopped"
	default:
		return "", m.illegalVerb(VerbStop)
	}
}

// stoppingRollouts describes how the rollouts end.
func (m *Machine) stoppingRollouts() string {
	return fmt.Sprintf("the rollouts of %s are stopped to %s", m.named(m.rolling()), m.StopTo)
}

func (m *Machine) illegalVerb(verb Verb) string {
	switch {
	case m.State.Final():
		return fmt.Sprintf("the task is %s, which is final: it cannot %s; execute the plan again", m.State, verb)
	case m.State == TaskStopping:
		return fmt.Sprintf("the task is Stopping: it cannot %s; execute the plan again once it is Stopped", verb)
	default:
		return fmt.Sprintf("a task that is %s cannot %s; resume or stop it", m.State, verb)
	}
}
