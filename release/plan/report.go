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
	"slipway.io/slipway/release/phrase"
)

// Report describes what a task did, service by service, and how to reverse it.
type Report struct {
	Task
	// Waves are the task's services by priority, the largest first; they index into Services.
	Waves []Wave `json:"waves"`
	// Rollouts are the rollouts that released workloads of the task, with the decisions on them.
	Rollouts []RolloutReport `json:"rollouts,omitempty"`
	// Reverse is how to reverse the task's changes.
	Reverse Reverse `json:"reverse"`
}

// RolloutReport is a rollout that released a workload of the task, with the decisions on it.
type RolloutReport struct {
	RolloutStatus
	ServiceID ServiceID `json:"serviceId"`
	// Replicas is the workload's size during the rollout; absent if unknown.
	Replicas *int32 `json:"replicas,omitempty"`
	// History is the history of commands on the rollout, oldest first.
	History []audit.Entry `json:"history,omitempty"`
	// RefusalsDropped is the number of refused commands that History no longer has.
	RefusalsDropped int64 `json:"refusalsDropped,omitempty"`
	// Unknown explains why the decisions on it are not known; "" if History is complete.
	Unknown string `json:"unknown,omitempty"`
}

// NewReport returns the report of a task, from the snapshot that it ran and the rollouts that released its workloads.
// For a task that has not ended, the report covers what it has done so far.
func NewReport(t Task, snap Snapshot, rollouts ...RolloutReport) Report {
	waves := t.Waves()
	return Report{Task: t, Waves: waves, Rollouts: rollouts, Reverse: newReverse(t, waves, snap)}
}

// decision is a command on the task or on one of its rollouts.
type decision struct {
	audit.Entry
	On string
}

// Decisions returns the commands on the task and on its rollouts, oldest first.
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

// Command returns the verb with its step: "approve of step 1".
func (d decision) Command() string {
	if d.Step == 0 {
		return string(d.Verb)
	}
	return fmt.Sprintf("%s of step %d", d.Verb, d.Step)
}

// WithUnknownDecisions returns the rollouts whose decisions are not known.
func (r Report) WithUnknownDecisions() []RolloutReport {
	return slices.DeleteFunc(slices.Clone(r.Rollouts), func(one RolloutReport) bool { return one.Unknown == "" })
}

// size returns how the workload's size changed. A rollout keeps the size.
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
	"text": escape, "row": row, "stamp": phrase.Time, "span": span, "until": until, "sizes": Report.size, "change": change,
	"count": Report.countStates,
	"name":  WorkloadStatus.name, "plan": Reverse.text, "verbatim": verbatim, "next": func(n int) int {
		return n + 1
	}}).Parse(reportText))

// Markdown returns the report for users: the task, its services wave by wave, the decisions, and the reverse plan at
// the end.
func (r Report) Markdown() (string, error) {
	var b strings.Builder
	err := reportTemplate.Execute(&b, r)
	return b.String(), err
}

// verbatim returns a text as a Markdown code block.
func verbatim(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// countStates returns "5: 3 Succeeded, 1 Failed, 1 Skipped".
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

// text returns the reverse plan as YAML, ready to be sent.
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

// escape returns a text as one line of Markdown.
func escape(parts ...any) string { return phrase.Markdown(fmt.Sprint(parts...)) }

func until(end *time.Time) string {
	if end == nil {
		return "ongoing"
	}
	return phrase.Time(*end)
}

// span returns "2026-07-01T10:00:00Z to 2026-07-01T10:01:03Z (1m3s)".
func span(from, to *time.Time) string {
	switch {
	case from == nil:
		return "not begun"
	case to == nil:
		return "since " + phrase.Time(*from)
	}
	return fmt.Sprintf("%s to %s (%s)", phrase.Time(*from), phrase.Time(*to), ShownDuration(*from, *to))
}

// ShownDuration returns the time between two times that are shown in whole seconds, so that it equals the difference of
// what is shown. Every view of a task uses it. A negative time, as between two clocks, is 0.
func ShownDuration(from, to time.Time) time.Duration {
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

// change returns "3 to 0", one value if nothing changed, or "from 3" or "to 0" if the other value is unknown.
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
