package plans

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/labstack/echo/v4"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// DeleteTask answers DELETE /api/v1/tasks/{id}. The record goes last, so that a deletion that was cut off can be repeated.
func (h *Handlers) DeleteTask(c echo.Context, id schema.TaskID) error {
	ctx := c.Request().Context()
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return err
	}
	over := !seen.starting && (!seen.open || seen.task.State.Final() && h.ClosesSoon(ctx, plan.WorkflowID(id)))
	if !over {
		return problem.Conflict.Because("task %s is %s: only a task that is over can be deleted; stop it first (POST /api/v1/tasks/%s/stop)",
			id, seen.task.State, id).About(id, &seen.task)
	}
	children, err := h.children(ctx, seen.task)
	if err != nil {
		return err
	}
	for _, child := range children {
		if child.open {
			return problem.Conflict.Because("service %s of task %s is still being released, although the task is gone: wait until %s is closed",
				child.service, id, child.workflowID).About(id, &seen.task)
		}
	}
	for _, child := range children {
		if err := h.deleteWorkflow(ctx, child.workflowID); err != nil {
			return err
		}
	}
	if err := h.deleteWorkflow(ctx, plan.WorkflowID(id)); err != nil {
		return err
	}
	if err := h.Home.DeleteRecord(ctx, id); err != nil && !failure.Is(err, failure.NotFound) {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// child is the workflow of one service of a task.
type child struct {
	workflowID string
	service    plan.ServiceID
	open       bool
}

// children are the workflows of a task's services that Temporal knows.
func (h *Handlers) children(ctx context.Context, task plan.Task) ([]child, error) {
	found := make([]child, len(task.Services))
	failures := make([]error, len(task.Services))
	slots := make(chan struct{}, maxQuestions)
	var wg sync.WaitGroup
	for i, service := range task.Services {
		if service.State == plan.ItemSkipped {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			id := plan.ItemWorkflowID(task.ID, i+1, service.ServiceID)
			described, err := h.Describe(ctx, id)
			if failures[i] = err; described != nil {
				found[i] = child{id, service.ServiceID, execution.IsOpen(described)}
			}
		})
	}
	wg.Wait()
	var known []child
	for _, one := range found {
		if one.workflowID != "" {
			known = append(known, one)
		}
	}
	return known, errors.Join(failures...)
}

// deleteWorkflow makes Temporal forget all runs of a closed workflow; one that it does not know is forgotten already. The first run goes
// first, so that a deletion that was cut off still finds its way to the others.
func (h *Handlers) deleteWorkflow(ctx context.Context, workflowID string) error {
	runs, err := h.runs(ctx, workflowID)
	if err != nil {
		return err
	}
	for _, runID := range slices.Backward(runs) {
		if err := h.deleteRun(ctx, workflowID, runID); err != nil {
			return err
		}
	}
	return nil
}

// runs are the runs of a workflow that went on from one to the next, newest first: each names the one before it in its first event.
func (h *Handlers) runs(ctx context.Context, workflowID string) (runs []string, err error) {
	described, err := h.Describe(ctx, workflowID)
	if err != nil {
		return nil, err
	}
	for run := described.GetWorkflowExecutionInfo().GetExecution().GetRunId(); run != ""; {
		runs = append(runs, run)
		if run, err = h.runBefore(ctx, workflowID, run); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// runBefore is the run that went on in this one; "" when there is none, or Temporal knows it no more.
func (h *Handlers) runBefore(ctx context.Context, workflowID, runID string) (string, error) {
	ctx, cancel := backend.Briefly(ctx)
	defer cancel()
	page, err := h.Temporal.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: h.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID}, MaximumPageSize: 1})
	if err != nil || len(page.GetHistory().GetEvents()) == 0 {
		return "", unlessForgotten(err)
	}
	return page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(), nil
}

func (h *Handlers) deleteRun(ctx context.Context, workflowID, runID string) error {
	ctx, cancel := backend.Briefly(ctx)
	defer cancel()
	_, err := h.Temporal.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: h.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID}})
	return unlessForgotten(err)
}

func unlessForgotten(err error) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil
	}
	return err
}
