package attempt

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// Recovered does something on a goroutine that an activity has begun, where nobody else would recover: a panic is logged, and is an error.
func Recovered(log *slog.Logger, do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
			log.Error("a part of an activity panicked", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	return do()
}
