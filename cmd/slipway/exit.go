package main

import "fmt"

// The exit codes, documented in the help of `slipway` and of `slipway task watch`; pipelines rely on them.
const (
	exitOK          = 0
	exitFailure     = 1   // the task Failed, or the command did
	exitUsage       = 2   // the command line or a setting is wrong
	exitStopped     = 3   // the task was Stopped
	exitInterrupted = 4   // the task is Interrupted (with --exit-on-interrupted)
	exitPaused      = 5   // it is Paused, or waits for a person (with --exit-on-paused)
	exitTimeout     = 124 // --timeout passed, as timeout(1) has it
	exitSignal      = 130 // ended by Ctrl-C, as shells have it
)

// exitError ends the process with a code of its own. Without err everything has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is an error of usage that is found only after the command began.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}
