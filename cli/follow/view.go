package follow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/phrase"
)

// view shows a release (a task, rollout or serving) while it is watched.
type view[T any] interface {
	// Show shows an update.
	Show(Update[T])
	// Tick is called every second.
	Tick()
	// End shows the last state and returns the watch's exit code as an error; nil for success.
	End(code int) error
	// Close restores the terminal. It may be called more than once.
	Close()
}

// Renderer renders a kind of release for users.
type Renderer[T any] struct {
	// Fit draws as much of the release as fits into width columns and height lines.
	Fit func(d render.Drawing, t T, width, height int) []string
	// Changes returns the differences between two states, a line each. look is the time of the read.
	Changes func(before, now T, look time.Time) []Change
	// Summary returns the final lines: how the release ended and what to do next.
	Summary func(T) string
}

// NewView returns the view for the output: JSON or YAML for programs, a live drawing on a terminal, lines in a log.
func NewView[T any](a *app.App, p Renderer[T]) view[T] {
	if _, _, terminal := a.Screen(); terminal && a.Output == app.Table {
		return &LiveView[T]{app: a, renderer: p, Drawing: a.Drawing()}
	}
	return &plainView[T]{app: a, renderer: p}
}

func exitError(code int) error {
	if code == app.ExitOK {
		return nil
	}
	return &app.ExitError{Code: code}
}

// plainView prints a line per change and the final lines; if silent, only the final lines. For programs, it prints the
// complete release at each change: one line of JSON, or one YAML document.
type plainView[T any] struct {
	app      *app.App
	renderer Renderer[T]
	silent   bool
	last     T
	lastText string
}

func (v *plainView[T]) Show(u Update[T]) {
	a, look := v.app, v.app.Now()
	switch {
	case u.Lost != "":
		a.Printf(a.Err, "%s  event stream lost, retrying: %s\n", look.Format(time.TimeOnly), render.OneLine(u.Lost))
	case u.Stale != "":
		a.Printf(a.Err, "%s  the state may be out of date: %s\n", look.Format(time.TimeOnly), render.OneLine(u.Stale))
	case a.Output != app.Table:
		text, err := json.Marshal(u.State)
		if err == nil && string(text) != v.lastText {
			v.lastText = string(text)
			_, _ = a.PrintEach(json.RawMessage(text)) // a JSONPath that fails on this state may match the next one
		}
	case !v.silent:
		for _, line := range v.renderer.Changes(v.last, *u.State, look) {
			a.Printf(a.Out, "%s  %s\n", render.Clock(line.At, look), line.Text)
		}
	}
	if u.State != nil {
		v.last = *u.State
	}
}

func (v *plainView[T]) Tick()  {}
func (v *plainView[T]) Close() {}

func (v *plainView[T]) End(code int) error {
	if v.app.Output == app.Table {
		v.app.Printf(v.app.Out, "%s\n", v.renderer.Summary(v.last))
	}
	return exitError(code)
}

// LiveView draws the release on a terminal and keeps the drawing up to date.
type LiveView[T any] struct {
	app      *app.App
	renderer Renderer[T]
	Drawing  render.Drawing
	state    T
	warning  string
	// drawnLines is the number of lines of the drawing on the screen, drawnWidth the terminal width when they were
	// drawn.
	drawnLines, drawnWidth int
	closed                 bool
}

// Show takes an update and draws it.
func (v *LiveView[T]) Show(u Update[T]) {
	now := v.app.Now().Format(time.TimeOnly)
	switch {
	case u.State != nil:
		v.state, v.warning = *u.State, ""
	case u.Lost != "":
		v.warning = fmt.Sprintf("connection lost at %s, retrying: %s", now, render.OneLine(u.Lost))
	case u.Stale != "":
		v.warning = fmt.Sprintf("may be out of date since %s: %s", now, render.OneLine(u.Stale))
	}
	v.Tick()
}

// Tick redraws the state, to update ages and countdowns.
func (v *LiveView[T]) Tick() {
	width, height, ok := v.app.Screen()
	if !ok {
		return
	}
	lines := v.renderer.Fit(v.Drawing, v.state, width, height-2)
	if v.warning != "" {
		lines = append(lines, v.Drawing.Paint(render.Yellow, render.Truncate(v.warning, width-1)))
	}
	v.draw(lines, width)
}

// draw replaces the previous drawing in a single write, to avoid flicker.
func (v *LiveView[T]) draw(lines []string, width int) {
	var text strings.Builder
	switch {
	case v.drawnLines > 0 && width < v.drawnWidth:
		// The terminal has rewrapped the old lines, so their position is unknown: clear the screen.
		text.WriteString("\x1b[H\x1b[2J")
	case v.drawnLines > 0:
		fmt.Fprintf(&text, "\x1b[%dA\r", v.drawnLines)
	default:
		text.WriteString("\x1b[?25l") // hide the cursor
	}
	for _, line := range lines {
		text.WriteString(line + "\x1b[K\r\n")
	}
	text.WriteString("\x1b[J")
	v.app.Printf(v.app.Out, "%s", text.String())
	v.drawnLines, v.drawnWidth = len(lines), width
}

// maxFinalLines bounds the lines of the final drawing. It is not redrawn, so it may scroll: most tasks are printed
// completely.
const maxFinalLines = 200

// End draws the complete last state and the final lines, and returns the exit code as an error.
func (v *LiveView[T]) End(code int) error {
	if width, _, ok := v.app.Screen(); ok {
		lines := append(v.renderer.Fit(v.Drawing, v.state, render.Unbounded, maxFinalLines), "")
		v.draw(append(lines, strings.Split(v.renderer.Summary(v.state), "\n")...), width)
	}
	v.Close()
	return exitError(code)
}

// Close shows the cursor again.
func (v *LiveView[T]) Close() {
	if !v.closed && v.drawnLines > 0 {
		v.app.Printf(v.app.Out, "\x1b[?25h") // show the cursor
	}
	v.closed = true
}

// Change is one line about a change of a release, with its time.
type Change struct {
	At   time.Time
	Text string
}

// Changes collects the lines about changes of a release.
type Changes []Change

// Add adds a line.
func (c *Changes) Add(at time.Time, format string, args ...any) {
	*c = append(*c, Change{At: at, Text: fmt.Sprintf(format, args...)})
}

// Sorted returns the lines sorted by time, with a resolution of one second.
func (c Changes) Sorted() []Change {
	slices.SortStableFunc(c, func(a, b Change) int { return cmp.Compare(a.At.Unix(), b.At.Unix()) })
	return c
}

// AddDecisions adds a line per request of an actor. An entry without a time gets the time of the read, look.
func (c *Changes) AddDecisions(sent []audit.Entry, look time.Time) {
	for _, d := range sent {
		c.Add(render.TimeOrDefault(&d.At, look), "%s", decision(d))
	}
}

// decision returns, for example, "approve step 2 by li via cli, accepted: … (reason given: …)".
func decision(d audit.Entry) string {
	what := string(d.Verb)
	if d.Step > 0 {
		what += fmt.Sprintf(" step %d", d.Step)
	}
	if d.Party != "" {
		what += " " + d.Party
	}
	text := fmt.Sprintf("%s by %s via %s, %s: %s", render.OneLine(what), cmp.Or(render.OneLine(d.Actor), "unknown"),
		render.OneLine(d.Via), render.OneLine(string(d.Outcome)), render.OneLine(d.Message))
	if d.Reason != "" {
		text += fmt.Sprintf(" (reason given: %s)", render.OneLine(d.Reason))
	}
	return text
}

// NewDecisions returns the requests of actors that have been added to a history since it was before. Its length doesn't
// show that: once a history is full, it drops an entry for each new one.
func NewDecisions(before, now []audit.Entry) []audit.Entry {
	if len(before) == 0 {
		return now
	}
	last := before[len(before)-1]
	for i := len(now) - 1; i >= 0; i-- {
		same := now[i].At.Equal(last.At) && now[i].Verb == last.Verb && now[i].Actor == last.Actor &&
			now[i].Key == last.Key && now[i].Outcome == last.Outcome
		if same || now[i].At.Before(last.At) {
			return now[i+1:]
		}
	}
	return now
}

// Footer returns the lines below the drawing of a release: the actors' requests, with the number of refused ones that
// are no longer kept, and the workflow.
func Footer(sent []audit.Entry, refusalsDropped int64, workflow *audit.WorkflowRef) []render.Line {
	var lines []render.Line
	if len(sent) > 0 {
		lines = append(lines, render.Line{}, render.Line{{Text: "history"}})
	}
	if refusalsDropped > 0 {
		lines = append(lines, render.Line{{Text: "  " + phrase.Count(int(refusalsDropped), "older refused command") +
			" not kept"}})
	}
	for _, d := range sent {
		lines = append(lines, render.Line{{Text: "  " + d.At.Local().Format(time.DateTime) + "  " + decision(d)}})
	}
	if workflow != nil && workflow.ID != "" {
		text := strings.TrimSpace("workflow " + workflow.ID + "  " + workflow.URL)
		lines = append(lines, render.Line{}, render.Line{{Text: render.OneLine(text)}})
	}
	return lines
}
