package api

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/workflows"
)

const (
	// preflightTimeout is how long the parties have to say whether they can do it.
	preflightTimeout = 15 * time.Second
	// workerPatience is how long the workflow worker may take to begin.
	workerPatience = 4 * time.Second
	// preflightChunk bounds one workflow's input: Temporal takes 2 MiB.
	preflightChunk = 1500
)

// place is where a request of the preflight comes from: an item, as an index into the document.
type place struct {
	item    int
	request workloadops.Request
}

// preflight asks the workers of all parties whether the task could be carried out, without a write (design §1, principle 6).
func (x *execution) preflight(ctx context.Context) error {
	var refusals []FieldProblem
	var absent []absentParty
	places := x.places()
	for from := 0; from < len(places); from += preflightChunk {
		chunk := places[from:min(from+preflightChunk, len(places))]
		outcomes, order, err := x.askParties(ctx, chunk)
		if err != nil {
			return err
		}
		for i, outcome := range outcomes {
			if outcome.Unreachable != "" {
				absent = append(absent, absentParty{outcome.Party, x.snapshot.Queues[outcome.Party], outcome.Unreachable})
			}
			for _, refusal := range outcome.Refusals {
				at := order[i][refusal.Index]
				refusals = append(refusals, FieldProblem{Item: at.item + 1, Field: itemField(at.item), Reason: refusal.Reason}) // it names the workload
			}
		}
	}
	switch {
	case len(absent) > 0:
		unreachable := x.whoIsAbsent(ctx, absent...)
		return kindUnreachable.because("plan %s was not executed: %s cannot be reached (%s); nothing was changed", x.plan,
			unreachable[0].Field, unreachable[0].Reason).listing(unreachable)
	case len(refusals) > 0:
		return x.refused(refusals)
	}
	return nil
}

// places are the operations of the task, in the document's order.
func (x *execution) places() []place {
	var all []place
	for n, item := range x.snapshot.Document.Items {
		deadline := x.snapshot.Services[item.ServiceID].Deadline()
		for _, workload := range x.snapshot.Selected(n) {
			all = append(all, place{n, workloadops.Request{Workload: workload, Operation: item.Deployment, Method: item.MethodOrDefault(),
				DeadlineSeconds: deadline, UnreachableBudgetSeconds: x.snapshot.UnreachableBudgetSeconds}})
		}
	}
	return all
}

// askParties runs one preflight. order holds, for each outcome, the places that its refusals index into.
func (x *execution) askParties(ctx context.Context, places []place) (outcomes []workflows.PreflightOutcome, order [][]place, err error) {
	var input workflows.PreflightInput
	index := map[string]int{}
	for _, at := range places {
		party := at.request.Workload.PartyOrDefault()
		i, known := index[party]
		if !known {
			i = len(order)
			index[party] = i
			input.Parties = append(input.Parties, workflows.PreflightParty{Party: party, Queue: x.snapshot.Queues[party]})
			order = append(order, nil)
		}
		input.Parties[i].Requests = append(input.Parties[i].Requests, at.request)
		order[i] = append(order[i], at)
	}
	check := preflightCheck{handlers: x.handlers, refusal: "plan " + x.plan + " was not executed", summary: "can plan " + x.plan + " be executed?"}
	outcomes, err = check.run(ctx, input)
	return outcomes, order, err
}

// preflightCheck is one run of the Preflight workflow while somebody waits for its answer.
type preflightCheck struct {
	*handlers
	// refusal begins the answer when nobody can be asked: "plan shop was not executed".
	refusal string
	// summary is the workflow's title in the Temporal UI.
	summary string
}

func (p preflightCheck) run(ctx context.Context, input workflows.PreflightInput) (outcomes []workflows.PreflightOutcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	begin, cancelBegin := briefly(ctx)
	defer cancelBegin()
	run, err := p.Temporal.ExecuteWorkflow(begin, client.StartWorkflowOptions{
		ID:                       "preflight/" + uuid.NewString(),
		TaskQueue:                workflows.QueueEngine,
		WorkflowExecutionTimeout: 2 * preflightTimeout,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		StaticSummary:            p.summary,
	}, workflows.TypePreflight, input)
	if err != nil {
		return nil, err
	}
	err = p.await(ctx, run, &outcomes)
	return outcomes, err
}

// await waits for the preflight's end, but not for a workflow worker that is not there.
func (p preflightCheck) await(ctx context.Context, run client.WorkflowRun, outcomes *[]workflows.PreflightOutcome) error {
	begin, cancel := context.WithTimeout(ctx, workerPatience)
	defer cancel()
	err := run.Get(begin, outcomes)
	if err == nil || !temporalAway(err) {
		return preflightError(err)
	}
	described, err := p.describe(ctx, run.GetID())
	if err == nil && isOpen(described) && described.GetPendingWorkflowTask().GetState() == enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED {
		p.end(ctx, run)
		return kindUnreachable.because("%s: no workflow worker of the engine answers; start one (slipway worker, or slipway dev)", p.refusal)
	}
	if err = run.Get(ctx, outcomes); temporalAway(err) {
		p.end(ctx, run)
		return kindUnreachable.because("%s: the parties did not answer within %s; nothing was changed", p.refusal, preflightTimeout)
	}
	return preflightError(err)
}

// end spares a worker that comes later a check that nobody waits for. If it fails, the workflow's own timeout does the same.
func (p preflightCheck) end(ctx context.Context, run client.WorkflowRun) {
	ctx, cancel := briefly(context.WithoutCancel(ctx))
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
	return kindUnreachable.because("the check of the parties failed (%v): nothing was changed; repeat", err)
}
