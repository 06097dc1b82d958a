package attempt

import (
	"fmt"
	"log/slog"
	"runtime/debug"
)

// WithRecover calls do on a goroutine that an activity has started, where the SDK does not recover panics: a panic is
// logged and returned as an error.
func WithRecover(log *slog.Logger, do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
			log.Error("panic in an activity", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	return do()
}
