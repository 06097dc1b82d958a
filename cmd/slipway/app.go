package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is what the commands share: the streams, the screen and the clock.
type app struct {
	in       io.Reader
	out, err io.Writer
	// screen is the size of the terminal that out is, in characters; ok is false when out is none.
	screen func() (width, height int, ok bool)
	colour bool
	// errIsTerminal says whether a person reads err.
	errIsTerminal bool
	now           func() time.Time
	// wait pauses between attempts; it ends early with the context.
	wait func(ctx context.Context, d time.Duration)
	// mostFindings is how many findings on one document are printed; 0: all of them.
	mostFindings int
	// begun is set when a command's arguments were accepted: an error before is one of usage.
	begun bool
}

func newApp(in io.Reader, out, errors *os.File) *app {
	a := &app{in: in, out: out, err: errors, now: time.Now, wait: waitFor}
	a.screen = func() (int, int, bool) {
		fd := int(out.Fd())
		if !term.IsTerminal(fd) || os.Getenv("TERM") == "dumb" {
			return 0, 0, false
		}
		width, height, err := term.GetSize(fd)
		return width, height, err == nil && width > 0 && height > 4
	}
	a.errIsTerminal = term.IsTerminal(int(errors.Fd()))
	_, _, terminal := a.screen()
	a.colour = terminal && os.Getenv("NO_COLOR") == ""
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

// run executes the command line and returns the process's exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.begun {
		a.printf(a.err, "error: %s\nSee `%s --help`.\n", err, command.CommandPath())
		return exitUsage
	}
	var exit *exitError
	if errors.As(err, &exit) && exit.err == nil {
		return exit.code
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		a.printf(a.err, "interrupted\n")
		return exitSignal
	}
	a.printf(a.err, "%s", explain(err, a.mostFindings))
	if exit != nil {
		return exit.code
	}
	return exitFailure
}

// printf writes text for people. A failed write to a closed pipe has nobody to be reported to.
func (a *app) printf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}

// markBegun makes every command of the tree note that it began, which tells errors of usage from the others, and for whom it prints.
func (a *app) markBegun(command *cobra.Command) {
	if run := command.RunE; run != nil {
		command.RunE = func(c *cobra.Command, args []string) error {
			a.begun = true
			if form := c.Flags().Lookup("output"); form == nil || form.Value.String() == outputTable {
				a.mostFindings = mostFindings
			}
			return run(c, args)
		}
	}
	for _, child := range command.Commands() {
		a.markBegun(child)
	}
}
