package plan

import (
	"cmp"
	_ "embed"
	"fmt"
	"strings"
	"text/template"
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

//go:embed report.md.tmpl
var reportText string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"text": escape, "row": row, "stamp": stamp, "span": span, "until": until, "sizes": sizes, "change": change, "count": Report.countStates,
	"name": WorkloadStatus.name, "plan": Reverse.text, "verbatim": verbatim, "next": func(n int) int { return n + 1 }}).Parse(reportText))

// Markdown is the report as people read it: the task, its services wave by wave, the decisions, and the reverse plan at the end.
func (r Report) Markdown() (string, error) {
	var b strings.Builder
	err := reportTemplate.Execute(&b, r)
	return b.String(), err
}

// verbatim shows a text as it is, whatever is in it.
func verbatim(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

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

// text is the reverse plan as it is to be sent.
func (r Reverse) text() string {
	document, err := Encode(*r.Document)
	if err != nil {
		return fmt.Sprintf("The plan cannot be written: %s\n", escape(err.Error()))
	}
	return fmt.Sprintf("Created and executed, this plan restores what the task changed:\n\n```yaml\n%s```\n", document)
}

func row(cells ...any) string {
	var b strings.Builder
	for _, cell := range cells {
		b.WriteString("| " + cmp.Or(escape(cell), "-") + " ")
	}
	return b.String() + "|"
}

// special are the characters that would make something else than text of a message.
var special = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "`", "\\`", "*", "\\*", "[", "\\[", "]", "\\]")

// escape is a text in one line of Markdown.
func escape(parts ...any) string {
	return special.Replace(strings.Join(strings.Fields(fmt.Sprint(parts...)), " "))
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func until(end *time.Time) string {
	if end == nil {
		return "it lasts"
	}
	return stamp(*end)
}

// span is "2026-07-01T10:00:00Z to 2026-07-01T10:01:03Z (1m3s)".
func span(from, to *time.Time) string {
	switch {
	case from == nil:
		return "not begun"
	case to == nil:
		return "since " + stamp(*from)
	}
	return fmt.Sprintf("%s to %s (%s)", stamp(*from), stamp(*to), to.Sub(*from).Round(time.Second))
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
