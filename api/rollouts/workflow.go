package rollouts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/workflows"
)

// Record creates the rollout's record.
func (s *rolloutStart) Record(string, time.Time) (*v1alpha1.ReleaseRecord, error) {
	return store.NewRolloutRecord(s.machineRequest())
}

// machineRequest returns the machine's input as far as it is known before there is a record.
func (s *rolloutStart) machineRequest() machine.Request {
	return machine.Request{Spec: s.request.Spec, RollBackFrozen: s.rollBackFrozen, Revision: s.revision}
}

// Launch starts the rollout's workflow, or makes the live release of this name give way to it. The workflow ID is the
// place: an open workflow of that ID belongs either to this release, started by a concurrent request with the same key,
// or to another release.
func (s *rolloutStart) Launch(ctx context.Context) (err error) {
	if s.engine, err = s.Home.Engine(ctx); err != nil {
		return err
	}
	if err := s.verifyNumber(ctx); err != nil {
		return err
	}
	if s.replacing {
		return s.supersede(ctx)
	}
	already, err := s.Execute(ctx, s.workflow())
	if !already || err != nil {
		return err
	}
	ours, err := s.HasWorkflow(ctx, s.Written)
	if err != nil || ours {
		return err
	}
	if s.Key == "" {
		s.Withdraw(ctx)
	}
	return start.ErrRetry
}

func (s *rolloutStart) workflow() start.Workflow {
	workload := s.request.Spec.WorkloadRef
	return start.Workflow{Type: workflows.TypeRollout, Input: s.input(), Options: client.StartWorkflowOptions{
		ID:                       s.key.workflowID(),
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		TypedSearchAttributes:    workflows.RolloutAttributes(s.request.Spec),
		Memo:                     map[string]any{workflows.MemoRecord: s.Written.Name},
		StaticSummary: start.Summary(fmt.Sprintf("%s %s/%s: %s", workload.Kind, s.key.namespace,
			workload.Name, s.machineRequest().Outline())),
		StaticDetails: s.details(),
	}}
}

func (s *rolloutStart) input() workflows.RolloutInput {
	asked := store.RolloutAsked(s.Written, s.request.Spec)
	asked.UnreachableBudgetSeconds = s.BudgetSeconds()
	asked.Object, asked.ConfirmReason, asked.Predicted = s.object, s.confirm, s.predicted
	return workflows.RolloutInput{Request: asked, Queue: s.queue, Engine: s.engine}
}

// details is the description of the rollout in the Temporal UI, as Markdown: what the rollout does, and which signals
// control it.
func (s *rolloutStart) details() string {
	spec := s.request.Spec
	var b strings.Builder
	fmt.Fprintf(&b, "Rollout `%s` releases %s **%s** in namespace %s: %s.\n\n", s.key.name, spec.WorkloadRef.Kind,
		spec.WorkloadRef.Name,
		s.key.namespace, s.machineRequest().Outline())
	if s.request.Actor != "" || s.request.Reason != "" {
		fmt.Fprintf(&b, "Requested by %s: %s\n\n", cmp.Or(s.request.Actor, "-"),
			cmp.Or(phrase.Cut(s.request.Reason, 300), "-"))
	}
	for i, step := range spec.Strategy.Steps {
		if i == start.MaxDetailLines {
			b.WriteString("\nand more steps.\n")
			break
		}
		fmt.Fprintf(&b, "%d. %s\n", i+1, stepOutline(step))
	}
	b.WriteString("\nThe current details say what it waits for. Send the signal `approve`, `pause`, `resume`, " +
		"`rollback`, `stop`, `jump`, `retry` or `promote`, with an empty payload or " +
		"`{\"actor\":\"you\",\"reason\":\"why\"}`.\n")
	fmt.Fprintf(&b, "Accepted at %s.\n", phrase.Time(s.Written.Spec.CreatedAt.Time))
	return b.String()
}

func stepOutline(step strategy.Step) string {
	parts := []string{fmt.Sprintf("pods %s", step.Replicas.String())}
	switch {
	case len(step.Matches) > 0:
		parts = append(parts, "traffic by "+phrase.Count(len(step.Matches), "match"))
	case step.Traffic != nil:
		parts = append(parts, fmt.Sprintf("traffic %d%%", *step.Traffic))
	}
	switch {
	case step.PauseSeconds == nil:
		parts = append(parts, "then an approval")
	case *step.PauseSeconds > 0:
		parts = append(parts, "then a pause of "+(time.Duration(*step.PauseSeconds)*time.Second).String())
	}
	return strings.Join(parts, ", ")
}

// supersedeKey is the key of the command with which the record's release supersedes the live one.
func supersedeKey(record string) string { return "supersede-" + record }

// supersede makes the live release of this name give way to this one.
func (s *rolloutStart) supersede(ctx context.Context) error {
	request := workflows.SupersedeRequest{Input: s.input(), VerbRequest: workflows.VerbRequest{
		Actor: s.request.Actor, Reason: s.request.Reason, Via: s.Via, Key: supersedeKey(s.Written.Name)}}
	answer, err := verbs.Send(ctx, s.Backend, s.key.workflowID(),
		verbs.Command{Verb: string(rollout.VerbSupersede), Key: request.Key, Payload: request})
	switch {
	case errors.Is(err, verbs.ErrClosed):
		return start.ErrRetry // it has ended in the meantime: start normally
	case errors.Is(err, verbs.ErrUnknown):
		return problem.Unreachable.Because("%v: whether the live release of %s is superseded is not known; "+
			"repeat with the same Idempotency-Key, or look at it in a minute", verbs.ErrUnknown,
			s.key).HeldBy(s.key.workflowID())
	case err != nil:
		if problem.Of(err).Status == problem.Malformed.Status {
			s.Withdraw(ctx)
		}
		return err
	}
	if answer.Outcome == audit.Refused {
		s.Withdraw(ctx)
		return s.nameTaken(ctx, answer.Message)
	}
	return nil
}
