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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
)

const (
	floorQueue = "floor"
	// floorReads is how often a rollout reads its workload and its revisions.
	floorReads = 4
	// floorTells is how often an attempt tells that it is there when nothing else is to be told, and floorMissed after how long without it is missed.
	floorTells, floorMissed = 4 * time.Second, 10 * time.Second
)

var floorState = temporal.NewSearchAttributeKeyKeyword(workloadops.SearchAttributeState)

// workflows releases each of n Deployments by a workflow of one activity.
func (f *floor) workflows(t *testing.T, e *harness.Engine, n int) {
	w := worker.New(e.Workflows, floorQueue, worker.Options{MaxConcurrentActivityExecutionSize: n})
	w.RegisterWorkflowWithOptions(floorWorkflow, workflow.RegisterOptions{Name: "Floor"})
	w.RegisterWorkflowWithOptions(promisesWorkflow, workflow.RegisterOptions{Name: "Promises"})
	w.RegisterActivityWithOptions(f.attempt, activity.RegisterOptions{Name: "Release"})
	w.RegisterActivityWithOptions(f.complete, activity.RegisterOptions{Name: "Complete"})
	require.NoError(t, w.Start())
	defer w.Stop()
	runs := make([]client.WorkflowRun, n)
	each(n, func(i int) {
		name := deploymentName(i)
		require.NoError(t, f.record(t.Context(), name))
		options, kind := client.StartWorkflowOptions{TaskQueue: floorQueue, ID: f.recordName(name)}, "Floor"
		if f.promises {
			kind, options.TypedSearchAttributes = "Promises", temporal.NewSearchAttributes(floorState.ValueSet(string(rollout.PhaseProgressing)))
		}
		run, err := e.Workflows.ExecuteWorkflow(t.Context(), options, kind, name)
		require.NoError(t, err)
		runs[i] = run
	})
	require.NotContains(t, runs, nil, "not all of them were started")
	for _, run := range runs {
		require.NoError(t, run.Get(t.Context(), nil))
	}
}

// floorWorkflow is one activity.
func floorWorkflow(ctx workflow.Context, name string) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: longestWait, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	return workflow.ExecuteActivity(ctx, "Release", name).Get(ctx, nil)
}

// promisesWorkflow has the commands of a rollout.
func promisesWorkflow(ctx workflow.Context, name string) error {
	workflow.GetVersion(ctx, "floor", workflow.DefaultVersion, 1)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: longestWait, HeartbeatTimeout: floorMissed,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	if err := workflow.ExecuteActivity(ctx, "Release", name).Get(ctx, nil); err != nil {
		return err
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, floorState.ValueSet(string(rollout.PhaseHealthy))); err != nil {
		return err
	}
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: longestWait})
	return workflow.ExecuteLocalActivity(ctx, "Complete", name).Get(ctx, nil)
}

// attempt is the activity.
func (f *floor) attempt(ctx context.Context, name string) error {
	if !f.promises {
		if err := f.release(ctx, name); err != nil {
			return err
		}
		return f.complete(ctx, name)
	}
	if _, err := f.kube.CoreV1().Namespaces().Get(ctx, f.apps, metav1.GetOptions{}); err != nil {
		return err
	}
	for range floorReads {
		if err := f.read(ctx, name); err != nil {
			return err
		}
	}
	ctx, over := context.WithCancel(ctx)
	defer over()
	go f.keepTelling(ctx)
	err := f.release(ctx, name)
	activity.RecordHeartbeat(ctx, f.seen.begun)
	return err
}

// keepTelling tells at once, and again and again then, of as much as a rollout does.
func (f *floor) keepTelling(ctx context.Context) {
	ticker := time.NewTicker(floorTells)
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
