package plans

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/workflows"
)

// GetTask answers GET /api/v1/tasks/{id}.
func (h *Handlers) GetTask(c echo.Context, id schema.TaskID) error {
	return answer.Shared(c, h.Recent, answer.ObjectMaxAge, func(ctx context.Context) (plan.Task, error) {
		seen, err := h.readTaskCached(ctx, id)
		return seen.Value, err
	})
}

// taskSnapshot is a task as read at one moment.
type taskSnapshot = backend.Snapshot[plan.Task]

func (h *Handlers) readTask(ctx context.Context, id string) (taskSnapshot, error) {
	return newTaskReader(h, id).read(ctx)
}

// read reads the current state of the task: from its workflow while that runs, afterwards from its record.
func (r *taskReader) read(ctx context.Context) (taskSnapshot, error) {
	if !plan.IsTaskID(r.id) {
		return taskSnapshot{}, noSuchTask(r.id)
	}
	r.reading.Lock()
	defer r.reading.Unlock()
	seen, err := backend.Read(ctx, r.Backend, plan.WorkflowID(r.id), r)
	if err == nil {
		seen.Value.Conditions = conditions.OfTask(seen.Value)
	}
	return seen, err
}

func noSuchTask(id string) error { return problem.NotFound.Because("task %s does not exist", id) }

// Record implements backend.Reader.
func (r *taskReader) Record(ctx context.Context) (*v1alpha1.ReleaseRecord, error) {
	record, err := r.Home.GetRecord(ctx, r.id)
	if failure.Is(err, failure.NotFound) { // it was deleted or pruned, and Temporal still has the workflow
		err = noSuchTask(r.id)
	}
	return record, err
}

// Complete implements backend.Reader.
func (r *taskReader) Complete(record *v1alpha1.ReleaseRecord) (plan.Task, error) {
	task, err := backend.Decode[plan.Task](record, record.Outcome.Body)
	task.Workflow = r.WorkflowRef(record.Spec.WorkflowID, record.Outcome.RunID)
	// a body written by an earlier version has neither
	task.Actor, task.ExecuteReason = record.Spec.Actor, record.Spec.Reason
	return task, err
}

// Running implements backend.Reader: it also reads the releases of the task's services.
func (r *taskReader) Running(ctx context.Context,
	described *workflowservice.DescribeWorkflowExecutionResponse) (plan.Task, error) {
	info := described.GetWorkflowExecutionInfo()
	task, err := r.memory.Query(ctx, r.Backend, plan.WorkflowID(r.id), info)
	if err != nil {
		return task, err
	}
	task.Services = slices.Clone(task.Services) // the remembered ones have no state of the services' own workflows
	task.Workflow = r.WorkflowRef(plan.WorkflowID(r.id), info.GetExecution().GetRunId())
	r.fillServices(ctx, &task)
	return task, nil
}

// Unanswered implements backend.Reader: it shows the published state, and as services' state whether their child
// workflows are pending.
func (r *taskReader) Unanswered(task *plan.Task, described *workflowservice.DescribeWorkflowExecutionResponse) {
	info := described.GetWorkflowExecutionInfo()
	task.State = publishedState(info)
	task.Reason = "the engine's workflow worker does not answer: this is the last published state; the state of its " +
		"services may be incomplete"
	if task.State == plan.TaskPending {
		task.Reason = "waits for a workflow worker of the engine"
	}
	running := map[string]bool{}
	for _, child := range described.GetPendingChildren() {
		running[child.GetWorkflowId()] = true
	}
	for i := range task.Services {
		service := &task.Services[i]
		service.Reason = "unknown while the workflow worker does not answer"
		if running[plan.ItemWorkflowID(r.id, i+1, service.ServiceID)] {
			service.State = plan.ItemRunning
		}
	}
	task.Workflow = r.WorkflowRef(plan.WorkflowID(r.id), info.GetExecution().GetRunId())
}

// Lost implements backend.Reader. The state of a task that is not being started is Interrupted, and the plan has to be
// executed again.
func (r *taskReader) Lost(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
	record *v1alpha1.ReleaseRecord) (seen taskSnapshot, err error) {
	// A worker can still replay the last state from the history.
	task := &seen.Value
	if described == nil || r.Query(ctx, record.Spec.WorkflowID, "", task) != nil {
		if *task, err = r.Outline(record); err != nil {
			return seen, err
		}
	}
	info := described.GetWorkflowExecutionInfo()
	task.Workflow = r.WorkflowRef(record.Spec.WorkflowID, info.GetExecution().GetRunId())
	switch {
	case described != nil && task.State.Final() && task.FinishedAt != nil:
		return seen, nil // it ended normally; only its record could not be written
	case described == nil && time.Since(task.CreatedAt) < start.LaunchWindow:
		seen.Starting, task.Reason = true, "is being started"
		return seen, nil
	}
	task.State = plan.TaskInterrupted
	if described == nil {
		task.Reason = "it was accepted, but has no workflow: it was never started, or Temporal has deleted it; " +
			"execute the plan again"
		return seen, nil
	}
	task.Reason = "its workflow " + backend.AbnormalEnd(info.GetStatus()) +
		": services that were being released end on their own; execute the plan again"
	r.fillServices(ctx, task)
	return seen, nil
}

// Outline implements backend.Reader: all services are pending.
func (r *taskReader) Outline(record *v1alpha1.ReleaseRecord) (plan.Task, error) {
	snapshot, err := backend.Decode[plan.Snapshot](record, record.Spec.Snapshot)
	if err != nil {
		return plan.Task{}, err
	}
	task := plan.Task{ID: snapshot.Task, Plan: snapshot.Plan, Comment: snapshot.Document.Comment,
		State: plan.TaskPending, CreatedAt: snapshot.CreatedAt, RerunOf: snapshot.RerunOf,
		ReverseOf: snapshot.Document.ReversedTask(), Actor: record.Spec.Actor, ExecuteReason: record.Spec.Reason,
		Services: make([]plan.ServiceStatus, len(snapshot.Document.Items)), Workflow: r.WorkflowRef(
			record.Spec.WorkflowID, "")}
	for n, item := range snapshot.Document.Items {
		service := plan.ServiceStatus{ServiceID: item.ServiceID, Priority: item.Priority, Deployment: item.Deployment,
			Method: item.MethodOrDefault(),
			State:  plan.ItemPending, Workloads: []plan.WorkloadStatus{}, RollOut: snapshot.RollsOut(n)}
		for _, w := range snapshot.Selected(n) {
			service.Workloads = append(service.Workloads, plan.WorkloadStatus{Party: w.PartyOrDefault(),
				Namespace: w.Namespace, Kind: w.WorkloadRef.Kind, Name: w.WorkloadRef.Name, State: plan.ItemPending})
		}
		task.Services[n] = service
	}
	return task, nil
}

// publishedState returns the state that a task's workflow last published; Pending if it has published none.
func publishedState(info *workflowpb.WorkflowExecutionInfo) plan.TaskState {
	state := execution.Published[plan.TaskState](info, workflows.AttributeState.GetName())
	return cmp.Or(state, plan.TaskPending)
}

// WatchTask answers GET /api/v1/tasks/{id}/events.
func (h *Handlers) WatchTask(c echo.Context, id schema.TaskID, _ schema.WatchTaskParams) error {
	if !plan.IsTaskID(id) {
		return noSuchTask(id)
	}
	return h.Streams.Serve(c, plan.WorkflowID(id), func() stream.Source {
		reader := newTaskReader(h, id)
		return stream.FromWorkflow(h.Backend, plan.WorkflowID(id), func(ctx context.Context) (stream.Snapshot, error) {
			seen, err := reader.read(ctx)
			if seen.Unanswered != "" {
				seen.Unanswered = seen.Value.Reason
			}
			return stream.Of(seen, seen.Value.Workflow), err
		})
	})
}

// activeTask is a plan's task that has not ended.
type activeTask struct {
	id    string
	state plan.TaskState
	// starting is true if the task was just accepted and its workflow does not run yet.
	starting bool
}

// blocksExecution reports whether the plan cannot be executed while this task exists. An interrupted task may be
// replaced.
func (l *activeTask) blocksExecution() bool { return l != nil && l.state != plan.TaskInterrupted }

// liveTask returns the plan's task that has not ended; nil if there is none. It looks the workflow up by its ID,
// because Temporal's lists lag behind.
func (h *Handlers) liveTask(ctx context.Context, of *v1alpha1.DeployPlan) (*activeTask, error) {
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
	if state.Final() && h.WaitForClose(ctx, plan.WorkflowID(id)) {
		return nil, nil
	}
	return &activeTask{id: id, state: state}, nil
}

// startingTask returns the task that has claimed the plan but has no workflow, if it is being started; nil if the task
// has ended and was deleted, or was never started.
func (h *Handlers) startingTask(ctx context.Context, of *v1alpha1.DeployPlan) (*activeTask, error) {
	claimed := of.Status.TaskClaimedAt
	if claimed == nil || time.Since(claimed.Time) > start.LaunchWindow {
		return nil, nil
	}
	record, err := h.Home.GetRecord(ctx, of.Status.Task)
	if err != nil || record.Outcome != nil {
		return nil, failure.Ignore(err, failure.NotFound)
	}
	return &activeTask{id: of.Status.Task, state: plan.TaskPending, starting: true}, nil
}

// ApproveTask answers POST /api/v1/tasks/{id}/approve, and all other verbs: it executes the verb and responds with the
// task as it is afterwards.
func (h *Handlers) ApproveTask(c echo.Context, id schema.TaskID, params schema.ApproveTaskParams) error {
	verb := plan.Verb(path.Base(c.Path()))
	var request workflows.TaskVerbRequest
	to := input.Field{Name: "to", MaxLength: input.MaxGate, Into: (*string)(&request.To),
		Refused: input.Unless(verb == plan.VerbStop, "is for stop only: leave it out")}
	err := verbs.Read(c, params.SlipwayVia, &request.VerbRequest, to,
		input.Field{Name: "step", Refused: "is not taken here: a task has no steps; leave it out"},
		input.Field{Name: "gate", Refused: "is not taken here: a task has no gates; leave it out"})
	if err != nil {
		return err
	}
	if !plan.IsTaskID(id) {
		return noSuchTask(id)
	}
	if request.To != "" && !slices.Contains(rollout.StopTos, request.To) {
		return problem.BadField("to", fmt.Sprintf("%q is none of %s", request.To, strictyaml.List(rollout.StopTos)))
	}
	return verbs.Execute(c, h.Backend, &taskVerb{Handlers: h, id: id, verb: verb},
		verbs.Command{Verb: string(verb), Key: request.Key, Payload: request})
}

// taskVerb is the target of a task's verb.
type taskVerb struct {
	*Handlers
	id   string
	verb plan.Verb
	// seen is the task as last read.
	seen taskSnapshot
}

// Workflow returns the task's workflow, which may be closed.
func (t *taskVerb) Workflow(context.Context) (string, error) { return plan.WorkflowID(t.id), nil }

// Now reads the task.
func (t *taskVerb) Now(ctx context.Context) (now plan.Task, history []audit.Entry, err error) {
	t.seen, err = t.readTask(ctx, t.id)
	return t.seen.Value, t.seen.Value.History, err
}

// Fallback returns the task as recorded, in the given state.
func (t *taskVerb) Fallback(ctx context.Context, state, reason string) plan.Task {
	task := plan.Task{ID: t.id, Services: []plan.ServiceStatus{}, Workflow: t.WorkflowRef(plan.WorkflowID(t.id), "")}
	if record, err := t.Home.GetRecord(ctx, t.id); err == nil {
		if outline, err := newTaskReader(t.Handlers, t.id).Outline(record); err == nil {
			task = outline
		}
	}
	for i := range task.Services {
		task.Services[i].Reason = "currently unknown"
	}
	task.State, task.Reason = plan.TaskState(state), reason
	return task
}

// Closed refuses a verb on a task that has ended.
func (t *taskVerb) Closed(_ context.Context, now plan.Task) (plan.Task, error) {
	why := fmt.Sprintf("the task is %s, which is final; execute the plan again to run it again", now.State)
	switch {
	case t.seen.Starting:
		why = "the task is being started: repeat in a few seconds"
	case now.State == plan.TaskInterrupted:
		why = now.Reason
	}
	return now, verbs.Refusal(t, fmt.Sprintf("%s cannot be done: %s", t.verb, why), now)
}

// Name adds the task's name to a problem.
func (t *taskVerb) Name(p *problem.Error) *problem.Error { return p.About(t.id, nil) }

// Show adds the task to a problem.
func (t *taskVerb) Show(p *problem.Error, task plan.Task) *problem.Error {
	return p.About(task.ID, &task)
}
