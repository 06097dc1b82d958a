// Package app is what all commands share: the streams and the screen, flags, names, exit codes, forms of output and the connection
// to the engine.
package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"slipway.io/slipway/cli/render"
)

// App is what the commands share: the streams, the screen and the clock.
type App struct {
	// Name is how the program was called: as a plugin of kubectl it shows itself as "kubectl slipway"; "" is slipway.
	Name     string
	In       io.Reader
	Out, Err io.Writer
	// Screen is the size of the terminal that out is, in characters; ok is false when out is none.
	Screen func() (width, height int, ok bool)
	Colour bool
	// InIsTerminal says whether a person answers questions.
	InIsTerminal bool
	// ErrIsTerminal says whether a person reads err.
	ErrIsTerminal bool
	Now           func() time.Time
	// Wait pauses between attempts; it ends early with the context.
	Wait func(ctx context.Context, d time.Duration)
	// Output is the form of output that -o asks for.
	Output string
	// MostFindings is how many findings on one document are printed; 0: all of them.
	MostFindings int
	// Begun is set when a command's arguments were accepted: an error before is one of usage.
	Begun bool
}

// New is the command line on these streams.
func New(in io.Reader, out, errors *os.File) *App {
	a := &App{In: in, Out: out, Err: errors, Now: time.Now, Wait: waitFor}
	a.Screen = func() (int, int, bool) {
		fd := int(out.Fd())
		if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
			return 0, 0, false
		}
		width, height, err := term.GetSize(fd)
		return width, height, err == nil && width > 0 && height > 4
	}
	if file, ok := in.(*os.File); ok {
		a.InIsTerminal = term.IsTerminal(int(file.Fd()))
	}
	a.ErrIsTerminal = term.IsTerminal(int(errors.Fd()))
	_, _, terminal := a.Screen()
	a.Colour = terminal && os.Getenv("NO_COLOR") == ""
	return a
}

func waitFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Printf writes text for people. A failed write to a closed pipe has nobody to be reported to.
func (a *App) Printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// Draw prints the lines of a drawing.
func (a *App) Draw(lines []string) {
	for _, line := range lines {
		a.Printf(a.Out, "%s\n", line)
	}
}

// Drawing draws as this terminal shows it.
func (a *App) Drawing() render.Drawing { return render.Drawing{Colour: a.Colour, Now: a.Now} }

// Agree has a person confirm what was shown. Without a terminal nobody can: then the command line has to say it, by the flags in named.
func (a *App) Agree(question, named string) error {
	if !a.InIsTerminal {
		return Usagef("this needs a confirmation, and the standard input is no terminal: add %s", named)
	}
	if !a.Confirm(question) {
		a.Printf(a.Err, "Nothing was changed.\n")
		return &ExitError{Code: ExitFailure}
	}
	return nil
}

// Confirm asks a person. Whoever does not answer has not agreed.
func (a *App) Confirm(question string) bool {
	a.Printf(a.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

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
