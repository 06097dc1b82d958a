package app

import "fmt"

// The exit codes, documented in the help of `slipway` and of `slipway task watch`. CI pipelines rely on them.
const (
	ExitOK          = 0
	ExitFailure     = 1   // the task Failed, or the command failed
	ExitUsage       = 2   // invalid command line or setting
	ExitStopped     = 3   // the release was stopped, cancelled or rolled back
	ExitInterrupted = 4   // the task is Interrupted (with --exit-on-interrupted)
	ExitPaused      = 5   // the release is Paused, or waits for approval (with --exit-on-paused)
	ExitFailed      = 6   // the awaited object has Failed, as opposed to the command (ExitFailure)
	ExitTimeout     = 124 // --timeout passed, as in timeout(1)
	ExitSignal      = 130 // interrupted by Ctrl-C, as in shells
)

// ExitError ends the process with its exit code. If Err is nil, the command has already printed the error.
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

// Usagef returns a usage error for problems found after the arguments were accepted.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}
