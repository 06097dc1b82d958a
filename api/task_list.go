package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// visibilityPage is how many open tasks are read from Temporal's lists at once.
const visibilityPage = 500

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
	lister := &taskLister{handlers: h, plan: wanted.plan}
	list := TaskList{Items: []TaskSummary{}}
	for i := range records {
		if !wanted.after.precedes(&records[i]) {
			continue
		}
		summary, err := lister.summary(ctx, &records[i])
		if err != nil {
			return err
		}
		if !wanted.hasState(summary.State) {
			continue
		}
		if len(list.Items) == wanted.limit {
			list.NextCursor = wanted.last.String()
			break
		}
		list.Items = append(list.Items, summary)
		wanted.last = positionOf(&records[i])
	}
	return c.JSON(http.StatusOK, list)
}

// wantedTasks is what a list was asked for.
type wantedTasks struct {
	states []plan.TaskState
	plan   string
	limit  int
	after  position
	last   position
}

func (w wantedTasks) hasState(state plan.TaskState) bool {
	return len(w.states) == 0 || slices.Contains(w.states, state)
}

var taskStates = []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused, plan.TaskStopping, plan.TaskStopped,
	plan.TaskInterrupted, plan.TaskSucceeded, plan.TaskFailed}

func taskFilter(params ListTasksParams) (wantedTasks, error) {
	limit, err := pageLimit(params.Limit)
	if err != nil {
		return wantedTasks{}, err
	}
	wanted := wantedTasks{limit: limit, plan: text(params.Plan)}
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
	if cursor := text(params.Cursor); cursor != "" {
		if wanted.after, err = parsePosition(cursor); err != nil {
			return wantedTasks{}, badCursor()
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

// position is a place in the list of tasks: newest first, then by name.
type position struct {
	created time.Time
	name    string
}

func positionOf(record *v1alpha1.ReleaseRecord) position {
	return position{record.Spec.CreatedAt.Time, record.Name}
}

// precedes says whether the record comes after this place. The zero position is before everything.
func (p position) precedes(record *v1alpha1.ReleaseRecord) bool {
	if p.name == "" {
		return true
	}
	if order := record.Spec.CreatedAt.Compare(p.created); order != 0 {
		return order < 0
	}
	return record.Name < p.name
}

func (p position) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.created.UnixMicro(), 10) + " " + p.name))
}

func parsePosition(cursor string) (position, error) {
	plain, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return position{}, err
	}
	micros, name, found := strings.Cut(string(plain), " ")
	created, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || !found || name == "" {
		return position{}, fmt.Errorf("malformed cursor")
	}
	return position{time.UnixMicro(created).UTC(), name}, nil
}

// taskLister makes the summaries of one list. It asks Temporal once, and only if some task is not over.
type taskLister struct {
	*handlers
	plan string
	open map[string]*workflowpb.WorkflowExecutionInfo
}

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
	if err := l.readOpen(ctx); err != nil {
		return summary, err
	}
	info := l.open[record.Spec.WorkflowID]
	if info == nil { // the lists lag behind: ask for this one
		described, err := l.describe(ctx, record.Spec.WorkflowID)
		if err != nil {
			return summary, err
		}
		if described == nil || !isOpen(described) {
			return l.lost(ctx, id, summary)
		}
		info = described.GetWorkflowExecutionInfo()
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

func (l *taskLister) readOpen(ctx context.Context) error {
	if l.open != nil {
		return nil
	}
	l.open = map[string]*workflowpb.WorkflowExecutionInfo{}
	query := fmt.Sprintf("%s = '%s' AND ExecutionStatus = 'Running'", workflows.AttributeKind.GetName(), workflows.KindTask)
	if l.plan != "" {
		query += fmt.Sprintf(" AND %s = '%s'", workflows.AttributeName.GetName(), l.plan) // a legal name has no quotes in it
	}
	for token := []byte(nil); ; {
		page, err := l.openPage(ctx, query, token)
		if err != nil {
			return err
		}
		for _, info := range page.GetExecutions() {
			l.open[info.GetExecution().GetWorkflowId()] = info
		}
		if token = page.GetNextPageToken(); len(token) == 0 {
			return nil
		}
	}
}

func (l *taskLister) openPage(ctx context.Context, query string, token []byte) (*workflowservice.ListWorkflowExecutionsResponse, error) {
	ctx, cancel := briefly(ctx)
	defer cancel()
	return l.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: l.Namespace, Query: query, PageSize: visibilityPage, NextPageToken: token})
}

func utc(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}
