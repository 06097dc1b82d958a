package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

const (
	floorQueue, floorParty = "floor", "floor-party"
	// floorReads is the number of reads of the workload and its revisions per rollout; the first one is part of the
	// check.
	floorReads = 3
	// heartbeatInterval is the interval of heartbeats without progress; after heartbeatTimeout without a heartbeat the
	// attempt counts as lost.
	heartbeatInterval, heartbeatTimeout = 4 * time.Second, 10 * time.Second
	// progressInterval is the interval of heartbeats while steps progress.
	progressInterval = 2 * time.Second
)

var floorState = temporal.NewSearchAttributeKeyKeyword(workload.SearchAttributeState)

// workflows releases n Deployments, each with a workflow of one activity.
func (f *floor) workflows(t *testing.T, e *harness.Engine, n int) {
	w := floorWorker(e, floorQueue, n)
	w.RegisterWorkflowWithOptions(floorWorkflow, workflow.RegisterOptions{Name: "Floor"})
	w.RegisterWorkflowWithOptions(promisesWorkflow, workflow.RegisterOptions{Name: "Promises"})
	w.RegisterWorkflowWithOptions(floorCheck, workflow.RegisterOptions{Name: "Check"})
	w.RegisterActivityWithOptions(f.attempt, activity.RegisterOptions{Name: "Release"})
	w.RegisterActivityWithOptions(f.complete, activity.RegisterOptions{Name: "Complete"})
	require.NoError(t, w.Start())
	defer w.Stop()
	party := floorWorker(e, floorParty, n)
	party.RegisterActivityWithOptions(f.attempt, activity.RegisterOptions{Name: "Release"})
	party.RegisterActivityWithOptions(f.check, activity.RegisterOptions{Name: "Check"})
	require.NoError(t, party.Start())
	defer party.Stop()
	allClosed(t, n, func(i int) (client.WorkflowRun, error) {
		name := deploymentName(i)
		if err := f.checkRelease(t.Context(), e, name); err != nil {
			return nil, err
		}
		if err := f.record(t.Context(), name); err != nil {
			return nil, err
		}
		options, kind := client.StartWorkflowOptions{TaskQueue: floorQueue, ID: f.recordName(name)}, "Floor"
		if f.promises {
			kind, options.TypedSearchAttributes = "Promises",
				temporal.NewSearchAttributes(floorState.ValueSet(string(rollout.PhaseProgressing)))
		}
		return e.Workflows.ExecuteWorkflow(t.Context(), options, kind, name, f.queue())
	})
}

// floorWorker returns a worker that runs up to n activities of a queue at once, with the heartbeat throttling of
// Slipway's workers.
func floorWorker(e *harness.Engine, queue string, n int) worker.Worker {
	return worker.New(e.Workflows, queue, worker.Options{MaxConcurrentActivityExecutionSize: n,
		MaxHeartbeatThrottleInterval: progressInterval,
		DisableWorkflowWorker:        queue == floorParty})
}

// allClosed starts n workflows at once and waits until all have closed.
func allClosed(t *testing.T, n int, start func(i int) (client.WorkflowRun, error)) {
	runs := make([]client.WorkflowRun, n)
	each(n, func(i int) {
		run, err := start(i)
		require.NoError(t, err)
		runs[i] = run
	})
	require.NotContains(t, runs, nil, "not all workflows were started")
	for _, run := range runs {
		require.NoError(t, run.Get(t.Context(), nil))
	}
}

// queue returns the task queue of the activities.
func (f *floor) queue() string {
	if f.checks != nil {
		return floorParty
	}
	return floorQueue
}

// checkRelease checks a release, in one batch with others that begin at the same time.
func (f *floor) checkRelease(ctx context.Context, e *harness.Engine, name string) error {
	if f.checks == nil {
		return nil
	}
	_, err := f.checks.Do(ctx, floorParty, name, len(name),
		func(ctx context.Context, names []string) ([]struct{}, error) {
			run, err := e.Workflows.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: floorQueue}, "Check",
				names)
			if err != nil {
				return nil, err
			}
			return make([]struct{}, len(names)), run.Get(ctx, nil)
		})
	return err
}

// floorCheck runs the check activity on a party's queue.
func floorCheck(ctx workflow.Context, names []string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: floorParty,
		StartToCloseTimeout: maxWait,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1}})
	return workflow.ExecuteActivity(ctx, "Check", names).Get(ctx, nil)
}

// check reads the workloads and asks the API server whether their releases may begin.
func (f *floor) check(ctx context.Context, names []string) error {
	if _, err := f.kube.CoreV1().Namespaces().Get(ctx, f.apps, metav1.GetOptions{}); err != nil {
		return err
	}
	checks, ctx := errgroup.WithContext(ctx)
	for _, name := range names {
		checks.Go(func() error {
			if err := f.read(ctx, name); err != nil {
				return err
			}
			return f.dryRun(ctx, name)
		})
	}
	return checks.Wait()
}

// floorWorkflow runs one activity.
func floorWorkflow(ctx workflow.Context, name, _ string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: maxWait,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	return workflow.ExecuteActivity(ctx, "Release", name).Get(ctx, nil)
}

// promisesWorkflow issues the same commands as the workflow of a rollout.
func promisesWorkflow(ctx workflow.Context, name, queue string) error {
	workflow.GetVersion(ctx, "floor", workflow.DefaultVersion, 1)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: queue, StartToCloseTimeout: maxWait,
		HeartbeatTimeout: heartbeatTimeout,
		RetryPolicy:      &temporal.RetryPolicy{MaximumAttempts: 1}})
	if err := workflow.ExecuteActivity(ctx, "Release", name).Get(ctx, nil); err != nil {
		return err
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, floorState.ValueSet(string(rollout.PhaseHealthy))); err != nil {
		return err
	}
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: maxWait})
	return workflow.ExecuteLocalActivity(ctx, "Complete", name).Get(ctx, nil)
}

// attempt is the activity that releases one Deployment.
func (f *floor) attempt(ctx context.Context, name string) error {
	if !f.promises {
		if err := f.body(ctx, name); err != nil {
			return err
		}
		return f.complete(ctx, name)
	}
	reads, every := floorReads, heartbeatInterval
	if f.checks != nil {
		reads, every = floorReads-1, progressInterval
	} else if _, err := f.kube.CoreV1().Namespaces().Get(ctx, f.apps, metav1.GetOptions{}); err != nil {
		return err
	}
	for range reads {
		if err := f.read(ctx, name); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.heartbeat(ctx, every)
	err := f.body(ctx, name)
	activity.RecordHeartbeat(ctx, f.seen.begun)
	return err
}

// heartbeat sends a heartbeat at once and then at every interval, with details of the size that a rollout sends.
func (f *floor) heartbeat(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		activity.RecordHeartbeat(ctx, f.seen.begun)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
