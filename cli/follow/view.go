package follow

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
)

// view shows a release, a task or a rollout, while it is watched.
type view[T any] interface {
	// Show takes an update in.
	Show(Update[T])
	// Tick is called every second.
	Tick()
	// End shows the last state and gives the watch's exit code as an error, nil for success.
	End(code int) error
	// Close leaves the terminal as it was; it may be called again.
	Close()
}

// Portrait says how a kind of release is shown to people.
type Portrait[T any] struct {
	// Fit draws as much of it as width columns and height lines hold.
	Fit func(d render.Drawing, t T, width, height int) []string
	// Changes tell how it came from one state to the next.
	Changes func(before, now T, look time.Time) []Change
	// Epilogue is the last word on it, and what to do next.
	Epilogue func(T) string
}

// NewView chooses how a release is shown: to programs, to a person at a terminal, or to a log.
func NewView[T any](a *app.App, p Portrait[T]) view[T] {
	if a.Output != app.Table {
		return &objectView[T]{app: a}
	}
	if _, _, terminal := a.Screen(); terminal {
		return &LiveView[T]{app: a, portrait: p, Drawing: a.Drawing()}
	}
	return &logView[T]{app: a, portrait: p}
}

func endWith(code int) error {
	if code == app.ExitOK {
		return nil
	}
	return &app.ExitError{Code: code}
}

// objectView prints the whole release at each change: JSON one to a line, YAML as documents.
type objectView[T any] struct {
	app  *app.App
	last string
}

func (v *objectView[T]) Show(u Update[T]) {
	if u.State == nil {
		noteTrouble(v.app, u.Lost, u.Stale)
		return
	}
	text, err := json.Marshal(u.State)
	if err != nil || string(text) == v.last {
		return
	}
	v.last = string(text)
	_, _ = v.app.PrintEach(json.RawMessage(text)) // a path that fits none of this state may fit the next one
}

func (v *objectView[T]) Tick() {}

func (v *objectView[T]) End(code int) error { return endWith(code) }

func (v *objectView[T]) Close() {}

// noteTrouble says on the error stream that the state may be out of date.
func noteTrouble(a *app.App, lost, stale string) {
	switch {
	case lost != "":
		a.Printf(a.Err, "%s  the stream broke off, trying again: %s\n", a.Now().Format(time.TimeOnly), render.OneLine(lost))
	case stale != "":
		a.Printf(a.Err, "%s  the state may be out of date: %s\n", a.Now().Format(time.TimeOnly), render.OneLine(stale))
	}
}

// logView prints one line for each change, and the last word; a silent one only that.
type logView[T any] struct {
	app      *app.App
	portrait Portrait[T]
	silent   bool
	last     T
}

func (v *logView[T]) Show(u Update[T]) {
	if u.State == nil {
		noteTrouble(v.app, u.Lost, u.Stale)
		return
	}
	if look := v.app.Now(); !v.silent {
		for _, line := range v.portrait.Changes(v.last, *u.State, look) {
			v.app.Printf(v.app.Out, "%s  %s\n", render.Clock(line.At, look), line.Text)
		}
	}
	v.last = *u.State
}

func (v *logView[T]) Tick() {}

func (v *logView[T]) Close() {}

func (v *logView[T]) End(code int) error {
	v.app.Printf(v.app.Out, "%s\n", v.portrait.Epilogue(v.last))
	return endWith(code)
}

// LiveView draws the release on a terminal and keeps the drawing up to date.
type LiveView[T any] struct {
	app      *app.App
	portrait Portrait[T]
	Drawing  render.Drawing
	state    T
	trouble  string
	// drawn is how many lines of the drawing are on the screen, width how wide that was.
	drawn, width int
	closed       bool
}

// Show takes an update and draws it.
func (v *LiveView[T]) Show(u Update[T]) {
	now := v.app.Now().Format(time.TimeOnly)
	switch {
	case u.State != nil:
		v.state, v.trouble = *u.State, ""
	case u.Lost != "":
		v.trouble = fmt.Sprintf("no connection since %s, trying again: %s", now, render.OneLine(u.Lost))
	case u.Stale != "":
		v.trouble = fmt.Sprintf("may be out of date since %s: %s", now, render.OneLine(u.Stale))
	}
	v.Tick()
}

// Tick draws the state anew: ages and countdowns move on.
func (v *LiveView[T]) Tick() {
	width, height, ok := v.app.Screen()
	if !ok {
		return
	}
	lines := v.portrait.Fit(v.Drawing, v.state, width, height-2)
	if v.trouble != "" {
		lines = append(lines, v.Drawing.Paint(render.Yellow, render.Clipped(v.trouble, width-1)))
	}
	v.draw(lines, width)
}

// draw puts the lines in the place of those that were drawn before, in one write so that nothing flickers.
func (v *LiveView[T]) draw(lines []string, width int) {
	var text strings.Builder
	switch {
	case v.drawn > 0 && width < v.width:
		// The terminal has broken the old lines anew: nobody knows where they begin.
		text.WriteString("\x1b[H\x1b[2J")
	case v.drawn > 0:
		fmt.Fprintf(&text, "\x1b[%dA\r", v.drawn)
	default:
		text.WriteString("\x1b[?25l") // hide the cursor
	}
	for _, line := range lines {
		text.WriteString(line + "\x1b[K\r\n")
	}
	text.WriteString("\x1b[J")
	v.app.Printf(v.app.Out, "%s", text.String())
	v.drawn, v.width = len(lines), width
}

// mostAtEnd is how many lines the last drawing has at most. It is not redrawn, so it may scroll, and all of a usual task stays to be read.
const mostAtEnd = 200

// End draws the last state whole, with what follows it, and answers the exit code as an error.
func (v *LiveView[T]) End(code int) error {
	if width, _, ok := v.app.Screen(); ok {
		lines := append(v.portrait.Fit(v.Drawing, v.state, render.Unbounded, mostAtEnd), "")
		v.draw(append(lines, strings.Split(v.portrait.Epilogue(v.state), "\n")...), width)
	}
	v.Close()
	return endWith(code)
}

// Close gives the terminal its cursor back.
func (v *LiveView[T]) Close() {
	if !v.closed && v.drawn > 0 {
		v.app.Printf(v.app.Out, "\x1b[?25h") // show the cursor
	}
	v.closed = true
}
