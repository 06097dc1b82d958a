package task

import (
	"cmp"
	"fmt"
	"slices"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
)

// detail is how much of a task is drawn. Each level omits more than the one before.
type detail int

const (
	everything  detail = iota // all workloads of all services
	activeParts               // workloads only of services that are running or have failed
	activeWaves               // services only of waves that are running or have failed
	activeOnly                // only services that are running or have failed, the failed ones first
	oneLineEach               // workloads only of services that have failed
	fewWaves                  // completed or pending waves together in one line
	leastDetail = fewWaves
)

// DrawAll draws the complete task and a footer, regardless of the terminal's size.
func DrawAll(d render.Drawing, t plan.Task, footer ...render.Line) []string {
	return d.Render(append(layout(d, t, everything), footer...), render.Unbounded)
}

// Fit draws as much of the task as fits into width columns and height lines. What is running or has failed is omitted
// last.
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
			lines = append(lines, collapsedWaves(n, last, len(waves), state))
			n = last
			continue
		}
		lines = append(lines, waveLine(d, t, waves, n))
		if level >= activeWaves && state != waveActive {
			continue
		}
		for _, s := range servicesOf(t, waves[n], level) {
			withParts := level == everything || s.State == plan.ItemFailed ||
				(s.State == plan.ItemRunning && level < oneLineEach)
			switch {
			case !withParts:
				s.Reason = shortReason(s)
			case repeatsReason(s):
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

func servicesOf(t plan.Task, w plan.Wave, level detail) (all []plan.ServiceStatus) {
	for _, i := range w.Items {
		all = append(all, t.Services[i])
	}
	if level < activeOnly {
		return all
	}
	in := func(state plan.ItemState) []plan.ServiceStatus {
		return slices.DeleteFunc(slices.Clone(all), func(s plan.ServiceStatus) bool { return s.State != state })
	}
	return append(in(plan.ItemFailed), in(plan.ItemRunning)...)
}

// repeatsReason reports whether the message of the service's only workload equals the service's reason.
func repeatsReason(s plan.ServiceStatus) bool {
	return len(s.Workloads) == 1 && s.Workloads[0].Message == s.Reason
}

// shortReason returns what a service that is drawn without its workloads waits for: the message of its first running
// workload.
func shortReason(s plan.ServiceStatus) string {
	for _, w := range s.Workloads {
		if w.State == plan.ItemRunning && w.Message != "" {
			return workloadName(w) + ": " + w.Message
		}
	}
	return s.Reason
}

func header(d render.Drawing, t plan.Task, level detail) []render.Line {
	// The duration includes all pauses: the task does not contain since when it is in its current state.
	state := string(t.State) + d.ElapsedSuffix(t.StartedAt, t.FinishedAt)
	lines := []render.Line{
		{{Text: "task " + render.OneLine(t.ID) + ", plan " + render.OneLine(t.Plan) + render.ReasonSuffix(t.Comment),
			Colour: render.Bold}},
		{{Text: state, Colour: colour(t.State)}, {Text: render.ReasonSuffix(t.Reason)}},
	}
	if level == everything && t.Actor+t.ExecuteReason != "" {
		lines = append(lines, render.Line{{Text: "executed by " + cmp.Or(render.OneLine(t.Actor), "unknown") +
			render.ReasonSuffix(t.ExecuteReason)}})
	}
	if w := t.WaitingFor; w != nil {
		lines = append(lines, render.Line{{Text: d.WaitingText(render.WaitText(rollout.WaitKind(w.Kind)), w.Since, w.Until),
			Colour: render.Yellow}})
		if w.Service == "" {
			lines = append(lines, render.Line{{Text: "to start it now: slipway task approve " + t.ID + " --reason TEXT",
				Colour: render.Yellow}})
		}
	}
	return append(lines, render.Line{})
}

// The states of a wave.
const (
	waveDone    = "done"
	wavePending = "pending"
	waveActive  = "active"
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
		return wavePending
	}
	return waveActive
}

func collapsedWaves(first, last, all int, state string) render.Line {
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

// waveLine draws, for example, "wave 1 of 3, priority 5: 1 Succeeded, 2 Running".
func waveLine(d render.Drawing, t plan.Task, waves []plan.Wave, n int) render.Line {
	counts := map[plan.ItemState]int{}
	for _, i := range waves[n].Items {
		counts[t.Services[i].State]++
	}
	l := render.Line{{Text: fmt.Sprintf("wave %d of %d, priority %d: ", n+1, len(waves), waves[n].Priority)}}
	separator := ""
	for _, s := range []plan.ItemState{plan.ItemFailed, plan.ItemRunning, plan.ItemSucceeded, plan.ItemPending,
		plan.ItemSkipped} {
		if counts[s] > 0 {
			l = append(l, render.Span{Text: separator},
				render.Span{Text: fmt.Sprintf("%d %s", counts[s], s), Colour: itemColour(s)})
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
		reason = "" // the state already shows that it waits
	}
	return c.Line("  ", render.Span{Text: string(s.ServiceID)}, render.Span{Text: Operation(s.Deployment, s.Method)},
		render.Span{Text: string(s.State), Colour: itemColour(s.State)}, render.Span{Text: d.Elapsed(s.StartedAt,
			s.FinishedAt)}, render.Span{Text: reason})
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
		if hint := approvalHint(w); hint != "" {
			lines = append(lines, render.Line{{Text: "      " + hint, Colour: render.Yellow}})
		}
	}
	return lines
}

// approvalHint returns the command for the rollout of a workload that waits for a user; "" if it does not wait.
func approvalHint(w plan.WorkloadStatus) string {
	r := w.Rollout
	if w.State != plan.ItemRunning || r == nil || r.WaitingFor == nil {
		return ""
	}
	name := app.ObjectName{Party: r.Party, Namespace: r.Namespace, Name: r.Name}
	switch rollout.WaitKind(r.WaitingFor.Kind) {
	case rollout.WaitApproval:
		return "to approve it: slipway rollout approve " + name.CommandArgs()
	case rollout.WaitWindow:
		return "to start it now: slipway rollout approve " + name.CommandArgs() + " --reason TEXT"
	case rollout.WaitResume, rollout.WaitDrift:
		return "to see what it waits for: slipway rollout get " + name.CommandArgs()
	}
	return ""
}

var colours = map[plan.TaskState]render.Colour{plan.TaskSucceeded: render.Green, plan.TaskFailed: render.Red,
	plan.TaskRunning: render.Cyan, plan.TaskPending: render.Dim}

func colour(s plan.TaskState) render.Colour { return cmp.Or(colours[s], render.Yellow) }

var itemColours = map[plan.ItemState]render.Colour{plan.ItemSucceeded: render.Green, plan.ItemFailed: render.Red,
	plan.ItemRunning: render.Cyan}

func itemColour(s plan.ItemState) render.Colour { return cmp.Or(itemColours[s], render.Dim) }

// Operation returns the operation as text, with its method if that is not the default.
func Operation(deployment plan.Operation, method plan.Method) string {
	if method == plan.Sequential {
		return string(deployment) + " one by one"
	}
	return string(deployment)
}
