package plan

// Report is what a task did, service by service, and how to take it back.
type Report struct {
	Task
	// Waves are the task's services by priority, the largest first; they index into Services.
	Waves []Wave `json:"waves"`
	// Reverse is how to restore what was released.
	Reverse Reverse `json:"reverse"`
}

// NewReport makes the report of a task from what it ran. A task that is not over yet is reported as far as it is.
func NewReport(t Task, snap Snapshot) Report {
	waves := t.Waves()
	return Report{Task: t, Waves: waves, Reverse: newReverse(t, waves, snap)}
}
