package plan

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"slipway.io/slipway/release/audit"
)

// Report is what a task did, service by service, and how to take it back.
type Report struct {
	Task
	// Waves are the task's services by priority, the largest first; they index into Services.
	Waves []Wave `json:"waves"`
	// Rollouts are those that released workloads of the task, with what was decided on them.
	Rollouts []RolloutReport `json:"rollouts,omitempty"`
	// Reverse is how to restore what was released.
	Reverse Reverse `json:"reverse"`
}

// RolloutReport is a rollout that released a workload of the task, with what was decided on it.
type RolloutReport struct {
	RolloutStatus
	ServiceID ServiceID `json:"serviceId"`
	// Replicas is the workload's size under the rollout; absent where it is not known.
	Replicas *int32 `json:"replicas,omitempty"`
	// History is who asked what of the rollout, oldest first.
	History []audit.Entry `json:"history,omitempty"`
	// Unknown says why nobody knows what was decided on it; "" when History is all of it.
	Unknown string `json:"unknown,omitempty"`
}

// NewReport makes the report of a task from what it ran, and from the rollouts that released its workloads. A task that is not over yet is
// reported as far as it is.
func NewReport(t Task, snap Snapshot, rollouts ...RolloutReport) Report {
	waves := t.Waves()
	return Report{Task: t, Waves: waves, Rollouts: rollouts, Reverse: newReverse(t, waves, snap)}
}

// decision is what somebody asked of the task or of one of its rollouts.
type decision struct {
	audit.Entry
	On string
}

// Decisions are those on the task and on its rollouts, oldest first.
func (r Report) Decisions() []decision {
	var all []decision
	for _, entry := range r.History {
		all = append(all, decision{entry, "task"})
	}
	for _, rollout := range r.Rollouts {
		for _, entry := range rollout.History {
			all = append(all, decision{entry, rollout.String()})
		}
	}
	slices.SortStableFunc(all, func(a, b decision) int { return a.At.Compare(b.At) })
	return all
}

// Command reads "approve of step 1".
func (d decision) Command() string {
	if d.Step == 0 {
		return string(d.Verb)
	}
	return fmt.Sprintf("%s of step %d", d.Verb, d.Step)
}

// Untold are the rollouts of which nobody knows what was decided on them.
func (r Report) Untold() []RolloutReport {
	return slices.DeleteFunc(slices.Clone(r.Rollouts), func(one RolloutReport) bool { return one.Unknown == "" })
}

// size is how the workload's size changed. A rollout keeps the size.
func (r Report) size(w WorkloadStatus) string {
	for _, one := range r.Rollouts {
		if w.Rollout != nil && one.Record == w.Rollout.Record && w.FromReplicas == nil && w.ToReplicas == nil {
			return sizes(one.Replicas, one.Replicas)
		}
	}
	return sizes(w.FromReplicas, w.ToReplicas)
}

//go:embed report.md.tmpl
var reportText string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"text": escape, "row": row, "stamp": stamp, "span": span, "until": until, "sizes": Report.size, "change": change, "count": Report.countStates,
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
	return fmt.Sprintf("%s to %s (%s)", stamp(*from), stamp(*to), Lasted(*from, *to))
}

// Lasted is how long something took, by the whole seconds of its two times: what a person calculates from the times that are shown. Every view of a
// task counts in this way. Less than nothing, as between two clocks, is nothing.
func Lasted(from, to time.Time) time.Duration {
	return max(to.Truncate(time.Second).Sub(from.Truncate(time.Second)), 0)
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
