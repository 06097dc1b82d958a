package workflows

import (
	"fmt"
	"strings"
	"time"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
)

// The current details travel in the URL of the Temporal UI's renderer: they stay below about 4 KB.
const (
	maxDetailRows      = 12
	maxDetailDecisions = 3
	maxDetailCell      = 160
)

// taskDetails is the page of a task in the Temporal UI, as Markdown: where it is, what it waits for, and how to go on.
func taskDetails(t plan.Task, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s — plan %s\n\n%s\n\n", t.State, t.Plan, cell(t.Reason, 600))
	if t.Comment != "" {
		fmt.Fprintf(&b, "_%s_\n\n", cell(t.Comment, 300))
	}
	writeServices(&b, t)
	writeHowTo(&b, t)
	writeDecisions(&b, t.History)
	fmt.Fprintf(&b, "\nAs of %s.\n", now.Format(time.RFC3339))
	return b.String()
}

// writeServices lists what runs and what failed first, then what comes next, as far as there is room.
func writeServices(b *strings.Builder, t plan.Task) {
	counts := map[plan.ItemState]int{}
	var rows []plan.ServiceStatus
	for _, s := range t.Services {
		counts[s.State]++
		if s.State == plan.ItemRunning || s.State == plan.ItemFailed {
			rows = append(rows, s)
		}
	}
	for _, s := range t.Services {
		if s.State == plan.ItemPending {
			rows = append(rows, s)
		}
	}
	fmt.Fprintf(b, "%d services: %d done, %d running, %d failed, %d waiting, %d skipped.\n\n", len(t.Services), counts[plan.ItemSucceeded],
		counts[plan.ItemRunning], counts[plan.ItemFailed], counts[plan.ItemPending], counts[plan.ItemSkipped])
	if len(rows) == 0 {
		return
	}
	b.WriteString("| service | does | priority | state | why |\n|---|---|---|---|---|\n")
	for i, s := range rows {
		if i == maxDetailRows {
			fmt.Fprintf(b, "\n… and %d more.\n", len(rows)-maxDetailRows)
			break
		}
		fmt.Fprintf(b, "| %s | %s %s | %d | %s | %s |\n", s.ServiceID, s.Deployment, s.Method, s.Priority, s.State, cell(s.Reason, maxDetailCell))
	}
	b.WriteString("\n")
}

func writeHowTo(b *strings.Builder, t plan.Task) {
	send := func(signal, effect string) {
		fmt.Fprintf(b, "* Send the signal `%s` to %s, or run `slipway task %s %s`.\n", signal, effect, signal, t.ID)
	}
	switch t.State {
	case plan.TaskPending, plan.TaskRunning:
		b.WriteString("It needs nobody. You may:\n\n")
		send("pause", "hold back what has not begun")
		send("stop", "end it once what runs has finished")
	case plan.TaskPausing:
		send("resume", "take the pause back")
		send("stop", "end it once what runs has finished")
	case plan.TaskPaused, plan.TaskInterrupted:
		b.WriteString("**It waits for you:**\n\n")
		send("resume", "go on")
		send("stop", "end it")
	case plan.TaskStopping:
		b.WriteString("It needs nobody: it ends once nothing runs.\n")
	default:
		fmt.Fprintf(b, "It is over. The report: `slipway task report %s`.\n", t.ID)
		return
	}
	b.WriteString("\nA signal's payload may stay empty, or say who you are and why:\n")
	writePayload(b, `{"actor":"you","reason":"why"}`)
	b.WriteString("\n*Request Cancellation* is `stop`: what runs finishes, nothing else begins.\n")
}

func writeDecisions(b *strings.Builder, history []audit.Entry) {
	if len(history) == 0 {
		return
	}
	b.WriteString("\nLatest commands:\n\n")
	for i := len(history) - 1; i >= 0 && i >= len(history)-maxDetailDecisions; i-- {
		d := history[i]
		fmt.Fprintf(b, "* %s `%s` by %s (%s): **%s** — %s\n", d.At.UTC().Format(time.RFC3339), d.Verb, cell(d.Actor, 60), d.Via, d.Outcome, cell(d.Message, maxDetailCell))
	}
}

// itemDetails is the page of one service's release.
func itemDetails(in ServiceReleaseInput, s plan.ServiceStatus, interrupted bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s — %s service %s\n\n%s\n\n", s.State, s.Deployment, s.ServiceID, cell(s.Reason, 600))
	if len(s.Workloads) > 0 {
		b.WriteString("| workload | state | what |\n|---|---|---|\n")
		for i, w := range s.Workloads {
			if i == maxDetailRows {
				fmt.Fprintf(&b, "\n… and %d more.\n", len(s.Workloads)-maxDetailRows)
				break
			}
			fmt.Fprintf(&b, "| %s %s/%s (%s) | %s | %s |\n", w.Kind, w.Namespace, w.Name, w.Party, w.State, cell(w.Message, maxDetailCell))
		}
	}
	if interrupted {
		fmt.Fprintf(&b, "\n**Interrupted.** Mend the trouble, then resume the task: `slipway task resume %s`, or the signal `resume` on its workflow.\n", in.Task)
	} else {
		b.WriteString("\nHow far its pods are: see Pending Activities.\n")
	}
	return b.String()
}

// cell keeps text on one line of a table, at most so many bytes long.
func cell(text string, most int) string {
	text = strings.NewReplacer("\n", " ", "|", "\\|").Replace(text)
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
