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

// preflightTimeout is how long the parties have to say whether they can do it.
const preflightTimeout = 15 * time.Second

// workerPatience is how long the workflow worker may take to begin.
const workerPatience = 4 * time.Second

// Preflight is a check of the parties while somebody waits for its answer.
type Preflight struct {
	*backend.Backend
	// Refusal begins the answer when nobody can be asked: "plan shop was not executed".
	Refusal string
	// Summary is the workflow's title in the Temporal UI.
	Summary string
}

// silence says why nobody answers. Several may wait for one answer: each is told what was not begun of its own.
type silence string

func (s silence) Error() string { return string(s) }

// told is the problem of whoever waits.
func (p Preflight) told(err error) error {
	var silent silence
	switch {
	case errors.As(err, &silent):
		return problem.Unreachable.Because("%s: %s", p.Refusal, silent)
	case errors.Is(err, gather.ErrBusy):
		return problem.Unreachable.Because("%s: %d others wait for the party to check theirs; nothing was changed: repeat in a few seconds", p.Refusal,
			gather.Default.Waiting)
	}
	return err
}

// Run asks the parties' workers and answers one outcome for each party.
func (p Preflight) Run(ctx context.Context, input workflows.PreflightInput) ([]workflows.PreflightOutcome, error) {
	outcomes, err := p.ask(ctx, input)
	return outcomes, p.told(err)
}

// Rollout asks a party's worker about a rollout. Rollouts of a party that start at about the same time are asked about together: each workflow costs
// Temporal about as much as a whole rollout does between two of its rests.
func (p Preflight) Rollout(ctx context.Context, check workflows.RolloutPreflight) (workflows.PreflightOutcome, error) {
	raw, err := json.Marshal(check)
	if err != nil {
		return workflows.PreflightOutcome{}, err
	}
	outcome, err := p.Checks.Ask(ctx, check.Queue, check, len(raw), func(ctx context.Context, checks []workflows.RolloutPreflight) ([]workflows.PreflightOutcome, error) {
		if len(checks) > 1 {
			p.Summary = fmt.Sprintf("can %d rollouts of party %s be carried out?", len(checks), check.Party)
		}
		return p.ask(ctx, workflows.PreflightInput{Rollouts: checks})
	})
	return outcome, p.told(err)
}

// ask runs the Preflight workflow.
func (p Preflight) ask(ctx context.Context, input workflows.PreflightInput) (outcomes []workflows.PreflightOutcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	begin, cancelBegin := backend.Briefly(ctx)
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

// await waits for the preflight's end, but not for a workflow worker that is not there.
func (p Preflight) await(ctx context.Context, run client.WorkflowRun, outcomes *[]workflows.PreflightOutcome) error {
	begin, cancel := context.WithTimeout(ctx, workerPatience)
	defer cancel()
	err := run.Get(begin, outcomes)
	if err == nil || !problem.TemporalAway(err) {
		return preflightError(err)
	}
	described, err := p.Describe(ctx, run.GetID())
	waits := described.GetPendingWorkflowTask().GetState() == enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
	if err == nil && execution.IsOpen(described) && waits && !p.busy(ctx) {
		p.end(ctx, run)
		return silence("no workflow worker of the engine answers; start one (slipway worker, or slipway dev)")
	}
	if err = run.Get(ctx, outcomes); problem.TemporalAway(err) {
		p.end(ctx, run)
		return silence(fmt.Sprintf("the parties did not answer within %s; nothing was changed", preflightTimeout))
	}
	return preflightError(err)
}

// busy says that a workflow worker was there a moment ago: it has more to do than it can.
func (p Preflight) busy(ctx context.Context) bool {
	ctx, cancel := backend.Briefly(ctx)
	defer cancel()
	asked, err := p.WorkerAsked(ctx, workerPatience)
	return err == nil && asked
}

// end spares a worker that comes later a check that nobody waits for. If it fails, the workflow's own timeout does the same.
func (p Preflight) end(ctx context.Context, run client.WorkflowRun) {
	ctx, cancel := backend.Briefly(context.WithoutCancel(ctx))
	defer cancel()
	if err := p.Temporal.TerminateWorkflow(ctx, run.GetID(), run.GetRunID(), "nobody waits for it any more"); err != nil {
		p.Log.Debug("preflight not ended", "workflow", run.GetID(), "error", err)
	}
}

// preflightError is the answer to a preflight that ended without an outcome.
func preflightError(err error) error {
	if err == nil {
		return nil
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return problem.Unreachable.Because("the check of the parties failed (%v): nothing was changed; repeat", err)
}
