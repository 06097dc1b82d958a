package follow

import (
	"time"
)

// Change is one line that tells what happened to a task, and when.
type Change struct {
	At   time.Time
	Text string
}
