package workloadops

// FieldChange is a field of a pod template that an operation would change.
type FieldChange struct {
	// Field is its path: "spec.containers[app].image".
	Field string `json:"field"`
	// From and To are its values, "" where there is none.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Hidden says that the values may be secret, and aren't told.
	Hidden bool `json:"hidden,omitempty"`
}
