// Package app is what all commands share: the streams and the screen, flags, names, exit codes, forms of output and the connection to the engine.
package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"slipway.io/slipway/cli/render"
)

// App is what the commands share: the streams, the screen and the clock.
type App struct {
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
