package api

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/release/operation"
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
	request operation.Request
}

// preflight asks the workers of all parties whether the task could be carried out, without a write (design §1, principle 6).
func (x *execution) preflight(ctx context.Context) error {
	var refusals, unreachable []FieldProblem
	places := x.places()
	for from := 0; from < len(places); from += preflightChunk {
		chunk := places[from:min(from+preflightChunk, len(places))]
		outcomes, order, err := x.askParties(ctx, chunk)
		if err != nil {
			return err
		}
		for i, outcome := range outcomes {
			if outcome.Unreachable != "" {
				unreachable = append(unreachable, FieldProblem{Field: "party " + outcome.Party, Reason: outcome.Unreachable})
			}
			for _, refusal := range outcome.Refusals {
				at := order[i][refusal.Index]
				refusals = append(refusals, FieldProblem{Item: at.item + 1, Field: itemField(at.item), Reason: refusal.Reason}) // it names the workload
			}
		}
	}
	switch {
	case len(unreachable) > 0:
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
			all = append(all, place{n, operation.Request{Workload: workload, Operation: item.Deployment, Method: item.MethodOrDefault(),
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
	ctx, cancel := context.WithTimeout(ctx, preflightTimeout)
	defer cancel()
	begin, cancelBegin := briefly(ctx)
	defer cancelBegin()
	run, err := x.Temporal.ExecuteWorkflow(begin, client.StartWorkflowOptions{
		ID:                       "preflight/" + uuid.NewString(),
		TaskQueue:                workflows.QueueEngine,
		WorkflowExecutionTimeout: 2 * preflightTimeout,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		StaticSummary:            "can plan " + x.plan + " be executed?",
	}, workflows.TypePreflight, input)
	if err != nil {
		return nil, nil, err
	}
	if err := x.await(ctx, run, &outcomes); err != nil {
		return nil, nil, err
	}
	return outcomes, order, nil
}

// await waits for the preflight's end, but not for a workflow worker that is not there.
func (x *execution) await(ctx context.Context, run client.WorkflowRun, outcomes *[]workflows.PreflightOutcome) error {
	begin, cancel := context.WithTimeout(ctx, workerPatience)
	defer cancel()
	err := run.Get(begin, outcomes)
	if err == nil || !temporalAway(err) {
		return preflightError(err)
	}
	described, err := x.describe(ctx, run.GetID())
	if err == nil && isOpen(described) && described.GetPendingWorkflowTask().GetState() == enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED {
		x.endPreflight(ctx, run)
		return kindUnreachable.because("plan %s was not executed: no workflow worker of the engine answers; start one (slipway worker, or slipway dev)", x.plan)
	}
	if err = run.Get(ctx, outcomes); temporalAway(err) {
		x.endPreflight(ctx, run)
		return kindUnreachable.because("plan %s was not executed: the parties did not answer within %s; nothing was changed", x.plan, preflightTimeout)
	}
	return preflightError(err)
}

// endPreflight spares a worker that comes later a check that nobody waits for. If it fails, the workflow's own timeout does the same.
func (x *execution) endPreflight(ctx context.Context, run client.WorkflowRun) {
	ctx, cancel := briefly(context.WithoutCancel(ctx))
	defer cancel()
	if err := x.Temporal.TerminateWorkflow(ctx, run.GetID(), run.GetRunID(), "nobody waits for it any more"); err != nil {
		x.Log.Debug("preflight not ended", "workflow", run.GetID(), "error", err)
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
