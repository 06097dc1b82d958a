package plans

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store/recent"
)

// maxQuestions is how many workflows are asked at once for one task.
const maxQuestions = 8

// taskReader reads a task and the releases of its services, and remembers what has not changed since: whoever looks again and again asks
// workers only for what is new. Only one goroutine at a time may use it.
type taskReader struct {
	*Handlers
	// runID and length say which run of the task, and how much of its history, the remembered task is of.
	runID  string
	length int64
	task   plan.Task
	// childFresh is how old may be what is said of a service that runs; 0: it is looked at each time.
	childFresh time.Duration

	mu    sync.Mutex
	known map[string]childSnapshot
	// rollouts are the readers of the rollouts that release services, by their names.
	rollouts map[string]*rollouts.Reader
}

// childSnapshot is the release of a service as it was last seen.
type childSnapshot struct {
	// runID and length say which run it was, and how much of its history: the status is asked anew when there is another run, or the history
	// has grown.
	runID  string
	length int64
	status plan.ServiceStatus
	// workloads are the workloads of its activities by activity ID; nil until they are needed.
	workloads map[string]string
	// shown is the service as it was shown, at that time.
	shown plan.ServiceStatus
	at    time.Time
}

func newTaskReader(h *Handlers) *taskReader {
	return &taskReader{Handlers: h, known: map[string]childSnapshot{}, rollouts: map[string]*rollouts.Reader{}}
}

const (
	// readerKept is how long a reader is kept for whoever reads the same task again and again.
	readerKept = 30 * time.Second
	// childFresh is how old what such a reader says of a service that runs may be: of fifty services each look costs more than all else.
	childFresh = 500 * time.Millisecond
)

// keptReader is the reader of a task for all who read it.
type keptReader struct {
	mu     sync.Mutex
	reader *taskReader
}

// readAgain reads a task by the reader that has read it before. Whoever has changed something through this server is answered by a new one.
func (h *Handlers) readAgain(ctx context.Context, id string) (taskSnapshot, error) {
	kept, err := recent.Get(ctx, h.Recent, "the reader of task "+id, readerKept, func(context.Context) (*keptReader, error) {
		reader := newTaskReader(h)
		reader.childFresh = childFresh
		return &keptReader{reader: reader}, nil
	})
	if err != nil {
		return taskSnapshot{}, err
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	return h.readTask(ctx, id, kept.reader)
}

// ask is the task as its own workflow says; it is asked only when its history has grown.
func (r *taskReader) ask(ctx context.Context, id string, info *workflowpb.WorkflowExecutionInfo) (plan.Task, error) {
	if runID := info.GetExecution().GetRunId(); runID != r.runID || info.GetHistoryLength() != r.length {
		var task plan.Task
		if err := r.Query(ctx, plan.WorkflowID(id), &task); err != nil {
			return plan.Task{}, err
		}
		r.runID, r.length, r.task = runID, info.GetHistoryLength(), task
	}
	task := r.task
	task.Services = slices.Clone(task.Services) // the caller fills in what its services' own workflows say
	return task, nil
}

// fill shows the workloads of the services that run, with what their activities report. A service that does not answer is left as it is:
// the task itself says enough.
func (r *taskReader) fill(ctx context.Context, task *plan.Task) {
	ctx, cancel := backend.Briefly(ctx)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxQuestions)
	for i := range task.Services {
		if task.Services[i].State != plan.ItemRunning {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r.fillOne(ctx, plan.ItemWorkflowID(task.ID, i+1, task.Services[i].ServiceID), &task.Services[i])
		})
	}
	wg.Wait()
	task.ShowWait()
}

func (r *taskReader) fillOne(ctx context.Context, workflowID string, service *plan.ServiceStatus) {
	child := r.recall(workflowID)
	if time.Since(child.at) < r.childFresh {
		*service = child.shown
		return
	}
	described, err := r.Describe(ctx, workflowID)
	if err != nil || described == nil {
		return
	}
	info := described.GetWorkflowExecutionInfo()
	if runID := info.GetExecution().GetRunId(); runID != child.runID || info.GetHistoryLength() != child.length {
		fresh := childSnapshot{runID: runID, length: info.GetHistoryLength()}
		if r.Query(ctx, workflowID, &fresh.status) == nil {
			child = fresh
		}
	}
	workloads := slices.Clone(child.status.Workloads)
	if execution.IsOpen(described) {
		r.showProgress(ctx, workflowID, &child, workloads, described.GetPendingActivities())
	}
	if len(workloads) > 0 {
		service.Workloads = workloads
	}
	service.Reason = cmp.Or(child.status.Reason, service.Reason)
	service.Package, service.Build = child.status.Package, child.status.Build
	showTries(service, described.GetPendingActivities())
	r.fillRollouts(ctx, service)
	if !execution.IsOpen(described) && child.status.State.Ended() {
		service.State, service.FinishedAt = child.status.State, answer.UTC(info.GetCloseTime().AsTime())
	}
	child.shown, child.at = *service, time.Now()
	r.remember(workflowID, child)
}

func (r *taskReader) recall(workflowID string) childSnapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[workflowID]
}

func (r *taskReader) remember(workflowID string, child childSnapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[workflowID] = child
}

// showProgress puts what each activity last reported into its workload's message.
func (r *taskReader) showProgress(ctx context.Context, workflowID string, child *childSnapshot, workloads []plan.WorkloadStatus,
	pending []*workflowpb.PendingActivityInfo) {
	running := []int{}
	for i := range workloads {
		if workloads[i].State == plan.ItemRunning {
			running = append(running, i)
		}
	}
	for _, activity := range pending {
		message := backend.Progress(activity)
		if message == "" || activity.GetActivityType().GetName() != workloadops.ActivityRun &&
			activity.GetActivityType().GetName() != workloadops.ActivityRestore {
			continue
		}
		if len(running) == 1 {
			workloads[running[0]].Message = message
			continue
		}
		if child.workloads == nil {
			child.workloads = r.activityWorkloads(ctx, workflowID)
		}
		for _, i := range running {
			if identity(workloads[i]) == child.workloads[activity.GetActivityId()] {
				workloads[i].Message = message
			}
		}
	}
}

// activityWorkloads says which workload each activity of a service's release is for, from the orders in its history.
func (r *taskReader) activityWorkloads(ctx context.Context, workflowID string) map[string]string {
	found := map[string]string{}
	events := r.Temporal.GetWorkflowHistory(ctx, workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return found
		}
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		var request workloadops.Request
		if scheduled != nil && converter.GetDefaultDataConverter().FromPayloads(scheduled.GetInput(), &request) == nil {
			found[scheduled.GetActivityId()] = request.Workload.Identity()
		}
	}
	return found
}

// identity is catalog.Workload's Identity of the workload that a status is about; all kinds that can be released are of group apps.
func identity(w plan.WorkloadStatus) string {
	return catalog.Workload{Party: w.Party, Namespace: w.Namespace,
		WorkloadRef: catalog.WorkloadRef{APIVersion: catalog.APIVersion, Kind: w.Kind, Name: w.Name}}.Identity()
}
