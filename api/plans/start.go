package plans

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// writeRecord writes what the task was asked, before anything of it exists elsewhere.
func (x *execution) writeRecord(ctx context.Context) error {
	snapshot, err := v1alpha1.EncodeBody(x.snapshot)
	if err != nil {
		return err
	}
	labels := map[string]string{v1alpha1.LabelKind: v1alpha1.KindTask, v1alpha1.LabelSubject: x.plan, v1alpha1.LabelVia: x.via}
	if x.key != "" {
		labels[v1alpha1.LabelIdempotencyKey] = start.KeyLabel(x.key)
	}
	record := &v1alpha1.ReleaseRecord{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.RecordName(v1alpha1.KindTask, x.id), Labels: labels},
		Spec: v1alpha1.ReleaseRecordSpec{
			Kind: v1alpha1.KindTask, Subject: x.plan, Comment: x.snapshot.Document.Comment, WorkflowID: plan.WorkflowID(x.id),
			CreatedAt: metav1.MicroTime{Time: x.snapshot.CreatedAt}, Actor: x.request.Actor, Reason: x.request.Reason,
			RequestDigest: x.requestDigest(), Snapshot: snapshot,
		},
	}
	err = x.Home.CreateRecord(ctx, record)
	if problem.IsFailure(err, failure.Conflict) {
		return x.recordTaken()
	}
	if err != nil {
		return err
	}
	x.record = record
	return nil
}

// recordTaken is for a record of that name that is there already: a twin with the same key was faster, or chance drew an ID twice.
func (x *execution) recordTaken() error {
	if x.key == "" {
		x.id = ""
	}
	return errAgain
}

// start starts the task's workflow. One that runs already is this task's own: its ID belongs to the record.
func (x *execution) start(ctx context.Context) error {
	if x.adopted {
		if err := x.keepRecord(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, start.WorkflowTimeout)
	defer cancel()
	_, err := x.Temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       plan.WorkflowID(x.id),
		TaskQueue:                                workflows.QueueEngine,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    x.searchAttributes(),
		Memo:                                     map[string]any{"plan": x.plan, "items": len(x.snapshot.Document.Items)},
		StaticSummary:                            start.Cut(fmt.Sprintf("plan %s: %s", x.plan, outline(x.snapshot.Document)), 200),
		StaticDetails:                            x.details(),
	}, workflows.TypeDeployPlan, x.input())
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case err == nil, errors.As(err, &started):
		return nil
	case start.NeverStarted(err):
		x.withdraw(ctx)
		return problem.Unreachable.Because("Temporal refuses to start the task (%v): nothing was changed; see whether the engine's worker has set it up", err)
	case problem.TemporalAway(err):
		return problem.Unreachable.Because("Temporal does not answer (%v): whether task %s was started is not known; repeat with the same Idempotency-Key, or look at the task in a minute",
			err, x.id).About(x.id, nil)
	}
	return fmt.Errorf("start the workflow of task %s: %w", x.id, err)
}

// keepRecord writes an adopted record again if the one who wrote it first has withdrawn it meanwhile: a task without its record cannot run.
func (x *execution) keepRecord(ctx context.Context) error {
	record := x.record.DeepCopy()
	record.ResourceVersion, record.UID = "", ""
	err := x.Home.CreateRecord(ctx, record)
	if problem.IsFailure(err, failure.Conflict) {
		return nil
	}
	return err
}

func (x *execution) input() workflows.DeployPlanInput {
	items := make([]workflows.ItemOutline, len(x.snapshot.Document.Items))
	for i, item := range x.snapshot.Document.Items {
		items[i] = workflows.ItemOutline{ServiceID: item.ServiceID, Priority: item.Priority, Deployment: item.Deployment, Method: item.MethodOrDefault()}
	}
	return workflows.DeployPlanInput{
		Task: x.id, Plan: x.plan, Comment: x.snapshot.Document.Comment, CreatedAt: x.snapshot.CreatedAt,
		Actor: x.record.Spec.Actor, Reason: x.record.Spec.Reason, Via: x.record.Labels[v1alpha1.LabelVia],
		Items: items, MaxConcurrent: x.MaxConcurrent, UnreachableBudgetSeconds: x.snapshot.UnreachableBudgetSeconds,
	}
}

// searchAttributes are what Temporal's lists can be filtered by (design §4).
func (x *execution) searchAttributes() temporal.SearchAttributes {
	var services, parties []string
	seen := map[string]bool{}
	for n, item := range x.snapshot.Document.Items {
		services = appendNew(services, seen, "service "+string(item.ServiceID), string(item.ServiceID))
		for _, workload := range x.snapshot.Selected(n) {
			parties = appendNew(parties, seen, "party "+workload.PartyOrDefault(), workload.PartyOrDefault())
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

func appendNew(list []string, seen map[string]bool, key, value string) []string {
	if seen[key] {
		return list
	}
	seen[key] = true
	return append(list, value)
}

// outline is a plan in a few words: "5 services in 3 waves".
func outline(document plan.Document) string {
	return fmt.Sprintf("%s in %s", start.Counted(len(document.Items), "service"), start.Counted(len(document.Waves()), "wave"))
}

// details is what the Temporal UI says of the task before it runs, as Markdown: what it will do, and how to hold it.
func (x *execution) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Task `%s` executes plan **%s**: %s.\n\n", x.id, x.plan, outline(x.snapshot.Document))
	if comment := x.snapshot.Document.Comment; comment != "" {
		fmt.Fprintf(&b, "> %s\n\n", start.Cut(strings.Join(strings.Fields(comment), " "), 300))
	}
	if x.record.Spec.Actor != "" || x.record.Spec.Reason != "" {
		fmt.Fprintf(&b, "Asked by %s: %s\n\n", start.OrDash(x.record.Spec.Actor), start.OrDash(start.Cut(x.record.Spec.Reason, 300)))
	}
	lines := 0
	for number, wave := range x.snapshot.Document.Waves() {
		if lines++; lines > start.MaxDetailLines {
			b.WriteString("\nand more waves.\n")
			break
		}
		fmt.Fprintf(&b, "%d. priority %d: %s\n", number+1, wave.Priority, waveOutline(x.snapshot.Document, wave))
	}
	b.WriteString("\nSend the signal `pause`, `resume` or `stop` at any time, with an empty payload or `{\"actor\":\"you\",\"reason\":\"why\"}`.\n")
	fmt.Fprintf(&b, "Accepted at %s.\n", x.snapshot.CreatedAt.Format(time.RFC3339))
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
