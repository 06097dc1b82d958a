package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Report is what a task did, service by service, and how to take it back.
type Report struct {
	Task
	// Waves are the task's services by priority, the largest first; they index into Services.
	Waves []Wave `json:"waves"`
	// Reverse is how to restore what was released.
	Reverse Reverse `json:"reverse"`
}

// NewReport makes the report of a task from what it ran. A task that is not over yet is reported as far as it is.
func NewReport(t Task, snap Snapshot) Report {
	waves := t.Waves()
	return Report{Task: t, Waves: waves, Reverse: newReverse(t, waves, snap)}
}

// Markdown is the report as people read it: the task, its services wave by wave, the decisions, and the reverse plan at the end.
func (r Report) Markdown() string {
	var b strings.Builder
	r.writeTask(&b)
	for n, wave := range r.Waves {
		fmt.Fprintf(&b, "\n## Wave %d of %d (priority %d)\n", n+1, len(r.Waves), wave.Priority)
		for _, i := range wave.Items {
			writeService(&b, r.Services[i])
		}
	}
	r.writeDecisions(&b)
	r.writeInterruptions(&b)
	r.writeReverse(&b)
	return b.String()
}

func (r Report) writeTask(b *strings.Builder) {
	fmt.Fprintf(b, "# Report of task %s\n\n", escape(r.ID))
	fmt.Fprintf(b, "**%s**: %s\n\n", r.State, escape(r.Reason))
	workflow := ""
	if r.Workflow != nil {
		workflow = strings.TrimSpace(r.Workflow.ID + " " + r.Workflow.URL)
	}
	writeBullets(b, []bullet{{"Plan", r.Plan}, {"Comment", r.Comment}, {"Created", stamp(&r.CreatedAt)},
		{"Time", span(r.StartedAt, r.FinishedAt)}, {"Services", r.countStates()}, {"Workflow", workflow}})
}

type bullet struct{ name, value string }

// writeBullets leaves out what has no value.
func writeBullets(b *strings.Builder, all []bullet) {
	for _, one := range all {
		if one.value != "" {
			fmt.Fprintf(b, "- %s: %s\n", one.name, escape(one.value))
		}
	}
}

// countStates is "5: 3 Succeeded, 1 Failed, 1 Skipped".
func (r Report) countStates() string {
	count := map[ItemState]int{}
	for _, service := range r.Services {
		count[service.State]++
	}
	var parts []string
	for _, state := range []ItemState{ItemSucceeded, ItemFailed, ItemRunning, ItemPending, ItemSkipped} {
		if count[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[state], state))
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%d: %s", len(r.Services), strings.Join(parts, ", ")), ": ")
}

func writeService(b *strings.Builder, s ServiceStatus) {
	fmt.Fprintf(b, "\n### Service %s: %s, %s\n\n", escape(string(s.ServiceID)), s.Deployment, s.State)
	writeBullets(b, []bullet{{"What happened", s.Reason}, {"Time", span(s.StartedAt, s.FinishedAt)}, {"Containers", string(s.Method)}})
	if len(s.Workloads) == 0 {
		return
	}
	b.WriteString("\n| Workload | State | Size | Revision | What was done |\n|---|---|---|---|---|\n")
	for _, w := range s.Workloads {
		writeRow(b, w.name(), string(w.State), sizes(w.FromReplicas, w.ToReplicas), change(w.FromRevision, w.ToRevision), w.Message)
	}
}

func (r Report) writeDecisions(b *strings.Builder) {
	b.WriteString("\n## Decisions\n\n")
	if len(r.History) == 0 {
		b.WriteString("Nobody paused, resumed or stopped the task.\n")
		return
	}
	b.WriteString("Actors are as the callers named themselves.\n\n")
	b.WriteString("| When | Who | Through | Verb | Outcome | Reason given | Answer |\n|---|---|---|---|---|---|---|\n")
	for _, d := range r.History {
		writeRow(b, stamp(&d.At), d.Actor, d.Via, string(d.Verb), string(d.Outcome), d.Reason, d.Message)
	}
}

// writeInterruptions tells when trouble of the system held the task up; nothing where it never did.
func (r Report) writeInterruptions(b *strings.Builder) {
	if len(r.Interruptions) == 0 {
		return
	}
	b.WriteString("\n## Interruptions\n\n| From | Until | Why |\n|---|---|---|\n")
	for _, i := range r.Interruptions {
		until := "it lasts"
		if i.Until != nil {
			until = stamp(i.Until)
		}
		writeRow(b, stamp(&i.At), until, i.Reason)
	}
}

func (r Report) writeReverse(b *strings.Builder) {
	b.WriteString("\n## Reverse plan\n\n")
	for _, note := range r.Reverse.Notes {
		fmt.Fprintf(b, "- %s\n", escape(note))
	}
	if r.Reverse.Document == nil {
		return
	}
	if len(r.Reverse.Notes) > 0 {
		b.WriteString("\n")
	}
	document, err := Encode(*r.Reverse.Document)
	if err != nil {
		fmt.Fprintf(b, "The plan cannot be written: %s\n", escape(err.Error()))
		return
	}
	fmt.Fprintf(b, "Created and executed, this plan restores what the task changed:\n\n```yaml\n%s```\n", document)
}

func writeRow(b *strings.Builder, cells ...string) {
	for _, cell := range cells {
		b.WriteString("| " + escape(cmp.Or(cell, "-")) + " ")
	}
	b.WriteString("|\n")
}

// special are the characters that would make something else than text of a message.
var special = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "[", "\\[", "]", "\\]")

// escape is a text in one line of Markdown.
func escape(text string) string { return special.Replace(strings.Join(strings.Fields(text), " ")) }

func stamp(at *time.Time) string { return at.UTC().Format(time.RFC3339) }

// span is "2026-07-01T10:00:00Z to 2026-07-01T10:01:03Z (1m3s)".
func span(from, to *time.Time) string {
	switch {
	case from == nil:
		return "not begun"
	case to == nil:
		return "since " + stamp(from)
	}
	return fmt.Sprintf("%s to %s (%s)", stamp(from), stamp(to), to.Sub(*from).Round(time.Second))
}

func sizes(from, to *int32) string {
	text := func(size *int32) string {
		if size == nil {
			return ""
		}
		return fmt.Sprint(*size)
	}
	return change(text(from), text(to))
}

// change is "3 to 0", one value when nothing moved, "from 3" or "to 0" when the other is not known.
func change(from, to string) string {
	switch {
	case from == to:
		return from
	case to == "":
		return "from " + from
	case from == "":
		return "to " + to
	}
	return from + " to " + to
}
