package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// view shows a release, a task or a rollout, while it is watched.
type view[T any] interface {
	// show takes an update in.
	show(update[T])
	// tick is called every second.
	tick()
	// end shows the last state and gives the watch's exit code as an error, nil for success.
	end(code int) error
	// close leaves the terminal as it was; it may be called again.
	close()
}

// portrait says how a kind of release is shown to people.
type portrait[T any] struct {
	// fit draws as much of it as width columns and height lines hold.
	fit func(d drawing, t T, width, height int) []string
	// changes tell how it came from one state to the next.
	changes func(before, now T, look time.Time) []change
	// epilogue is the last word on it, and what to do next.
	epilogue func(T) string
}

// newView chooses how a release is shown: to programs, to a person at a terminal, or to a log.
func newView[T any](a *app, output string, p portrait[T]) view[T] {
	if output != outputTable {
		return &objectView[T]{app: a, output: output}
	}
	if _, _, terminal := a.screen(); terminal {
		return &liveView[T]{app: a, portrait: p, drawing: a.drawing()}
	}
	return &logView[T]{app: a, portrait: p}
}

// endWith is the exit code as an error.
func endWith(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// objectView prints the whole release at each change: JSON one to a line, YAML as documents.
type objectView[T any] struct {
	app    *app
	output string
	last   string
}

func (v *objectView[T]) show(u update[T]) {
	if u.state == nil {
		v.app.noteTrouble(u.lost, u.stale)
		return
	}
	text, err := json.Marshal(u.state)
	if err != nil || string(text) == v.last {
		return
	}
	v.last = string(text)
	if v.output == outputYAML {
		if text, err = yaml.JSONToYAML(text); err == nil {
			v.app.printf(v.app.out, "---\n%s", text)
		}
		return
	}
	v.app.printf(v.app.out, "%s\n", text)
}

func (v *objectView[T]) tick()              {}
func (v *objectView[T]) end(code int) error { return endWith(code) }
func (v *objectView[T]) close()             {}

// noteTrouble says on the error stream that the state may be out of date.
func (a *app) noteTrouble(lost, stale string) {
	switch {
	case lost != "":
		a.printf(a.err, "%s  the stream broke off, trying again: %s\n", a.now().Format(time.TimeOnly), oneLine(lost))
	case stale != "":
		a.printf(a.err, "%s  the state may be out of date: %s\n", a.now().Format(time.TimeOnly), oneLine(stale))
	}
}

// clock is a time as a person reads it today: the date is there when it is another.
func clock(at, today time.Time) string {
	at = at.In(today.Location())
	if at.Format(time.DateOnly) != today.Format(time.DateOnly) {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}

// logView prints one line for each change.
type logView[T any] struct {
	app      *app
	portrait portrait[T]
	last     T
}

func (v *logView[T]) show(u update[T]) {
	if u.state == nil {
		v.app.noteTrouble(u.lost, u.stale)
		return
	}
	look := v.app.now()
	for _, line := range v.portrait.changes(v.last, *u.state, look) {
		v.app.printf(v.app.out, "%s  %s\n", clock(line.at, look), line.text)
	}
	v.last = *u.state
}

func (v *logView[T]) tick()  {}
func (v *logView[T]) close() {}

func (v *logView[T]) end(code int) error {
	v.app.printf(v.app.out, "%s\n", v.portrait.epilogue(v.last))
	return endWith(code)
}

// lastWord says nothing but the end, and trouble on the way.
type lastWord[T any] struct {
	app      *app
	portrait portrait[T]
	last     T
}

func (v *lastWord[T]) show(u update[T]) {
	if u.state == nil {
		v.app.noteTrouble(u.lost, u.stale)
		return
	}
	v.last = *u.state
}

func (v *lastWord[T]) tick()  {}
func (v *lastWord[T]) close() {}

func (v *lastWord[T]) end(code int) error {
	v.app.printf(v.app.out, "%s\n", v.portrait.epilogue(v.last))
	return endWith(code)
}

// liveView draws the release on a terminal and keeps the drawing up to date.
type liveView[T any] struct {
	app      *app
	portrait portrait[T]
	drawing  drawing
	state    T
	trouble  string
	// drawn is how many lines of the drawing are on the screen, width how wide that was.
	drawn, width int
	closed       bool
}

func (v *liveView[T]) show(u update[T]) {
	now := v.app.now().Format(time.TimeOnly)
	switch {
	case u.state != nil:
		v.state, v.trouble = *u.state, ""
	case u.lost != "":
		v.trouble = fmt.Sprintf("no connection since %s, trying again: %s", now, oneLine(u.lost))
	case u.stale != "":
		v.trouble = fmt.Sprintf("may be out of date since %s: %s", now, oneLine(u.stale))
	}
	v.tick()
}

func (v *liveView[T]) tick() {
	width, height, ok := v.app.screen()
	if !ok {
		return
	}
	lines := v.portrait.fit(v.drawing, v.state, width, height-2)
	if v.trouble != "" {
		lines = append(lines, v.drawing.paint(yellow, clipped(v.trouble, width-1)))
	}
	v.draw(lines, width)
}

// draw puts the lines in the place of those that were drawn before, in one write so that nothing flickers.
func (v *liveView[T]) draw(lines []string, width int) {
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
	v.app.printf(v.app.out, "%s", text.String())
	v.drawn, v.width = len(lines), width
}

// mostAtEnd is how many lines the last drawing has at most. It is not redrawn, so it may scroll, and all of a usual task stays to be read.
const mostAtEnd = 200

func (v *liveView[T]) end(code int) error {
	if width, _, ok := v.app.screen(); ok {
		lines := append(v.portrait.fit(v.drawing, v.state, unbounded, mostAtEnd), "")
		v.draw(append(lines, strings.Split(v.portrait.epilogue(v.state), "\n")...), width)
	}
	v.close()
	return endWith(code)
}

func (v *liveView[T]) close() {
	if !v.closed && v.drawn > 0 {
		v.app.printf(v.app.out, "\x1b[?25h") // show the cursor
	}
	v.closed = true
}
