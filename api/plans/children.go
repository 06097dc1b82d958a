package plans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/source"
)

// maxConcurrentCalls is the number of workflows that are queried at the same time for one task.
const maxConcurrentCalls = 8

// taskReader reads a task and the releases of its services. It remembers what has not changed, so that repeated reads
// query workers only for what is new.
type taskReader struct {
	*Handlers
	id     string
	memory backend.Memory[plan.Task]
	// childMaxAge is the maximum age of the remembered status of a running service; 0 means that each read refreshes
	// it.
	childMaxAge time.Duration

	// reading is held during a read, whose goroutines share the maps.
	reading sync.Mutex
	// children maps the workflows of services to their childSnapshots, rollouts the names of the rollouts that release
	// services to their rollouts.Readers.
	children, rollouts sync.Map
}

// childSnapshot is the last known release of a service.
type childSnapshot struct {
	backend.Memory[plan.ServiceStatus]
	// workloads maps activity IDs to workloads; nil until needed.
	workloads map[string]string
	// shown is the service as returned at the time shownAt.
	shown   plan.ServiceStatus
	shownAt time.Time
}

func newTaskReader(h *Handlers, id string) *taskReader {
	return &taskReader{Handlers: h, id: id}
}

const (
	// readerTTL is how long the reader of a task is cached for repeated reads.
	readerTTL = 30 * time.Second
	// childMaxAge is the maximum age of the status of running services from a cached reader: a task may have fifty of
	// them, and reading them costs more than all else.
	childMaxAge = 500 * time.Millisecond
)

// readTaskCached reads a task with its cached reader. After a write through this server, a new reader is used.
func (h *Handlers) readTaskCached(ctx context.Context, id string) (taskSnapshot, error) {
	kept, err := recent.Get(ctx, h.Recent, "the reader of task "+id, readerTTL,
		func(context.Context) (*taskReader, error) {
			reader := newTaskReader(h, id)
			reader.childMaxAge = childMaxAge
			return reader, nil
		})
	if err != nil {
		return taskSnapshot{}, err
	}
	return kept.read(ctx)
}

// fillServices adds the workloads of running services, with the progress that their activities report. A service that
// does not answer is left unchanged: the task's own state suffices.
func (r *taskReader) fillServices(ctx context.Context, task *plan.Task) {
	ctx, cancel := backend.WithCallTimeout(ctx)
	defer cancel()
	_ = forEachService(*task, func(i int, workflowID string) error {
		if task.Services[i].State == plan.ItemRunning {
			r.fillService(ctx, workflowID, &task.Services[i])
		}
		return nil
	})
	task.ShowWait()
}

// forEachService calls each service of a task with its index and the ID of its workflow, several at a time, and returns
// the first error.
func forEachService(task plan.Task, call func(i int, workflowID string) error) error {
	var calls errgroup.Group
	calls.SetLimit(maxConcurrentCalls)
	for i, service := range task.Services {
		calls.Go(func() error { return call(i, plan.ItemWorkflowID(task.ID, i+1, service.ServiceID)) })
	}
	return calls.Wait()
}

func (r *taskReader) fillService(ctx context.Context, workflowID string, service *plan.ServiceStatus) {
	remembered, _ := r.children.Load(workflowID)
	child, _ := remembered.(childSnapshot)
	if time.Since(child.shownAt) < r.childMaxAge {
		*service = child.shown
		return
	}
	described, err := r.Describe(ctx, workflowID)
	if err != nil || described == nil {
		return
	}
	info := described.GetWorkflowExecutionInfo()
	current := child.IsCurrent(info)
	status, err := child.Query(ctx, r.Backend, workflowID, info)
	if !current && err == nil {
		child.workloads = nil
	}
	workloads := slices.Clone(status.Workloads)
	if execution.IsOpen(described) {
		r.showProgress(ctx, workflowID, &child, workloads, described.GetPendingActivities())
	}
	if len(workloads) > 0 {
		service.Workloads = workloads
	}
	service.Reason = cmp.Or(status.Reason, service.Reason)
	service.Package, service.Build = status.Package, status.Build
	showAttempts(service, described.GetPendingActivities())
	r.fillRollouts(ctx, service)
	if !execution.IsOpen(described) && status.State.Ended() {
		service.State, service.FinishedAt = status.State, answer.UTC(info.GetCloseTime().AsTime())
	}
	child.shown, child.shownAt = *service, time.Now()
	r.children.Store(workflowID, child)
}

// showProgress sets each workload's message to what its activity last reported.
func (r *taskReader) showProgress(ctx context.Context, workflowID string, child *childSnapshot,
	workloads []plan.WorkloadStatus, pending []*workflowpb.PendingActivityInfo) {
	running := []int{}
	for i := range workloads {
		if workloads[i].State == plan.ItemRunning {
			running = append(running, i)
		}
	}
	for _, activity := range pending {
		message := backend.Progress(activity)
		if message == "" || activity.GetActivityType().GetName() != operation.ActivityRun &&
			activity.GetActivityType().GetName() != operation.ActivityRestore {
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

// activityWorkloads returns the workload of each activity of a service's release, by activity ID, from the requests in
// its history.
func (r *taskReader) activityWorkloads(ctx context.Context, workflowID string) map[string]string {
	found := map[string]string{}
	events := r.Temporal.GetWorkflowHistory(ctx, workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return found
		}
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		var request operation.Request
		if scheduled != nil && converter.GetDefaultDataConverter().FromPayloads(scheduled.GetInput(), &request) == nil {
			found[scheduled.GetActivityId()] = request.Workload.Identity()
		}
	}
	return found
}

// identity returns catalog.Workload.Identity of a workload status; all kinds that can be released are in group apps.
func identity(w plan.WorkloadStatus) string {
	return catalog.Workload{Party: w.Party, Namespace: w.Namespace,
		WorkloadRef: catalog.WorkloadRef{APIVersion: catalog.APIVersion, Kind: w.Kind, Name: w.Name}}.Identity()
}

// showAttempts adds the progress of the activities that run before a service's workloads are changed: the progress of a
// build, or the last failure of a source that is retried.
func showAttempts(service *plan.ServiceStatus, pending []*workflowpb.PendingActivityInfo) {
	for _, activity := range pending {
		progress := ""
		switch activity.GetActivityType().GetName() {
		case build.ActivityResolve, build.ActivityBuild:
			progress = backend.Progress(activity)
		case source.ActivityFetch, source.ActivityConfirm: // a heartbeat would only repeat the service's reason
			if failed := backend.LastFailure(activity); failed != "" {
				progress = fmt.Sprintf("it failed %s and is being retried: %s", times(activity.GetAttempt()-1), failed)
			}
		}
		if progress != "" {
			service.Reason += ": " + progress
			return
		}
	}
}

func times(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// fillRollouts adds the progress of a service's rollouts. A rollout that does not answer is left unchanged.
func (r *taskReader) fillRollouts(ctx context.Context, service *plan.ServiceStatus) {
	for i := range service.Workloads {
		w := &service.Workloads[i]
		if w.Rollout == nil || w.State != plan.ItemRunning {
			continue
		}
		view := *w.Rollout
		reader, _ := r.rollouts.LoadOrStore(view.String(),
			rollouts.NewReader(r.Backend, view.Party, view.Namespace, view.Name))
		seen, err := reader.(*rollouts.Reader).Read(ctx)
		if err != nil {
			continue
		}
		status := seen.Value
		w.Message = status.Reason
		if status.Record != view.Record {
			w.Message = "superseded by another release: " + status.Reason
		}
		w.Rollout = viewOf(view, status)
		if w.Rollout.AwaitsUserOrWindow() {
			service.Reason = fmt.Sprintf("%s: %s", view, status.Reason)
		}
	}
}

// viewOf returns a rollout's status as shown by its task.
func viewOf(view plan.RolloutStatus, status rollout.Status) *plan.RolloutStatus {
	view.Phase, view.CurrentStepIndex, view.Steps = string(status.Phase), status.CurrentStepIndex, len(status.Steps)
	view.CanaryWeight, view.WaitingFor = nil, nil
	if status.Traffic != nil {
		view.CanaryWeight = &status.Traffic.CanaryWeight
	}
	if w := status.WaitingFor; w != nil {
		view.WaitingFor = &plan.RolloutWait{Kind: string(w.Kind), Since: w.Since, Until: w.Until, Gate: w.Gate,
			Message: w.Message}
	}
	return &view
}
