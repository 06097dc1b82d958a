package rollout

// Started is a rollout as the answer to its start: what it is like now, and what is legal in its request but probably not meant.
type Started struct {
	Status
	Warnings []string `json:"warnings,omitempty"`
}
