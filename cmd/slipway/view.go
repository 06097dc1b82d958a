package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/plan"
)

// view shows a task while it is watched.
type view interface {
	// show takes an update in.
	show(update)
	// tick is called every second.
	tick()
	// end shows the last state and gives the watch's exit code as an error, nil for success.
	end(code int) error
	// close leaves the terminal as it was; it may be called again.
	close()
}

// view chooses how a task is shown: to programs, to a person at a terminal, or to a log.
func (a *app) view(output string) view {
	if output != outputTable {
		return &objectView{app: a, output: output}
	}
	if _, _, terminal := a.screen(); terminal {
		return &liveView{app: a, drawing: a.drawing()}
	}
	return &logView{app: a}
}

// endWith is the exit code as an error.
func endWith(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// objectView prints the whole task at each change: JSON one to a line, YAML as documents.
type objectView struct {
	app    *app
	output string
	last   string
}

func (v *objectView) show(u update) {
	if u.task == nil {
		v.app.noteTrouble(u)
		return
	}
	text, err := json.Marshal(u.task)
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

func (v *objectView) tick()              {}
func (v *objectView) end(code int) error { return endWith(code) }
func (v *objectView) close()             {}

// noteTrouble says on the error stream that the state may be out of date.
func (a *app) noteTrouble(u update) {
	switch {
	case u.lost != "":
		a.printf(a.err, "%s  the stream broke off, trying again: %s\n", a.now().Format(time.TimeOnly), oneLine(u.lost))
	case u.stale != "":
		a.printf(a.err, "%s  the state may be out of date: %s\n", a.now().Format(time.TimeOnly), oneLine(u.stale))
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
type logView struct {
	app  *app
	last plan.Task
}

func (v *logView) show(u update) {
	if u.task == nil {
		v.app.noteTrouble(u)
		return
	}
	look := v.app.now()
	for _, line := range changes(v.last, *u.task, look) {
		v.app.printf(v.app.out, "%s  %s\n", clock(line.at, look), line.text)
	}
	v.last = *u.task
}

func (v *logView) tick()  {}
func (v *logView) close() {}

func (v *logView) end(code int) error {
	v.app.printf(v.app.out, "%s\n", v.app.epilogue(v.last))
	return endWith(code)
}

// epilogue is the last word on a task, and what to do next.
func (a *app) epilogue(t plan.Task) string {
	took := ""
	if t.StartedAt != nil && t.FinishedAt != nil {
		took = " after " + a.took(t.StartedAt, t.FinishedAt)
	}
	next := fmt.Sprintf("Report: slipway task report %s", t.ID)
	if !t.State.Final() {
		next = fmt.Sprintf("To go on: slipway task resume %s", t.ID)
	}
	return fmt.Sprintf("task %s is %s%s\n%s", t.ID, t.State, took, next)
}

// liveView draws the task on a terminal and keeps the drawing up to date.
type liveView struct {
	app     *app
	drawing drawing
	task    plan.Task
	trouble string
	// drawn is how many lines of the drawing are on the screen, width how wide that was.
	drawn, width int
	closed       bool
}

func (v *liveView) show(u update) {
	now := v.app.now().Format(time.TimeOnly)
	switch {
	case u.task != nil:
		v.task, v.trouble = *u.task, ""
	case u.lost != "":
		v.trouble = fmt.Sprintf("no connection since %s, trying again: %s", now, oneLine(u.lost))
	case u.stale != "":
		v.trouble = fmt.Sprintf("may be out of date since %s: %s", now, oneLine(u.stale))
	}
	v.tick()
}

func (v *liveView) tick() {
	width, height, ok := v.app.screen()
	if !ok {
		return
	}
	lines := v.drawing.fit(v.task, width, height-2)
	if v.trouble != "" {
		lines = append(lines, v.drawing.paint(yellow, clipped(v.trouble, width-1)))
	}
	v.draw(lines, width)
}

// draw puts the lines in the place of those that were drawn before, in one write so that nothing flickers.
func (v *liveView) draw(lines []string, width int) {
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

func (v *liveView) end(code int) error {
	if width, _, ok := v.app.screen(); ok {
		lines := append(v.drawing.fit(v.task, unbounded, mostAtEnd), "")
		v.draw(append(lines, strings.Split(v.app.epilogue(v.task), "\n")...), width)
	}
	v.close()
	return endWith(code)
}

func (v *liveView) close() {
	if !v.closed && v.drawn > 0 {
		v.app.printf(v.app.out, "\x1b[?25h") // show the cursor
	}
	v.closed = true
}
