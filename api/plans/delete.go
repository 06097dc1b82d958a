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

// DeleteTask answers DELETE /api/v1/tasks/{id}. It deletes the record last, so that an interrupted deletion can be
// repeated.
func (h *Handlers) DeleteTask(c echo.Context, id schema.TaskID) error {
	ctx := c.Request().Context()
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return err
	}
	ended := !seen.starting && (!seen.open || seen.task.State.Final() && h.WaitForClose(ctx, plan.WorkflowID(id)))
	if !ended {
		return problem.Conflict.Because("task %s is %s: only a task that has ended can be deleted; stop it first "+
			"(POST /api/v1/tasks/%s/stop)",
			id, seen.task.State, id).About(id, &seen.task)
	}
	children, err := h.children(ctx, seen.task)
	if err != nil {
		return err
	}
	for _, child := range children {
		if child.open {
			return problem.Conflict.Because("service %s of task %s is still being released, although the task has "+
				"ended: wait until workflow %s is closed",
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

// children returns the existing workflows of a task's services.
func (h *Handlers) children(ctx context.Context, task plan.Task) ([]child, error) {
	found := make([]child, len(task.Services))
	failures := make([]error, len(task.Services))
	slots := make(chan struct{}, maxConcurrentCalls)
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

// deleteWorkflow deletes all runs of a closed workflow; a missing workflow is no error. It deletes the first run first,
// because an interrupted deletion finds the remaining runs through the newest one.
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

// runs returns the runs of a continued workflow, newest first: the first event of each names the previous run.
func (h *Handlers) runs(ctx context.Context, workflowID string) (runs []string, err error) {
	described, err := h.Describe(ctx, workflowID)
	if err != nil {
		return nil, err
	}
	for run := described.GetWorkflowExecutionInfo().GetExecution().GetRunId(); run != ""; {
		runs = append(runs, run)
		if run, err = h.previousRun(ctx, workflowID, run); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// previousRun returns the run that was continued as this one; "" if there is none, or Temporal no longer has it.
func (h *Handlers) previousRun(ctx context.Context, workflowID, runID string) (string, error) {
	ctx, cancel := backend.WithCallTimeout(ctx)
	defer cancel()
	page, err := h.Temporal.WorkflowService().GetWorkflowExecutionHistory(ctx,
		&workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: h.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID},
			MaximumPageSize: 1})
	if err != nil || len(page.GetHistory().GetEvents()) == 0 {
		return "", ignoreNotFound(err)
	}
	return page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(),
		nil
}

func (h *Handlers) deleteRun(ctx context.Context, workflowID, runID string) error {
	ctx, cancel := backend.WithCallTimeout(ctx)
	defer cancel()
	_, err := h.Temporal.WorkflowService().DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{
		Namespace: h.Namespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID}})
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return nil
	}
	return err
}
