package rollouts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// memoKeyRecord is the memo that names the record with which a rollout's workflow was started.
const memoKeyRecord = "record"

// Record is what the rollout is asked.
func (s *rolloutStart) Record(string, time.Time) (*v1alpha1.ReleaseRecord, error) {
	snapshot, err := v1alpha1.EncodeBody(s.request.Spec)
	if err != nil {
		return nil, err
	}
	spec := s.request.Spec
	record := &v1alpha1.ReleaseRecord{Spec: v1alpha1.ReleaseRecordSpec{
		Comment: s.outline(), Workload: &spec.WorkloadRef, Style: string(spec.Strategy.Style), WorkflowID: s.key.workflowID(),
		Snapshot: snapshot}}
	record.Labels = s.key.labels()
	if s.bringHome {
		record.Labels[v1alpha1.LabelBringHome] = "true"
	} else {
		record.Labels[v1alpha1.LabelRevision] = strconv.FormatInt(s.revision, 10)
	}
	return record, nil
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
	if images := spec.Change.ImagesOf(); len(images) > 0 {
		var parts []string
		for _, container := range slices.Sorted(maps.Keys(images)) {
			parts = append(parts, container+" → "+images[container])
		}
		change = strings.Join(parts, ", ")
	}
	if spec.Undo != nil {
		change = spec.Undo.String() + ": " + change
	}
	return start.Cut(fmt.Sprintf("%s, %s in %s", change, spec.Strategy.Style, start.Counted(len(spec.Strategy.Steps), "step")), 300)
}

// Begin starts the rollout's workflow, or has the live release of this name make way for it. The workflow's ID is the place: one of that
// ID that runs already is either this release's own, started by a twin of the request, or another's, which was faster.
func (s *rolloutStart) Begin(ctx context.Context) (err error) {
	if s.engine, err = s.Home.Engine(ctx); err != nil {
		return err
	}
	if s.replacing {
		return s.supersede(ctx)
	}
	already, err := s.Execute(ctx, s.workflow())
	if !already || err != nil {
		return err
	}
	ours, err := s.Began(ctx, s.Written)
	if err != nil || ours {
		return err
	}
	if s.Key == "" {
		s.Withdraw(ctx)
	}
	return start.ErrAgain
}

func (s *rolloutStart) workflow() start.Workflow {
	workload := s.request.Spec.WorkloadRef
	return start.Workflow{Type: workflows.TypeRollout, Input: s.input(), Options: client.StartWorkflowOptions{
		ID:                       s.key.workflowID(),
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		TypedSearchAttributes:    s.searchAttributes(),
		Memo:                     map[string]any{memoKeyRecord: s.Written.Name},
		StaticSummary:            start.Summary(fmt.Sprintf("%s %s/%s: %s", workload.Kind, s.key.namespace, workload.Name, s.outline())),
		StaticDetails:            s.details(),
	}}
}

func (s *rolloutStart) input() workflows.RolloutInput {
	asked := askedOf(s.Written, s.request.Spec)
	asked.UnreachableBudgetSeconds = s.BudgetSeconds()
	asked.Object, asked.Confirm = s.object, s.confirm
	return workflows.RolloutInput{Asked: asked, Queue: s.queue, Engine: s.engine}
}

// searchAttributes are what Temporal's lists can be filtered by.
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
	fmt.Fprintf(&b, "Rollout `%s` releases %s **%s** in namespace %s: %s.\n\n", s.key.name, spec.WorkloadRef.Kind, spec.WorkloadRef.Name,
		s.key.namespace, s.outline())
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
	b.WriteString("\nThe current details say what it waits for. Send the signal `approve`, `pause`, `resume`, `rollback`, `stop`, `jump`, " +
		"`retry` or `promote`, with an empty payload or `{\"actor\":\"you\",\"reason\":\"why\"}`.\n")
	fmt.Fprintf(&b, "Accepted at %s.\n", s.Written.Spec.CreatedAt.UTC().Format(time.RFC3339))
	return b.String()
}

func stepOutline(step strategy.Step) string {
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
		Actor: s.request.Actor, Reason: s.request.Reason, Via: s.Via, Key: "supersede-" + s.Written.Name}}
	answer, err := verbs.Deliver(ctx, s.Backend, s.key.workflowID(),
		verbs.Command{Verb: string(rollout.VerbSupersede), Key: request.Key, Payload: request})
	switch {
	case errors.Is(err, verbs.ErrClosed):
		return start.ErrAgain // it has ended meanwhile: an ordinary start, then
	case errors.Is(err, verbs.ErrUnknown):
		return problem.Unreachable.Because("%v: whether the live release of %s is superseded is not known; "+
			"repeat with the same Idempotency-Key, or look at it in a minute", verbs.ErrUnknown, s.key).HeldBy(s.key.workflowID())
	case err != nil:
		if problem.Of(err).Status == problem.Malformed.Status {
			s.Withdraw(ctx)
		}
		return err
	}
	if answer.Outcome == audit.Refused {
		s.Withdraw(ctx)
		return s.taken(ctx, answer.Message)
	}
	return nil
}
