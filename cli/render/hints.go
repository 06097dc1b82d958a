package render

// Hint is a command that a person can give now, and what it does.
type Hint struct{ Command, Effect string }
