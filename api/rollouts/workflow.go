package rollouts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// memoKeyRecord is the memo that names the record with which a rollout's workflow was started.
const memoKeyRecord = "record"

// writeRecord writes what the rollout was asked, before anything of it exists elsewhere.
func (s *rolloutStart) writeRecord(ctx context.Context) error {
	snapshot, err := v1alpha1.EncodeBody(s.request.Spec)
	if err != nil {
		return err
	}
	labels := s.key.labels()
	labels[v1alpha1.LabelVia] = s.via
	if s.request.Key != "" {
		labels[v1alpha1.LabelIdempotencyKey] = start.KeyLabel(s.request.Key)
	}
	if s.bringHome {
		labels[v1alpha1.LabelBringHome] = "true"
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	spec := s.request.Spec
	record := &v1alpha1.ReleaseRecord{
		ObjectMeta: metav1.ObjectMeta{Name: s.recordName(now), Labels: labels},
		Spec: v1alpha1.ReleaseRecordSpec{
			Kind: v1alpha1.KindRollout, Subject: s.key.subject(), Comment: s.outline(), Workload: &spec.WorkloadRef, Style: string(spec.Strategy.Style),
			WorkflowID: s.key.workflowID(), CreatedAt: metav1.MicroTime{Time: now}, Actor: s.request.Actor, Reason: s.request.Reason,
			RequestDigest: s.requestDigest(), Snapshot: snapshot,
		},
	}
	err = s.Home.CreateRecord(ctx, record)
	if problem.IsFailure(err, failure.Conflict) {
		if s.request.Key == "" {
			s.recordID = "" // chance drew an ID twice
		}
		return errAgain
	}
	if err != nil {
		return err
	}
	s.record = record
	return nil
}

func isBringHome(record *v1alpha1.ReleaseRecord) bool {
	return record.Labels[v1alpha1.LabelBringHome] != ""
}

// outline is what the rollout does in a few words: "app → registry/app:2, partition in 3 steps".
func (s *rolloutStart) outline() string {
	if s.bringHome {
		return "brings home what a rollout left frozen"
	}
	spec := s.request.Spec
	change := "a patch of the pod template"
	if len(spec.Change.Images) > 0 {
		var parts []string
		for _, container := range slices.Sorted(maps.Keys(spec.Change.Images)) {
			parts = append(parts, container+" → "+spec.Change.Images[container])
		}
		change = strings.Join(parts, ", ")
	}
	return start.Cut(fmt.Sprintf("%s, %s in %s", change, spec.Strategy.Style, start.Counted(len(spec.Strategy.Steps), "step")), 300)
}

// start starts the rollout's workflow. One of that ID that runs already is either this release's own or another's.
func (s *rolloutStart) start(ctx context.Context) error {
	if s.adopted {
		if err := s.keepRecord(ctx); err != nil {
			return err
		}
	}
	begin, cancel := context.WithTimeout(ctx, start.WorkflowTimeout)
	defer cancel()
	_, err := s.Temporal.ExecuteWorkflow(begin, client.StartWorkflowOptions{
		ID:                                       s.key.workflowID(),
		TaskQueue:                                workflows.QueueEngine,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    s.searchAttributes(),
		Memo:                                     map[string]any{memoKeyRecord: s.record.Name},
		StaticSummary:                            start.Cut(fmt.Sprintf("%s %s/%s: %s", s.request.Spec.WorkloadRef.Kind, s.key.namespace, s.request.Spec.WorkloadRef.Name, s.outline()), 200),
		StaticDetails:                            s.details(),
	}, workflows.TypeRollout, s.input())
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case err == nil:
		return nil
	case errors.As(err, &started):
		return s.alreadyStarted(ctx)
	case start.NeverStarted(err):
		s.withdraw(ctx)
		return problem.Unreachable.Because("Temporal refuses to start the rollout (%v): nothing was changed; see whether the engine's worker has set it up", err)
	case problem.TemporalAway(err):
		return problem.Unreachable.Because("Temporal does not answer (%v): whether %s was started is not known; repeat with the same Idempotency-Key, or look at it in a minute",
			err, s.key).HeldBy(s.key.workflowID())
	}
	return fmt.Errorf("start the workflow of %s: %w", s.key, err)
}

// alreadyStarted finds out whose workflow it is that runs: this release's, by a twin of the request, or another's, which was faster.
func (s *rolloutStart) alreadyStarted(ctx context.Context) error {
	ours, err := s.began(ctx, s.record)
	if err != nil || ours {
		return err
	}
	if s.request.Key == "" {
		s.withdraw(ctx)
	}
	return errAgain
}

// keepRecord writes an adopted record again if the one who wrote it first has withdrawn it meanwhile.
func (s *rolloutStart) keepRecord(ctx context.Context) error {
	record := s.record.DeepCopy()
	record.ResourceVersion, record.UID = "", ""
	err := s.Home.CreateRecord(ctx, record)
	if problem.IsFailure(err, failure.Conflict) {
		return nil
	}
	return err
}

func (s *rolloutStart) input() workflows.RolloutInput {
	return workflows.RolloutInput{
		Spec: s.request.Spec, Queue: s.queue, Record: s.record.Name, CreatedAt: s.record.Spec.CreatedAt.UTC(),
		Actor: s.record.Spec.Actor, Reason: s.record.Spec.Reason, Via: s.record.Labels[v1alpha1.LabelVia],
		UnreachableBudgetSeconds: s.BudgetSeconds(), BringHome: s.bringHome,
	}
}

// searchAttributes are what Temporal's lists can be filtered by (design §4).
func (s *rolloutStart) searchAttributes() temporal.SearchAttributes {
	return temporal.NewSearchAttributes(
		workflows.AttributeKind.ValueSet(workflows.KindRollout),
		workflows.AttributeState.ValueSet(string(rollout.PhaseProgressing)),
		workflows.AttributeName.ValueSet(s.key.name),
		workflows.AttributeNamespace.ValueSet(s.key.namespace),
		workflows.AttributeParties.ValueSet([]string{s.key.party}),
	)
}

// details is what the Temporal UI says of the rollout before it runs, as Markdown: what it will do, and how to steer it.
func (s *rolloutStart) details() string {
	spec := s.request.Spec
	var b strings.Builder
	fmt.Fprintf(&b, "Rollout `%s` releases %s **%s** in namespace %s: %s.\n\n", s.key.name, spec.WorkloadRef.Kind, spec.WorkloadRef.Name, s.key.namespace, s.outline())
	if s.request.Actor != "" || s.request.Reason != "" {
		fmt.Fprintf(&b, "Asked by %s: %s\n\n", start.OrDash(s.request.Actor), start.OrDash(start.Cut(s.request.Reason, 300)))
	}
	for i, step := range spec.Strategy.Steps {
		if i == start.MaxDetailLines {
			b.WriteString("\nand more steps.\n")
			break
		}
		fmt.Fprintf(&b, "%d. %s\n", i+1, stepOutline(step))
	}
	b.WriteString("\nThe current details say what it waits for. Send the signal `approve`, `pause`, `resume`, `rollback`, `stop`, `jump`, `retry` or `promote`, with an " +
		"empty payload or `{\"actor\":\"you\",\"reason\":\"why\"}`.\n")
	fmt.Fprintf(&b, "Accepted at %s.\n", s.record.Spec.CreatedAt.UTC().Format(time.RFC3339))
	return b.String()
}

func stepOutline(step rollout.Step) string {
	parts := []string{fmt.Sprintf("pods %s", step.Replicas.String())}
	switch {
	case len(step.Matches) > 0:
		parts = append(parts, "traffic by "+start.Counted(len(step.Matches), "match"))
	case step.Traffic != nil:
		parts = append(parts, fmt.Sprintf("traffic %d%%", *step.Traffic))
	}
	switch {
	case step.PauseSeconds == nil:
		parts = append(parts, "then a person approves")
	case *step.PauseSeconds > 0:
		parts = append(parts, "then a rest of "+(time.Duration(*step.PauseSeconds)*time.Second).String())
	}
	return strings.Join(parts, ", ")
}

// supersede has the live release of this name make way for this one.
func (s *rolloutStart) supersede(ctx context.Context) error {
	request := workflows.SupersedeRequest{Input: s.input(), VerbRequest: workflows.VerbRequest{
		Actor: s.request.Actor, Reason: s.request.Reason, Via: s.via, Key: "supersede-" + s.record.Name}}
	var response workflows.RolloutVerbResponse
	err := s.Update(ctx, backend.WorkflowUpdate{WorkflowID: s.key.workflowID(), Name: string(rollout.VerbSupersede), Key: request.Key, Request: request}, &response)
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	switch {
	case errors.As(err, &missing), errors.As(err, &refused) && refused.Type() == backend.UpdateCutOff:
		return errAgain // it has ended meanwhile: an ordinary start, then
	case errors.As(err, &refused):
		s.withdraw(ctx)
		return problem.Malformed.Because("supersede was not taken: %s", refused.Message())
	case backend.UpdateUnheard(err):
		return problem.Unreachable.Because("no workflow worker of the engine answered in time: whether the live release of %s is superseded is not known; "+
			"repeat with the same Idempotency-Key, or look at it in a minute", s.key).HeldBy(s.key.workflowID())
	case err != nil:
		return fmt.Errorf("supersede %s: %w", s.key, err)
	}
	if response.Outcome == plan.OutcomeRefused {
		s.withdraw(ctx)
		return problem.Conflict.Because("%s", response.Message).Showing(response.Status).HeldBy(s.key.workflowID())
	}
	return nil
}
