package plans

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
)

// This file is about tasks that start from an earlier task: reruns and reversals.

// rerun is the earlier task that is run again.
type rerun struct {
	task     string
	document plan.Document
	// keepsTimes means that the earlier execution's times apply again; no warning is due for the past ones among them.
	keepsTimes bool
}

// RerunTask answers POST /api/v1/tasks/{id}/rerun.
func (h *Handlers) RerunTask(c echo.Context, id schema.TaskID, params schema.RerunTaskParams) error {
	request, times, err := h.executeRequest(c, schema.ExecutePlanParams(params))
	if err != nil {
		return err
	}
	seen, snapshot, err := h.taskWithSnapshot(c.Request().Context(), id)
	if err != nil {
		return err
	}
	document, err := plan.Rerun(seen.Value, snapshot)
	if failure.Is(err, failure.Conflict) {
		return problem.Conflict.Because("%s", err).About(id, &seen.Value)
	}
	if err != nil {
		return err
	}
	again := &rerun{task: id, document: document, keepsTimes: times.AnyTime()}
	if again.keepsTimes {
		times = snapshot.Times // the caller has not overridden the earlier times
	}
	request.Subject = seen.Value.Plan
	request.DigestInput = rerunDigest{id, requestBody(request, times)}
	return h.answerStart(c, request, times, again)
}

// rerunDigest is hashed to distinguish requests with the same Idempotency-Key.
type rerunDigest struct {
	RerunOf string                `json:"rerunOf"`
	Request schema.ExecuteRequest `json:"request"`
}

// taskWithSnapshot reads a task and the snapshot that it ran. If the task has just ended, it first waits until the
// task's workflow has closed.
func (h *Handlers) taskWithSnapshot(ctx context.Context, id string) (taskSnapshot, plan.Snapshot, error) {
	seen, err := h.readTask(ctx, id)
	if err != nil {
		return seen, plan.Snapshot{}, err
	}
	if seen.Open && seen.Value.State.Final() && h.WaitForClose(ctx, plan.WorkflowID(id)) {
		if seen, err = h.readTask(ctx, id); err != nil {
			return seen, plan.Snapshot{}, err
		}
	}
	snapshot, err := h.snapshotOf(ctx, id)
	return seen, snapshot, err
}

// snapshotOf returns the snapshot that a task runs, from its record.
func (h *Handlers) snapshotOf(ctx context.Context, id string) (snapshot plan.Snapshot, err error) {
	record, err := h.Home.GetRecord(ctx, id)
	if failure.Is(err, failure.NotFound) {
		return snapshot, problem.NotFound.Because("the record of task %s, which contains what it ran, no longer exists",
			id)
	}
	if err != nil {
		return snapshot, err
	}
	return backend.Decode[plan.Snapshot](record, record.Spec.Snapshot)
}

// ReverseTask answers POST /api/v1/tasks/{id}/reverse: it saves the plan that reverts the task's changes, and executes
// nothing.
func (h *Handlers) ReverseTask(c echo.Context, id schema.TaskID) error {
	ctx := c.Request().Context()
	seen, snapshot, err := h.taskWithSnapshot(ctx, id)
	if err != nil {
		return err
	}
	if !seen.Value.State.Final() {
		return problem.Conflict.Because("task %s is %s: only a task that has ended can be reversed; stop it first "+
			"(POST /api/v1/tasks/%s/stop), or wait", id, seen.Value.State, id).About(id, &seen.Value)
	}
	reverse := plan.NewReport(seen.Value, snapshot).Reverse
	if reverse.Document == nil {
		problems := make([]schema.FieldProblem, len(reverse.Notes))
		for i, note := range reverse.Notes {
			problems[i] = schema.FieldProblem{Reason: note}
		}
		return problem.Refused.Listing(problems, "task %s cannot be reversed by a plan", id)
	}
	result := schema.ReversePlan{Name: plan.ReverseName(seen.Value.Plan, id),
		Notes: append([]string{}, reverse.Notes...), Document: *reverse.Document}
	failpoint.Hit("plan.reverse.before")
	err = h.Home.CreatePlan(ctx, result.Name, result.Document)
	failpoint.Hit("plan.reverse.after")
	if result.Created = err == nil; result.Created {
		c.Response().Header().Set(echo.HeaderLocation, "/api/v1/plans/"+result.Name)
		return c.JSON(http.StatusCreated, result)
	}
	if !failure.Is(err, failure.Conflict) {
		return err
	}
	there, err := h.plan(ctx, result.Name)
	if err != nil {
		return err
	}
	result.Document = there.Spec
	return c.JSON(http.StatusOK, result)
}

// restorableTask returns the recorded task whose changes a plan restores, or the reason why it cannot be restored.
func (h *Handlers) restorableTask(ctx context.Context, id string) (plan.Recorded, error) {
	record, err := h.Home.GetRecord(ctx, id)
	switch {
	case failure.Is(err, failure.NotFound):
		return plan.Recorded{Problem: fmt.Sprintf(
			"task %s does not exist, or its record is no longer kept (--record-limit), so the state before it is "+
				"unknown", id)}, nil
	case err != nil:
		return plan.Recorded{}, err
	case record.Outcome == nil:
		return plan.Recorded{Problem: fmt.Sprintf("task %s has not ended: wait, or stop it first", id)}, nil
	}
	task, err := backend.Decode[plan.Task](record, record.Outcome.Body)
	return plan.Recorded{Task: task}, err
}

// GetTaskReport answers GET /api/v1/tasks/{id}/report.
func (h *Handlers) GetTaskReport(c echo.Context, id schema.TaskID, params schema.GetTaskReportParams) error {
	form, err := reportForm(c, params.Format)
	if err != nil {
		return err
	}
	report, err := h.report(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if form == answer.TypeJSON {
		return c.JSON(http.StatusOK, report)
	}
	text, err := report.Markdown()
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, answer.TypeMarkdown+"; charset=utf-8", []byte(text))
}

func reportForm(c echo.Context, format *schema.ReportFormat) (string, error) {
	if format == nil {
		return answer.Type(c, answer.TypeJSON, answer.TypeMarkdown)
	}
	form, known := map[schema.ReportFormat]string{schema.ReportFormatJSON: answer.TypeJSON,
		schema.ReportFormatMarkdown: answer.TypeMarkdown}[*format]
	if !known {
		return "", problem.BadQuery("format", "must be json or markdown")
	}
	return form, nil
}

func (h *Handlers) report(ctx context.Context, id string) (plan.Report, error) {
	seen, err := h.readTask(ctx, id)
	if err != nil {
		return plan.Report{}, err
	}
	snapshot, err := h.snapshotOf(ctx, id)
	if err != nil {
		return plan.Report{}, err
	}
	return plan.NewReport(seen.Value, snapshot, h.rolloutReports(ctx, seen.Value)...), nil
}

// rolloutReports returns the rollouts that released workloads of the task, with details from their records.
func (h *Handlers) rolloutReports(ctx context.Context, task plan.Task) (reports []plan.RolloutReport) {
	for _, service := range task.Services {
		for _, w := range service.Workloads {
			if w.Rollout == nil {
				continue
			}
			one := plan.RolloutReport{RolloutStatus: *w.Rollout, ServiceID: service.ServiceID}
			status, err := rollouts.ReadRelease(ctx, h.Backend, *w.Rollout)
			switch {
			case failure.Is(err, failure.NotFound):
				one.Unknown = "its record is no longer kept"
			case err != nil:
				one.Unknown = err.Error()
			default:
				one.Replicas, one.History = new(status.Replicas), withoutStart(status.History)
				one.RefusalsDropped = status.RefusalsDropped
			}
			reports = append(reports, one)
		}
	}
	return reports
}

// withoutStart removes the start from a rollout's history: the task itself started it.
func withoutStart(history []audit.Entry) []audit.Entry {
	return slices.DeleteFunc(slices.Clone(history), func(entry audit.Entry) bool {
		return entry.Verb == rollout.VerbStart
	})
}

// DeleteTask answers DELETE /api/v1/tasks/{id}. It deletes the record last, so that an interrupted deletion can be
// repeated.
func (h *Handlers) DeleteTask(c echo.Context, id schema.TaskID) error {
	ctx := c.Request().Context()
	seen, err := h.readTask(ctx, id)
	if err != nil {
		return err
	}
	ended := !seen.Starting && (!seen.Open || seen.Value.State.Final() && h.WaitForClose(ctx, plan.WorkflowID(id)))
	if !ended {
		return problem.Conflict.Because("task %s is %s: only a task that has ended can be deleted; stop it first "+
			"(POST /api/v1/tasks/%s/stop)", id, seen.Value.State, id).About(id, &seen.Value)
	}
	err = forEachService(seen.Value, func(i int, workflowID string) error {
		described, err := h.Describe(ctx, workflowID)
		if execution.IsOpen(described) {
			return problem.Conflict.Because("service %s of task %s is still being released, although the task has "+
				"ended: wait until workflow %s is closed",
				seen.Value.Services[i].ServiceID, id, workflowID).About(id, &seen.Value)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = forEachService(seen.Value, func(_ int, workflowID string) error { return h.deleteWorkflow(ctx, workflowID) })
	if err != nil {
		return err
	}
	if err := h.deleteWorkflow(ctx, plan.WorkflowID(id)); err != nil {
		return err
	}
	return answer.NoContent(c, failure.Ignore(h.Home.DeleteRecord(ctx, id), failure.NotFound))
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
		&workflowservice.GetWorkflowExecutionHistoryRequest{Namespace: h.Namespace,
			Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: runID}, MaximumPageSize: 1})
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
	if problem.Has[*serviceerror.NotFound](err) {
		return nil
	}
	return err
}
