package task

import (
	"cmp"
	"fmt"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
)

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

// Whole draws all of the task, however wide and long that is, with a footer.
func Whole(d render.Drawing, t plan.Task, footer ...render.Line) []string {
	return d.Render(append(layout(d, t, everything), footer...), render.Unbounded)
}

// Fit draws as much of the task as width columns and height lines hold; what moves or failed is left out last.
func Fit(d render.Drawing, t plan.Task, width, height int) []string {
	var layouts []func() []render.Line
	for level := everything; level <= leastDetail; level++ {
		layouts = append(layouts, func() []render.Line { return layout(d, t, level) })
	}
	return d.Fit(width, height, layouts...)
}

func layout(d render.Drawing, t plan.Task, level detail) []render.Line {
	lines := header(d, t, level)
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
		lines = append(lines, waveLine(d, t, waves, n))
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
			lines = append(lines, serviceLine(d, s, columns))
			if withParts {
				lines = append(lines, workloadLines(s)...)
			}
		}
	}
	return lines
}

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

func header(d render.Drawing, t plan.Task, level detail) []render.Line {
	// The time runs from the beginning, over every pause: how long a task has been in its state is not known here.
	state := string(t.State) + d.Since(t.StartedAt, t.FinishedAt)
	lines := []render.Line{
		{{Text: "task " + render.OneLine(t.ID) + ", plan " + render.OneLine(t.Plan) + render.Because(t.Comment), Colour: render.Bold}},
		{{Text: state, Colour: colour(t.State)}, {Text: render.Because(t.Reason)}},
	}
	if level == everything && t.Actor+t.ExecuteReason != "" {
		lines = append(lines, render.Line{{Text: "executed by " + cmp.Or(render.OneLine(t.Actor), "somebody") + render.Because(t.ExecuteReason)}})
	}
	if w := t.WaitingFor; w != nil {
		lines = append(lines, waitLine(d, *w))
		if w.Service == "" {
			lines = append(lines, render.Line{{Text: "have it begin now: slipway task approve " + t.ID + " --reason TEXT", Colour: render.Yellow}})
		}
	}
	return append(lines, render.Line{})
}

// waitLine says since when a task waits, for what, and until when.
func waitLine(d render.Drawing, w plan.RolloutWait) render.Line {
	text := d.WaitsFor(render.WaitInWords(rollout.WaitKind(w.Kind)), w.Since)
	if w.Until != nil {
		text += fmt.Sprintf(", until %s (%s left)", render.Clock(*w.Until, d.Now()), render.ShortDuration(w.Until.Sub(d.Now())))
	}
	return render.Line{{Text: text, Colour: render.Yellow}}
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

func quietWaves(first, last, all int, state string) render.Line {
	name := fmt.Sprintf("wave %d of %d", first+1, all)
	if last > first {
		name = fmt.Sprintf("waves %d to %d of %d", first+1, last+1, all)
	}
	colour := render.Dim
	if state == waveDone {
		colour = render.Green
	}
	return render.Line{{Text: name + ": "}, {Text: state, Colour: colour}}
}

// waveLine reads "wave 1 of 3, priority 5: 1 Succeeded, 2 Running".
func waveLine(d render.Drawing, t plan.Task, waves []plan.Wave, n int) render.Line {
	counts := map[plan.ItemState]int{}
	for _, i := range waves[n].Items {
		counts[t.Services[i].State]++
	}
	l := render.Line{{Text: fmt.Sprintf("wave %d of %d, priority %d: ", n+1, len(waves), waves[n].Priority)}}
	separator := ""
	for _, s := range []plan.ItemState{plan.ItemFailed, plan.ItemRunning, plan.ItemSucceeded, plan.ItemPending, plan.ItemSkipped} {
		if counts[s] > 0 {
			l = append(l, render.Span{Text: separator}, render.Span{Text: fmt.Sprintf("%d %s", counts[s], s), Colour: itemColour(s)})
			separator = ", "
		}
	}
	return l
}

func measure(t plan.Task) render.Columns {
	var c render.Columns
	for _, s := range t.Services {
		c.Widen(string(s.ServiceID), Operation(s.Deployment, s.Method), string(plan.ItemSucceeded), "59m59")
	}
	return c
}

func serviceLine(d render.Drawing, s plan.ServiceStatus, c render.Columns) render.Line {
	reason := s.Reason
	if s.State == plan.ItemPending {
		reason = "" // that it waits for its turn is plain to see
	}
	return c.Line("  ", render.Span{Text: string(s.ServiceID)}, render.Span{Text: Operation(s.Deployment, s.Method)},
		render.Span{Text: string(s.State), Colour: itemColour(s.State)}, render.Span{Text: d.Took(s.StartedAt, s.FinishedAt)},
		render.Span{Text: reason})
}

func workloadLines(s plan.ServiceStatus) []render.Line {
	var c render.Columns
	for _, w := range s.Workloads {
		c.Widen(workloadName(w), string(plan.ItemSucceeded))
	}
	var lines []render.Line
	for _, w := range s.Workloads {
		lines = append(lines, c.Line("    ", render.Span{Text: workloadName(w), Colour: render.Dim},
			render.Span{Text: string(w.State), Colour: itemColour(w.State)}, render.Span{Text: w.Message}))
		if hint := approval(w); hint != "" {
			lines = append(lines, render.Line{{Text: "      " + hint, Colour: render.Yellow}})
		}
	}
	return lines
}

// approval is how somebody approves the rollout that a workload waits for; "" when it waits for none.
func approval(w plan.WorkloadStatus) string {
	r := w.Rollout
	if w.State != plan.ItemRunning || r == nil || r.WaitingFor == nil {
		return ""
	}
	name := app.Name{Party: r.Party, Namespace: r.Namespace, Name: r.Name}
	switch rollout.WaitKind(r.WaitingFor.Kind) {
	case rollout.WaitApproval:
		return "look at it and approve it: slipway rollout approve " + name.Arguments()
	case rollout.WaitWindow:
		return "have it begin now: slipway rollout approve " + name.Arguments() + " --reason TEXT"
	case rollout.WaitResume, rollout.WaitDrift:
		return "see what there is to decide: slipway rollout get " + name.Arguments()
	}
	return ""
}

func colour(s plan.TaskState) render.Colour {
	switch s {
	case plan.TaskSucceeded:
		return render.Green
	case plan.TaskFailed:
		return render.Red
	case plan.TaskRunning:
		return render.Cyan
	case plan.TaskPending:
		return render.Dim
	}
	return render.Yellow
}

func itemColour(s plan.ItemState) render.Colour {
	switch s {
	case plan.ItemSucceeded:
		return render.Green
	case plan.ItemFailed:
		return render.Red
	case plan.ItemRunning:
		return render.Cyan
	}
	return render.Dim
}

// Operation names what is done, and how where that is not the default.
func Operation(deployment plan.Operation, method plan.Method) string {
	if method == plan.Sequential {
		return string(deployment) + " one by one"
	}
	return string(deployment)
}
