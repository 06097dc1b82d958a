// Package app holds what all commands share: streams and terminal, flags, names, exit codes, output formats and the
// connection to the engine.
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
	"slipway.io/slipway/pause"
)

// App holds the streams, the terminal and the clock of a command line.
type App struct {
	// Name is the program name from the command line. If it is the kubectl plugin's, help shows "kubectl slipway"; ""
	// means slipway.
	Name     string
	In       io.Reader
	Out, Err io.Writer
	// Screen returns the size of the terminal behind Out, in characters; ok is false if Out is not a terminal.
	Screen func() (width, height int, ok bool)
	Colour bool
	// InIsTerminal reports whether In is a terminal, so that the user can answer questions.
	InIsTerminal bool
	// ErrIsTerminal reports whether Err is a terminal.
	ErrIsTerminal bool
	Now           func() time.Time
	// Wait sleeps between attempts and returns early when the context ends.
	Wait func(ctx context.Context, d time.Duration)
	// Output is the output format from -o.
	Output string
	// MaxFindings bounds the printed findings per document; 0 prints all.
	MaxFindings int
	// ArgsAccepted is set when a command's arguments have been accepted. Earlier errors are usage errors.
	ArgsAccepted bool
}

// New returns an App for these streams.
func New(in io.Reader, out, errors *os.File) *App {
	a := &App{In: in, Out: out, Err: errors, Now: time.Now,
		Wait: func(ctx context.Context, d time.Duration) { _ = pause.For(ctx, d) }}
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

// Printf writes text for users. It ignores write errors, because there is no other place to report them.
func (a *App) Printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// Draw prints the lines to Out.
func (a *App) Draw(lines []string) {
	for _, line := range lines {
		a.Printf(a.Out, "%s\n", line)
	}
}

// Drawing returns the drawing settings for this terminal.
func (a *App) Drawing() render.Drawing { return render.Drawing{Colour: a.Colour, Now: a.Now} }

// RequireConfirmation asks the user to confirm. Without a terminal it returns a usage error that names the flags that
// confirm instead.
func (a *App) RequireConfirmation(question, flags string) error {
	if !a.InIsTerminal {
		return Usagef("confirmation is required, but standard input is not a terminal: add %s", flags)
	}
	if !a.Confirm(question) {
		a.Printf(a.Err, "Nothing was changed.\n")
		return &ExitError{Code: ExitFailure}
	}
	return nil
}

// Confirm asks a yes/no question. Anything but y or yes means no.
func (a *App) Confirm(question string) bool {
	a.Printf(a.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.In).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// The exit codes, documented in the help of `slipway` and of `slipway task watch`. CI pipelines rely on them.
const (
	ExitOK          = 0
	ExitFailure     = 1   // the task Failed, or the command failed
	ExitUsage       = 2   // invalid command line or setting
	ExitStopped     = 3   // the task was Stopped
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
