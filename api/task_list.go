package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// ListTasks answers GET /api/v1/tasks: the records, joined with what Temporal's lists say of the tasks that are not over (design §4).
func (h *handlers) ListTasks(c echo.Context, params ListTasksParams) error {
	wanted, err := taskFilter(params)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	labels := map[string]string{v1alpha1.LabelKind: v1alpha1.KindTask}
	if wanted.plan != "" {
		labels[v1alpha1.LabelSubject] = wanted.plan
	}
	records, err := h.Home.ListRecords(ctx, labels)
	if err != nil {
		return err
	}
	query := fmt.Sprintf("%s = '%s'", workflows.AttributeKind.GetName(), workflows.KindTask)
	if wanted.plan != "" {
		query += fmt.Sprintf(" AND %s = '%s'", workflows.AttributeName.GetName(), wanted.plan) // a legal name has no quotes in it
	}
	lister := &taskLister{openWorkflows{handlers: h, query: query}}
	list := TaskList{}
	list.Items, list.NextCursor, err = pageOf(wanted.page, records, func(record *v1alpha1.ReleaseRecord) (TaskSummary, bool, error) {
		summary, err := lister.summary(ctx, record)
		return summary, wanted.hasState(summary.State), err
	})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, list)
}

// wantedTasks is what a list was asked for.
type wantedTasks struct {
	states []plan.TaskState
	plan   string
	page   askedPage
}

func (w wantedTasks) hasState(state plan.TaskState) bool {
	return len(w.states) == 0 || slices.Contains(w.states, state)
}

var taskStates = []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused, plan.TaskStopping, plan.TaskStopped,
	plan.TaskInterrupted, plan.TaskSucceeded, plan.TaskFailed}

func taskFilter(params ListTasksParams) (wantedTasks, error) {
	page, err := pageAsked(params.Limit, params.Cursor)
	if err != nil {
		return wantedTasks{}, err
	}
	wanted := wantedTasks{page: page, plan: text(params.Plan)}
	if params.Plan != nil {
		if err := catalog.ValidID(wanted.plan); err != nil {
			return wantedTasks{}, badQuery(FieldProblem{Field: "plan", Reason: err.Error()})
		}
	}
	if params.State != nil {
		wanted.states = *params.State
	}
	for _, state := range wanted.states {
		if !slices.Contains(taskStates, state) {
			return wantedTasks{}, badQuery(FieldProblem{Field: "state", Reason: fmt.Sprintf("%q is none of %s", state, join(taskStates))})
		}
	}
	return wanted, nil
}

func join[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = string(value)
	}
	return strings.Join(texts, ", ")
}

// taskLister makes the summaries of one list.
type taskLister struct{ openWorkflows }

func (l *taskLister) summary(ctx context.Context, record *v1alpha1.ReleaseRecord) (TaskSummary, error) {
	id, _ := plan.TaskOfWorkflow(record.Spec.WorkflowID)
	summary := TaskSummary{ID: id, Plan: record.Spec.Subject, Comment: record.Spec.Comment, CreatedAt: record.Spec.CreatedAt.UTC(),
		Workflow: l.workflowRef(record.Spec.WorkflowID, "")}
	if outcome := record.Outcome; outcome != nil {
		summary.State, summary.Reason = plan.TaskState(outcome.State), outcome.Reason
		summary.Workflow = l.workflowRef(record.Spec.WorkflowID, outcome.RunID)
		if outcome.StartedAt != nil {
			summary.StartedAt = utc(outcome.StartedAt.Time)
		}
		if outcome.FinishedAt != nil {
			summary.FinishedAt = utc(outcome.FinishedAt.Time)
		}
		return summary, nil
	}
	info, err := l.running(ctx, record.Spec.WorkflowID)
	if err != nil {
		return summary, err
	}
	if info == nil {
		return l.lost(ctx, id, summary)
	}
	summary.State = publishedState(info)
	summary.Workflow = l.workflowRef(record.Spec.WorkflowID, info.GetExecution().GetRunId())
	if summary.State != plan.TaskPending {
		summary.StartedAt = utc(info.GetStartTime().AsTime())
	}
	return summary, nil
}

// lost is for the few tasks whose record is not complete and whose workflow does not run: they are read in full.
func (l *taskLister) lost(ctx context.Context, id string, summary TaskSummary) (TaskSummary, error) {
	seen, err := l.readTask(ctx, id, newTaskReader(l.handlers))
	if err != nil {
		return summary, err
	}
	summary.State, summary.Reason = seen.task.State, seen.task.Reason
	summary.StartedAt, summary.FinishedAt = seen.task.StartedAt, seen.task.FinishedAt
	summary.Workflow = seen.task.Workflow
	return summary, nil
}

func utc(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}
