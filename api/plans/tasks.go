package plans

import (
	"context"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// ListTasks answers GET /api/v1/tasks: the records, joined with Temporal's lists for tasks that have not ended.
func (h *Handlers) ListTasks(c echo.Context, params schema.ListTasksParams) error {
	wanted, err := taskFilter(params)
	if err != nil {
		return err
	}
	labels := map[string]string{v1alpha1.LabelKind: v1alpha1.KindTask}
	if wanted.plan != "" {
		labels[v1alpha1.LabelSubject] = wanted.plan
	}
	return answer.Shared(c, h.Recent, answer.ListMaxAge,
		func(ctx context.Context) (list answer.List[schema.TaskSummary], err error) {
			records, err := h.Home.ListRecords(ctx, labels)
			if err != nil {
				return list, err
			}
			// List the tasks of all plans, even for one plan: the same cached result serves all requests.
			lister := &taskLister{Handlers: h, open: h.OpenOf(workflows.KindTask), withCounts: wanted.plan != ""}
			return answer.FromRecords(wanted.page, records,
				func(record *v1alpha1.ReleaseRecord) (schema.TaskSummary, bool, error) {
					summary, err := lister.summary(ctx, record)
					return summary, len(wanted.states) == 0 || slices.Contains(wanted.states, summary.State), err
				})
		})
}

// listFilter is the filter and the page of a list request.
type listFilter struct {
	states []plan.TaskState
	plan   string
	page   answer.Page
}

var taskStates = []plan.TaskState{plan.TaskPending, plan.TaskRunning, plan.TaskPausing, plan.TaskPaused,
	plan.TaskStopping, plan.TaskStopped, plan.TaskInterrupted, plan.TaskSucceeded, plan.TaskFailed}

func taskFilter(params schema.ListTasksParams) (listFilter, error) {
	asked, err := answer.ParsePage(params.Limit, params.Cursor)
	if err != nil {
		return listFilter{}, err
	}
	wanted := listFilter{page: asked, plan: input.Text(params.Plan)}
	if params.Plan != nil {
		if err := catalog.ValidID(wanted.plan); err != nil {
			return listFilter{}, problem.BadQuery("plan", err.Error())
		}
	}
	wanted.states, err = answer.OneOf("state", params.State, taskStates)
	return wanted, err
}

// taskLister creates the summaries of one list.
type taskLister struct {
	*Handlers
	open *backend.OpenWorkflows
	// withCounts adds the service counts of running tasks. It is set for a list of one plan, which has one or two of
	// them.
	withCounts bool
	// workerUnreachable is true after a workflow worker did not answer: the rest of the list does not wait for it
	// again.
	workerUnreachable bool
}

func (l *taskLister) summary(ctx context.Context, record *v1alpha1.ReleaseRecord) (schema.TaskSummary, error) {
	id, _ := plan.TaskOfWorkflow(record.Spec.WorkflowID)
	summary := schema.TaskSummary{ID: id, Plan: record.Spec.Subject, Comment: record.Spec.Comment,
		CreatedAt: record.Spec.CreatedAt.UTC(), Actor: record.Spec.Actor, RerunOf: record.Spec.RerunOf,
		ReverseOf: record.Spec.ReverseOf, Workflow: l.WorkflowRef(record.Spec.WorkflowID, "")}
	if outcome := record.Outcome; outcome != nil {
		summary.State, summary.Reason, summary.Services = plan.TaskState(outcome.State), outcome.Reason,
			outcome.Services
		summary.Workflow = l.WorkflowRef(record.Spec.WorkflowID, outcome.RunID)
		summary.StartedAt = answer.Moment(outcome.StartedAt)
		summary.FinishedAt = answer.Moment(outcome.FinishedAt)
		return summary, nil
	}
	info, err := l.open.Running(ctx, record.Spec.WorkflowID)
	if err != nil {
		return summary, err
	}
	if info == nil {
		return l.addLost(ctx, id, summary)
	}
	summary.State, summary.Reason = publishedState(info), backend.PublishedDetails(info).Reason
	summary.Workflow = l.WorkflowRef(record.Spec.WorkflowID, info.GetExecution().GetRunId())
	keepsTimes := backend.Memo[bool](info, workflows.MemoTimes)
	if summary.State != plan.TaskPending && !keepsTimes {
		summary.StartedAt = answer.UTC(startedAt(info))
	}
	if l.withCounts || keepsTimes {
		l.addQueried(ctx, record.Spec.WorkflowID, &summary, keepsTimes)
	}
	return summary, nil
}

// addQueried adds what only the task's workflow reports: its service counts and, if it has times, when its first
// service began. If no worker answers, both are omitted for the rest of the list.
func (l *taskLister) addQueried(ctx context.Context, workflowID string, summary *schema.TaskSummary, keepsTimes bool) {
	var task plan.Task
	if l.workerUnreachable || l.Query(ctx, workflowID, "", &task) != nil {
		l.workerUnreachable = true
		return
	}
	if l.withCounts {
		summary.Services = new(task.Counts())
	}
	if keepsTimes {
		summary.StartedAt = task.StartedAt
	}
}

// startedAt returns when a running task started, in its first run.
func startedAt(info *workflowpb.WorkflowExecutionInfo) time.Time {
	if began := backend.Memo[time.Time](info, workflows.MemoStartedAt); !began.IsZero() {
		return began
	}
	return info.GetStartTime().AsTime()
}

// addLost completes the summary of a task without a recorded outcome whose workflow does not run. Such tasks are few,
// and are read in full.
func (l *taskLister) addLost(ctx context.Context, id string, summary schema.TaskSummary) (schema.TaskSummary, error) {
	seen, err := l.readTask(ctx, id)
	if err != nil {
		return summary, err
	}
	summary.State, summary.Reason = seen.Value.State, seen.Value.Reason
	summary.StartedAt, summary.FinishedAt = seen.Value.StartedAt, seen.Value.FinishedAt
	summary.Services = new(seen.Value.Counts())
	summary.Workflow = seen.Value.Workflow
	return summary, nil
}
