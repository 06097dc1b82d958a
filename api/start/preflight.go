package start

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/gather"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/workflows"
)

// preflightTimeout is how long the parties may take to answer.
const preflightTimeout = 15 * time.Second

// workerTimeout is how long the workflow worker may take to begin.
const workerTimeout = 4 * time.Second

// Preflight is a check by the parties while a client waits for the result.
type Preflight struct {
	*backend.Backend
	// Refusal begins the error if the parties cannot be asked: "plan shop was not executed".
	Refusal string
	// Summary is the workflow's title in the Temporal UI.
	Summary string
}

// noAnswer is the reason why no party answered. Several requests may wait for one answer: each adds its own Refusal.
type noAnswer string

func (s noAnswer) Error() string { return string(s) }

// problemFor converts err to the problem of one waiting request.
func (p Preflight) problemFor(err error) error {
	if unanswered, is := errors.AsType[noAnswer](err); is {
		return problem.Unreachable.Because("%s: %s", p.Refusal, unanswered)
	}
	if errors.Is(err, gather.ErrBusy) {
		return problem.Unreachable.Because("%s: %d other requests already wait for checks by this party; nothing was "+
			"changed: repeat in a few seconds", p.Refusal, gather.Default.Queued)
	}
	return err
}

// Run asks the parties' workers and returns one outcome for each party.
func (p Preflight) Run(ctx context.Context, input workflows.PreflightInput) ([]workflows.PreflightOutcome, error) {
	outcomes, err := p.run(ctx, input)
	return outcomes, p.problemFor(err)
}

// CheckRollout asks a party's worker about a rollout. Rollouts of a party that start at about the same time share one
// workflow: a workflow costs Temporal about as much as a whole rollout does between two of its pauses.
func (p Preflight) CheckRollout(ctx context.Context, check workflows.RolloutPreflight) (workflows.PreflightOutcome,
	error) {
	raw, err := json.Marshal(check)
	if err != nil {
		return workflows.PreflightOutcome{}, err
	}
	outcome, err := p.Checks.Do(ctx, check.Queue, check, len(raw),
		func(ctx context.Context, checks []workflows.RolloutPreflight) ([]workflows.PreflightOutcome, error) {
			if len(checks) > 1 {
				p.Summary = fmt.Sprintf("can %d rollouts of party %s be carried out?", len(checks), check.Party)
			}
			return p.run(ctx, workflows.PreflightInput{Rollouts: checks})
		})
	return outcome, p.problemFor(err)
}

// run runs the Preflight workflow.
func (p Preflight) run(ctx context.Context, input workflows.PreflightInput) (outcomes []workflows.PreflightOutcome,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	begin, cancelBegin := backend.WithCallTimeout(ctx)
	defer cancelBegin()
	run, err := p.Temporal.ExecuteWorkflow(begin, client.StartWorkflowOptions{
		ID:                       "preflight/" + uuid.NewString(),
		TaskQueue:                workflows.QueueEngine,
		WorkflowExecutionTimeout: 2 * preflightTimeout,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		StaticSummary:            p.Summary,
	}, workflows.TypePreflight, input)
	if err != nil {
		return nil, err
	}
	err = p.await(ctx, run, &outcomes)
	return outcomes, err
}

// await waits for the result, but ends the preflight early if no workflow worker runs.
func (p Preflight) await(ctx context.Context, run client.WorkflowRun, outcomes *[]workflows.PreflightOutcome) error {
	begin, cancel := context.WithTimeout(ctx, workerTimeout)
	defer cancel()
	err := run.Get(begin, outcomes)
	if err == nil || !problem.TemporalUnavailable(err) {
		return preflightError(err)
	}
	described, err := p.Describe(ctx, run.GetID())
	unclaimed := described.GetPendingWorkflowTask().GetState() == enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
	if err == nil && execution.IsOpen(described) && unclaimed && !p.workerBusy(ctx) {
		p.terminate(ctx, run)
		return noAnswer("no workflow worker of the engine answers; start one (slipway worker, or slipway dev)")
	}
	if err = run.Get(ctx, outcomes); problem.TemporalUnavailable(err) {
		p.terminate(ctx, run)
		return noAnswer(fmt.Sprintf("the parties did not answer within %s; nothing was changed", preflightTimeout))
	}
	return preflightError(err)
}

// workerBusy reports whether a workflow worker polled recently: it then has more work than it can take.
func (p Preflight) workerBusy(ctx context.Context) bool {
	ctx, cancel := backend.WithCallTimeout(ctx)
	defer cancel()
	polled, err := p.HasRecentPoller(ctx, workerTimeout)
	return err == nil && polled
}

// terminate ends a check whose result is no longer awaited, so that no worker starts it later. If this fails, the
// workflow's own timeout ends it.
func (p Preflight) terminate(ctx context.Context, run client.WorkflowRun) {
	ctx, cancel := backend.WithCallTimeout(context.WithoutCancel(ctx))
	defer cancel()
	if err := p.Temporal.TerminateWorkflow(ctx, run.GetID(), run.GetRunID(),
		"the client no longer waits for the result"); err != nil {
		p.Log.Debug("preflight not terminated", "workflow", run.GetID(), "error", err)
	}
}

// preflightError is the error of a preflight that ended without an outcome.
func preflightError(err error) error {
	if err == nil {
		return nil
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return problem.Unreachable.Because("the check of the parties failed (%v): nothing was changed; repeat", err)
}
