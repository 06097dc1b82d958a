package plans

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// workflow returns the task's workflow.
func (x *taskStart) workflow() start.Workflow {
	return start.Workflow{Type: workflows.TypeDeployPlan, Input: x.input(), Options: client.StartWorkflowOptions{
		ID:                    plan.WorkflowID(x.ID),
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		TypedSearchAttributes: x.searchAttributes(),
		Memo: map[string]any{"plan": x.plan, "items": len(x.snapshot.Document.Items),
			workflows.MemoTimes: len(x.snapshot.AllTimes()) > 0},
		StaticSummary: start.Summary(fmt.Sprintf("plan %s: %s", x.plan, outline(x.snapshot.Document))),
		StaticDetails: x.details(),
	}}
}

func (x *taskStart) input() workflows.DeployPlanInput {
	items := make([]workflows.ItemOutline, len(x.snapshot.Document.Items))
	for i, item := range x.snapshot.Document.Items {
		items[i] = workflows.ItemOutline{ServiceID: item.ServiceID, Priority: item.Priority,
			Deployment: item.Deployment,
			Method:     item.MethodOrDefault(), RollOut: x.snapshot.RollsOut(i)}
	}
	return workflows.DeployPlanInput{
		Task: x.ID, Plan: x.plan, Comment: x.snapshot.Document.Comment, CreatedAt: x.snapshot.CreatedAt,
		Actor: x.Written.Spec.Actor, Reason: x.Written.Spec.Reason, Via: x.Written.Labels[v1alpha1.LabelVia],
		RerunOf: x.snapshot.RerunOf, ReverseOf: x.snapshot.Document.ReversedTask(), Times: x.snapshot.AllTimes(),
		Items: items, MaxConcurrent: x.MaxConcurrent, MaxConcurrentWorkloads: x.MaxConcurrentWorkloads,
		UnreachableBudgetSeconds: x.snapshot.UnreachableBudgetSeconds, Engine: x.engine,
	}
}

// searchAttributes are the attributes by which Temporal's lists can be filtered.
func (x *taskStart) searchAttributes() temporal.SearchAttributes {
	var services, parties []string
	for n, item := range x.snapshot.Document.Items {
		services = appendNew(services, string(item.ServiceID))
		for _, workload := range x.snapshot.Selected(n) {
			parties = appendNew(parties, workload.PartyOrDefault())
		}
	}
	return temporal.NewSearchAttributes(
		workflows.AttributeKind.ValueSet(workflows.KindTask),
		workflows.AttributeState.ValueSet(string(plan.TaskPending)),
		workflows.AttributeName.ValueSet(x.plan),
		workflows.AttributeServices.ValueSet(workflows.FitList(services)),
		workflows.AttributeParties.ValueSet(workflows.FitList(parties)),
	)
}

func appendNew(list []string, value string) []string {
	if slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// outline summarises a plan: "5 services in 3 waves".
func outline(document plan.Document) string {
	return fmt.Sprintf("%s in %s", phrase.Count(len(document.Items), "service"),
		phrase.Count(len(document.Waves()), "wave"))
}

// details is the description of the task in the Temporal UI, as Markdown: what the task does, and which signals control
// it.
func (x *taskStart) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Task `%s` executes plan **%s**: %s.\n\n", x.ID, x.plan, outline(x.snapshot.Document))
	if comment := x.snapshot.Document.Comment; comment != "" {
		fmt.Fprintf(&b, "> %s\n\n", phrase.Line(comment, 300))
	}
	if x.Written.Spec.Actor != "" || x.Written.Spec.Reason != "" {
		fmt.Fprintf(&b, "Requested by %s: %s\n\n", cmp.Or(x.Written.Spec.Actor, "-"),
			cmp.Or(phrase.Cut(x.Written.Spec.Reason, 300), "-"))
	}
	lines := 0
	for number, wave := range x.snapshot.Document.Waves() {
		if lines++; lines > start.MaxDetailLines {
			b.WriteString("\nand more waves.\n")
			break
		}
		fmt.Fprintf(&b, "%d. priority %d: %s\n", number+1, wave.Priority, waveOutline(x.snapshot.Document, wave))
	}
	b.WriteString("\nSend the signal `pause`, `resume` or `stop` at any time, with an empty payload or " +
		"`{\"actor\":\"you\",\"reason\":\"why\"}`.\n")
	fmt.Fprintf(&b, "Accepted at %s.\n", phrase.Time(x.snapshot.CreatedAt))
	return b.String()
}

func waveOutline(document plan.Document, wave plan.Wave) string {
	const most = 6
	var parts []string
	for i, n := range wave.Items {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(wave.Items)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s", document.Items[n].Deployment, document.Items[n].ServiceID))
	}
	return strings.Join(parts, ", ")
}
