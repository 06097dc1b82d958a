package plans

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/labstack/echo/v4"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// GetTask answers GET /api/v1/tasks/{id}.
func (h *Handlers) GetTask(c echo.Context, id schema.TaskID) error {
	return answer.Shared(c, h.Recent, answer.FreshObject, func(ctx context.Context) (plan.Task, error) {
		seen, err := h.readAgain(ctx, id)
		return seen.task, err
	})
}

// taskSnapshot is a task as it was found.
type taskSnapshot struct {
	task plan.Task
	// open says that its workflow runs, so that the task can still change.
	open bool
	// starting says that its workflow does not run yet.
	starting bool
	// unanswered says why the task's own workflow was not heard, so that parts of this may be old; "" when it was.
	unanswered string
}

// readTask reads a task as it is now: from its workflow while that runs, and from its record when it is over.
func (h *Handlers) readTask(ctx context.Context, id string, reader *taskReader) (taskSnapshot, error) {
	if !plan.IsTaskID(id) {
		return taskSnapshot{}, noSuchTask(id)
	}
	seen, err := backend.Read(ctx, h.Backend, backend.Reading[taskSnapshot]{
		WorkflowID: plan.WorkflowID(id),
		Record: func() (*v1alpha1.ReleaseRecord, error) {
			record, err := h.Home.GetRecord(ctx, id)
			if failure.Is(err, failure.NotFound) { // it was deleted, or pruned, and Temporal has not forgotten it yet
				err = noSuchTask(id)
			}
			return record, err
		},
		Open: func(described *workflowservice.DescribeWorkflowExecutionResponse) (taskSnapshot, error) {
			return h.readOpen(ctx, id, described, reader)
		},
		Complete: h.readRecord,
		Lost: func(described *workflowservice.DescribeWorkflowExecutionResponse, record *v1alpha1.ReleaseRecord) (taskSnapshot, error) {
			return h.readLost(ctx, described, record, reader)
		},
	})
	if err == nil {
		seen.task.Conditions = conditions.OfTask(seen.task)
	}
	return seen, err
}

func noSuchTask(id string) error { return problem.NotFound.Because("task %s does not exist", id) }

// readRecord is a task that is over.
func (h *Handlers) readRecord(record *v1alpha1.ReleaseRecord) (taskSnapshot, error) {
	var task plan.Task
	if err := v1alpha1.DecodeBody(record.Outcome.Body, &task); err != nil {
		return taskSnapshot{}, fmt.Errorf("record %s: %w", record.Name, err)
	}
	task.Workflow = h.WorkflowRef(record.Spec.WorkflowID, record.Outcome.RunID)
	task.Actor, task.ExecuteReason = record.Spec.Actor, record.Spec.Reason // the body that an earlier version wrote has neither
	return taskSnapshot{task: task}, nil
}

// readOpen asks the task's own workflow. When no worker answers, what Temporal itself knows has to do.
func (h *Handlers) readOpen(ctx context.Context, id string, described *workflowservice.DescribeWorkflowExecutionResponse,
	reader *taskReader) (taskSnapshot, error) {
	task, err := reader.ask(ctx, id, described.GetWorkflowExecutionInfo())
	if err != nil {
		return h.readUnanswered(ctx, id, described, err)
	}
	seen := taskSnapshot{task: task, open: true}
	run := described.GetWorkflowExecutionInfo().GetExecution()
	seen.task.Workflow = h.WorkflowRef(run.GetWorkflowId(), run.GetRunId())
	reader.fill(ctx, &seen.task)
	return seen, nil
}

// readUnanswered is a task whose workflow runs but whose worker does not answer: the published state, and the services as far as Temporal
// knows which of them run.
func (h *Handlers) readUnanswered(ctx context.Context, id string, described *workflowservice.DescribeWorkflowExecutionResponse,
	cause error) (taskSnapshot, error) {
	record, err := h.Home.GetRecord(ctx, id)
	if err != nil {
		return taskSnapshot{}, err
	}
	task, err := h.outlineTask(record)
	if err != nil {
		return taskSnapshot{}, err
	}
	task.State = publishedState(described.GetWorkflowExecutionInfo())
	task.Reason = "the engine's workflow worker does not answer: this is the state that was last published, and its services are shown as far as is known"
	if task.State == plan.TaskPending {
		task.Reason = "waits for a workflow worker of the engine"
	}
	running := map[string]bool{}
	for _, child := range described.GetPendingChildren() {
		running[child.GetWorkflowId()] = true
	}
	for i := range task.Services {
		service := &task.Services[i]
		service.Reason = "not known while the workflow worker does not answer"
		if running[plan.ItemWorkflowID(id, i+1, service.ServiceID)] {
			service.State = plan.ItemRunning
		}
	}
	run := described.GetWorkflowExecutionInfo().GetExecution()
	task.Workflow = h.WorkflowRef(run.GetWorkflowId(), run.GetRunId())
	return taskSnapshot{task: task, open: true, unanswered: cause.Error()}, nil
}

// readLost is a task that was never recorded as over and whose workflow does not run: it is being started, was never started, or was
// terminated. It reads as Interrupted, to be executed anew.
func (h *Handlers) readLost(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
	record *v1alpha1.ReleaseRecord, reader *taskReader) (taskSnapshot, error) {
	if described == nil {
		task, err := h.outlineTask(record)
		if err != nil {
			return taskSnapshot{}, err
		}
		if time.Since(task.CreatedAt) < start.Window {
			task.Reason = "is being started"
			return taskSnapshot{task: task, starting: true}, nil
		}
		task.State = plan.TaskInterrupted
		task.Reason = "it was accepted, but no workflow of it is known: it was never started, or Temporal has forgotten it; execute the plan anew"
		return taskSnapshot{task: task}, nil
	}
	// The last state is still in its history: a worker can replay it.
	var task plan.Task
	if err := h.Query(ctx, record.Spec.WorkflowID, &task); err != nil {
		if task, err = h.outlineTask(record); err != nil {
			return taskSnapshot{}, err
		}
	}
	info := described.GetWorkflowExecutionInfo()
	task.Workflow = h.WorkflowRef(record.Spec.WorkflowID, info.GetExecution().GetRunId())
	if task.State.Final() && task.FinishedAt != nil {
		return taskSnapshot{task: task}, nil // it ended well, only its record could not be written
	}
	task.State = plan.TaskInterrupted
	task.Reason = "its workflow " + backend.HowLost(info.GetStatus()) +
		": services that were being released end on their own; execute the plan anew"
	reader.fill(ctx, &task)
	return taskSnapshot{task: task}, nil
}

// outlineTask is what a record alone says of a task: everything is still to be done.
func (h *Handlers) outlineTask(record *v1alpha1.ReleaseRecord) (plan.Task, error) {
	var snapshot plan.Snapshot
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &snapshot); err != nil {
		return plan.Task{}, fmt.Errorf("record %s: %w", record.Name, err)
	}
	task := plan.Task{ID: snapshot.Task, Plan: snapshot.Plan, Comment: snapshot.Document.Comment, State: plan.TaskPending,
		CreatedAt: snapshot.CreatedAt, RerunOf: snapshot.RerunOf, ReverseOf: snapshot.Document.Reverses(),
		Actor: record.Spec.Actor, ExecuteReason: record.Spec.Reason,
		Services: make([]plan.ServiceStatus, len(snapshot.Document.Items)), Workflow: h.WorkflowRef(record.Spec.WorkflowID, "")}
	for n, item := range snapshot.Document.Items {
		service := plan.ServiceStatus{ServiceID: item.ServiceID, Priority: item.Priority, Deployment: item.Deployment,
			Method: item.MethodOrDefault(),
			State:  plan.ItemPending, Workloads: []plan.WorkloadStatus{}, RollOut: snapshot.RollsOut(n)}
		for _, w := range snapshot.Selected(n) {
			service.Workloads = append(service.Workloads, plan.WorkloadStatus{Party: w.PartyOrDefault(), Namespace: w.Namespace,
				Kind: w.WorkloadRef.Kind, Name: w.WorkloadRef.Name, State: plan.ItemPending})
		}
		task.Services[n] = service
	}
	return task, nil
}

// publishedState is the state that a task's workflow last published; Pending until it has published one.
func publishedState(info *workflowpb.WorkflowExecutionInfo) plan.TaskState {
	state := execution.Published[plan.TaskState](info, workflows.AttributeState.GetName())
	return cmp.Or(state, plan.TaskPending)
}

// WatchTask answers GET /api/v1/tasks/{id}/events.
func (h *Handlers) WatchTask(c echo.Context, id schema.TaskID, _ schema.WatchTaskParams) error {
	if !plan.IsTaskID(id) {
		return noSuchTask(id)
	}
	return h.streams.Serve(c, plan.WorkflowID(id), func() stream.Source {
		reader := newTaskReader(h)
		return stream.OfWorkflow(h.Backend, plan.WorkflowID(id), func(ctx context.Context) (stream.Snapshot, error) {
			seen, err := h.readTask(ctx, id, reader)
			unanswered := seen.unanswered
			if unanswered != "" {
				unanswered = seen.task.Reason
			}
			return stream.Snapshot{Value: seen.task, Workflow: seen.task.Workflow, Over: !seen.open && !seen.starting, Unanswered: unanswered}, err
		})
	})
}

// live is the task of a plan that is not over.
type live struct {
	id    string
	state plan.TaskState
	// starting says that the task was accepted just now and its workflow does not run yet.
	starting bool
}

// inTheWay says whether the plan can't be executed beside the task. An interrupted one may be replaced.
func (l *live) inTheWay() bool { return l != nil && l.state != plan.TaskInterrupted }

// liveTask is the task of the plan that is not over, nil when there is none. It looks the
// workflow up by its ID: lists lag behind.
func (h *Handlers) liveTask(ctx context.Context, of *v1alpha1.DeployPlan) (*live, error) {
	id := of.Status.Task
	if id == "" {
		return nil, nil
	}
	described, err := h.Describe(ctx, plan.WorkflowID(id))
	if err != nil {
		return nil, err
	}
	switch {
	case described == nil:
		return h.startingTask(ctx, of)
	case !execution.IsOpen(described):
		return nil, nil
	}
	state := publishedState(described.GetWorkflowExecutionInfo())
	if state.Final() && h.ClosesSoon(ctx, plan.WorkflowID(id)) {
		return nil, nil
	}
	return &live{id: id, state: state}, nil
}

// startingTask is the task that has claimed the plan and has no workflow: it is being started, or it is over and forgotten, or whoever
// started it died.
func (h *Handlers) startingTask(ctx context.Context, of *v1alpha1.DeployPlan) (*live, error) {
	claimed := of.Status.TaskClaimedAt
	if claimed == nil || time.Since(claimed.Time) > start.Window {
		return nil, nil
	}
	record, err := h.Home.GetRecord(ctx, of.Status.Task)
	if failure.Is(err, failure.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if record.Outcome != nil {
		return nil, nil
	}
	return &live{id: of.Status.Task, state: plan.TaskPending, starting: true}, nil
}
