package rollout

// The states of steps other than the current one, which has a StepState.
const (
	StepPending = "Pending"
	StepSkipped = "Skipped"
)

// StateUnknown is the state of a rollout's steps while nothing is known about them: its workflow does not answer, and
// has published nothing that still holds.
const StateUnknown StepState = "Unknown"

// Position is where a rollout is in its steps, small enough for the memo of a workflow. It is taken from one status as
// a whole, so that a view never shows a step beside what another step waits for.
type Position struct {
	Step       int       `json:"step,omitempty"`
	Next       int       `json:"next,omitempty"`
	State      StepState `json:"stepState,omitempty"`
	Finalising string    `json:"finalising,omitempty"`
	Paused     bool      `json:"paused,omitempty"`
	// Steps has a letter for the state of each step.
	Steps string `json:"steps,omitempty"`
}

// The letters of Position.Steps; any other one is the state of the current step.
const (
	letterPending = 'P'
	letterSkipped = 'S'
	letterDone    = 'C'
	letterCurrent = '.'
)

// Position returns where the rollout is.
func (s Status) Position() Position {
	letters := make([]byte, len(s.Steps))
	for i, step := range s.Steps {
		switch step.State {
		case StepPending:
			letters[i] = letterPending
		case StepSkipped:
			letters[i] = letterSkipped
		case string(StateCompleted):
			letters[i] = letterDone
		default:
			letters[i] = letterCurrent
		}
	}
	return Position{Step: s.CurrentStepIndex, Next: s.NextStepIndex, State: s.CurrentStepState,
		Finalising: s.FinalisingStep, Paused: s.Paused, Steps: string(letters)}
}

// PlaceAt makes the status show a position. One without a step, or of other steps, is unknown: then nothing is shown of
// the steps' progress.
func (s *Status) PlaceAt(p Position) {
	steps := make([]StepStatus, len(s.Steps)) // views share the original ones
	copy(steps, s.Steps)
	s.Steps = steps
	if p.Step < 1 || len(p.Steps) != len(steps) {
		p = Position{State: StateUnknown, Paused: s.Paused}
	}
	s.CurrentStepIndex, s.NextStepIndex, s.CurrentStepState = p.Step, p.Next, p.State
	s.FinalisingStep, s.Paused = p.Finalising, p.Paused
	for i := range steps {
		state := string(p.State)
		if p.Steps != "" {
			switch p.Steps[i] {
			case letterPending:
				state = StepPending
			case letterSkipped:
				state = StepSkipped
			case letterDone:
				state = string(StateCompleted)
			}
		}
		steps[i].State = state
	}
}
