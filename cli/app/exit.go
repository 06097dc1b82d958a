package app

import (
	"fmt"
)

// The exit codes, documented in the help of `slipway` and of `slipway task watch`; pipelines rely on them.
const (
	ExitOK          = 0
	ExitFailure     = 1   // the task Failed, or the command did
	ExitUsage       = 2   // the command line or a setting is wrong
	ExitStopped     = 3   // the task was Stopped
	ExitInterrupted = 4   // the task is Interrupted (with --exit-on-interrupted)
	ExitPaused      = 5   // it is Paused, or waits for a person (with --exit-on-paused)
	ExitFailed      = 6   // what is waited for has Failed, where that has to be told from a command that failed
	ExitTimeout     = 124 // --timeout passed, as timeout(1) has it
	ExitSignal      = 130 // ended by Ctrl-C, as shells have it
)

// ExitError ends the process with a code of its own. Without err everything has been said already.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Usagef is an error of usage that is found only after the command began.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}
