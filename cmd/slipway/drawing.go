package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"slipway.io/slipway/release/plan"
)

// drawing draws a task for a person: its waves, their services, their workloads.
type drawing struct {
	colour bool
	now    func() time.Time
}

func (a *app) drawing() drawing { return drawing{colour: a.colour, now: a.now} }

// detail is how much of a task is drawn.
type detail int

const (
	everything  detail = iota // every workload of every service
	activeParts               // workloads only of services that run or failed
	activeWaves               // services only of waves that are under way or failed
	activeOnly                // only services that run or failed, the failed ones first
	oneLineEach               // workloads only of services that failed
	fewWaves                  // waves that are done, or to come, in one line together
	leastDetail = fewWaves
)

// whole draws all of the task, however wide and long that is.
func (d drawing) whole(t plan.Task) []string { return d.render(d.layout(t, everything), unbounded) }

// fit draws as much of the task as width columns and height lines hold; what moves or failed is left out last.
func (d drawing) fit(t plan.Task, width, height int) []string {
	lines := d.layout(t, everything)
	for level := activeParts; len(lines) > height && level <= leastDetail; level++ {
		lines = d.layout(t, level)
	}
	if rest := len(lines) - height; rest > 0 && height > 1 {
		lines = append(lines[:height-1:height-1], line{{text: fmt.Sprintf("  … and %d lines more", rest+1), colour: dim}})
	}
	return d.render(lines, width-1)
}

func (d drawing) layout(t plan.Task, level detail) []line {
	lines := d.header(t)
	waves := t.Waves()
	columns := measure(t)
	for n := 0; n < len(waves); n++ {
		state := waveState(t, waves[n])
		if level >= fewWaves && state != waveActive {
			last := n
			for last+1 < len(waves) && waveState(t, waves[last+1]) == state {
				last++
			}
			lines = append(lines, quietWaves(n, last, len(waves), state))
			n = last
			continue
		}
		lines = append(lines, d.waveLine(t, waves, n))
		if level >= activeWaves && state != waveActive {
			continue
		}
		for _, s := range servicesOf(t, waves[n], level) {
			withParts := level == everything || s.State == plan.ItemFailed || (s.State == plan.ItemRunning && level < oneLineEach)
			switch {
			case !withParts:
				s.Reason = briefly(s)
			case saidByPart(s):
				s.Reason = ""
			}
			lines = append(lines, d.serviceLine(s, columns))
			if withParts {
				lines = append(lines, d.workloadLines(s)...)
			}
		}
	}
	return lines
}

// servicesOf are the services of a wave that are drawn.
func servicesOf(t plan.Task, w plan.Wave, level detail) []plan.ServiceStatus {
	var all, failed, running []plan.ServiceStatus
	for _, i := range w.Items {
		s := t.Services[i]
		all = append(all, s)
		switch s.State {
		case plan.ItemFailed:
			failed = append(failed, s)
		case plan.ItemRunning:
			running = append(running, s)
		}
	}
	if level < activeOnly {
		return all
	}
	return append(failed, running...)
}

// saidByPart says whether the service's only workload says the same as the service.
func saidByPart(s plan.ServiceStatus) bool {
	return len(s.Workloads) == 1 && s.Workloads[0].Message == s.Reason
}

// briefly is what a service that is drawn without its workloads waits for: the message of the first workload that is under way.
func briefly(s plan.ServiceStatus) string {
	for _, w := range s.Workloads {
		if w.State == plan.ItemRunning && w.Message != "" {
			return workloadName(w) + ": " + w.Message
		}
	}
	return s.Reason
}

func (d drawing) header(t plan.Task) []line {
	state := string(t.State)
	if t.StartedAt != nil {
		// The time runs from the beginning, over every pause: how long a task has been in its state is not known here.
		state += fmt.Sprintf(", %s since it began", shortDuration(d.now().Sub(*t.StartedAt)))
		if t.FinishedAt != nil {
			state = fmt.Sprintf("%s after %s", t.State, shortDuration(t.FinishedAt.Sub(*t.StartedAt)))
		}
	}
	return []line{
		{{text: "task " + oneLine(t.ID) + ", plan " + oneLine(t.Plan) + commented(t.Comment), colour: bold}},
		{{text: state, colour: taskColour(t.State)}, {text: because(t.Reason)}},
		{},
	}
}

// The states of a wave as a whole.
const (
	waveDone   = "done"
	waveToCome = "to come"
	waveActive = "active"
)

func waveState(t plan.Task, w plan.Wave) string {
	waiting, succeeded := 0, 0
	for _, i := range w.Items {
		switch t.Services[i].State {
		case plan.ItemPending, plan.ItemSkipped:
			waiting++
		case plan.ItemSucceeded:
			succeeded++
		}
	}
	switch len(w.Items) {
	case succeeded:
		return waveDone
	case waiting:
		return waveToCome
	}
	return waveActive
}

func quietWaves(first, last, all int, state string) line {
	name := fmt.Sprintf("wave %d of %d", first+1, all)
	if last > first {
		name = fmt.Sprintf("waves %d to %d of %d", first+1, last+1, all)
	}
	colour := dim
	if state == waveDone {
		colour = green
	}
	return line{{text: name + ": "}, {text: state, colour: colour}}
}

// waveLine reads "wave 1 of 3, priority 5: 1 Succeeded, 2 Running".
func (d drawing) waveLine(t plan.Task, waves []plan.Wave, n int) line {
	counts := map[plan.ItemState]int{}
	for _, i := range waves[n].Items {
		counts[t.Services[i].State]++
	}
	l := line{{text: fmt.Sprintf("wave %d of %d, priority %d: ", n+1, len(waves), waves[n].Priority)}}
	separator := ""
	for _, s := range []plan.ItemState{plan.ItemFailed, plan.ItemRunning, plan.ItemSucceeded, plan.ItemPending, plan.ItemSkipped} {
		if counts[s] > 0 {
			l = append(l, span{text: separator}, span{text: fmt.Sprintf("%d %s", counts[s], s), colour: itemColour(s)})
			separator = ", "
		}
	}
	return l
}

// columns are the widths that line the services up.
type columns struct{ id, operation, state int }

func measure(t plan.Task) columns {
	c := columns{state: len(plan.ItemSucceeded)}
	for _, s := range t.Services {
		c.id = max(c.id, displayWidth(oneLine(string(s.ServiceID))))
		c.operation = max(c.operation, len(operation(s.Deployment, s.Method)))
	}
	return c
}

func (d drawing) serviceLine(s plan.ServiceStatus, c columns) line {
	took := ""
	if s.StartedAt != nil {
		end := d.now()
		if s.FinishedAt != nil {
			end = *s.FinishedAt
		}
		took = shortDuration(end.Sub(*s.StartedAt))
	}
	reason := oneLine(s.Reason)
	if s.State == plan.ItemPending {
		reason = "" // that it waits for its turn is plain to see
	}
	return line{
		{text: "  " + padded(oneLine(string(s.ServiceID)), c.id+3)},
		{text: padded(operation(s.Deployment, s.Method), c.operation+3)},
		{text: padded(string(s.State), c.state+3), colour: itemColour(s.State)},
		{text: padded(took, 7) + " " + reason},
	}
}

func (d drawing) workloadLines(s plan.ServiceStatus) []line {
	width := 0
	for _, w := range s.Workloads {
		width = max(width, displayWidth(workloadName(w)))
	}
	var lines []line
	for _, w := range s.Workloads {
		lines = append(lines, line{
			{text: "    " + padded(workloadName(w), width+3), colour: dim},
			{text: padded(string(w.State), len(plan.ItemSucceeded)+3), colour: itemColour(w.State)},
			{text: oneLine(w.Message)},
		})
	}
	return lines
}

// line is a line of text in pieces of one colour each.
type line []span

type span struct {
	text   string
	colour colour
}

// trimmed is the line without blanks at its end.
func (l line) trimmed() line {
	for n := len(l) - 1; n >= 0; n-- {
		if text := strings.TrimRight(l[n].text, " "); text != "" {
			return append(l[:n:n], span{text: text, colour: l[n].colour})
		}
	}
	return nil
}

// unbounded is the width of what may be as wide as it has to be.
const unbounded = math.MaxInt

// render paints the lines and cuts them to that many columns.
func (d drawing) render(lines []line, width int) []string {
	texts := make([]string, len(lines))
	for n, l := range lines {
		texts[n] = d.renderLine(l.trimmed(), width)
	}
	return texts
}

func (d drawing) renderLine(l line, width int) string {
	whole, end := 0, ""
	for _, s := range l {
		whole += displayWidth(s.text)
	}
	if whole > width {
		width, end = width-1, "…"
	}
	var text strings.Builder
	for _, s := range l {
		part := beginning(s.text, width)
		text.WriteString(d.paint(s.colour, part))
		if width -= displayWidth(part); len(part) < len(s.text) {
			break
		}
	}
	return text.String() + end
}

// colour is a graphic rendition of ECMA-48.
type colour string

const (
	bold   colour = "1"
	dim    colour = "2"
	red    colour = "31"
	green  colour = "32"
	yellow colour = "33"
	cyan   colour = "36"
)

// paint colours the text where colours are wanted.
func (d drawing) paint(c colour, text string) string {
	if !d.colour || c == "" || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

func taskColour(s plan.TaskState) colour {
	switch s {
	case plan.TaskSucceeded:
		return green
	case plan.TaskFailed:
		return red
	case plan.TaskRunning:
		return cyan
	case plan.TaskPending:
		return dim
	}
	return yellow
}

func itemColour(s plan.ItemState) colour {
	switch s {
	case plan.ItemSucceeded:
		return green
	case plan.ItemFailed:
		return red
	case plan.ItemRunning:
		return cyan
	}
	return dim
}
