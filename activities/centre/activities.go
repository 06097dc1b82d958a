// Package centre is what workflows ask of the home cluster: they read and write records there, and ask Temporal about other workflows.
package centre

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/v1beta1"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
)

// Activities are the centre's own: they read and write records in the home cluster, and ask Temporal about other workflows.
type Activities struct {
	store       *store.Store
	temporal    client.Client
	recordLimit int
	versions    inputs

	mu        sync.Mutex
	snapshots map[string]plan.Snapshot
	// published are Rollouts as this process wrote them last, by their UID.
	published remembered[*v1beta1.Rollout]
	// servings are servings as this process wrote them last, by their ID.
	servings remembered[*kuscia.KusciaDeployment]
}

// inputs reads what operations on servings were started with, as versions.Reader does.
type inputs interface {
	Input(ctx context.Context, source serving.Source) (serving.Input, error)
	Packed(ctx context.Context, source serving.Source) (packed []byte, digest string, err error)
}

// NewActivities serves the centre's queue. reader reads what operations on servings were started with; recordLimit is how many records of
// each subject are kept.
func NewActivities(store *store.Store, temporal client.Client, reader inputs, recordLimit int) *Activities {
	return &Activities{store: store, temporal: temporal, versions: reader, recordLimit: recordLimit, snapshots: map[string]plan.Snapshot{},
		published: rememberedOf[*v1beta1.Rollout](mostPublished), servings: rememberedOf[*kuscia.KusciaDeployment](mostServings)}
}

// Register makes the activities known to a worker of the centre's queue.
func (a *Activities) Register(w worker.ActivityRegistry) {
	w.RegisterActivityWithOptions(a.LoadItem, activity.RegisterOptions{Name: workloadops.ActivityLoadItem})
	w.RegisterActivityWithOptions(a.BeginTask, activity.RegisterOptions{Name: workloadops.ActivityBeginTask})
	w.RegisterActivityWithOptions(a.UnrecordedPackages, activity.RegisterOptions{Name: source.ActivityUnrecorded})
	w.RegisterActivityWithOptions(a.CompleteRecord, activity.RegisterOptions{Name: workloadops.ActivityCompleteRecord})
	w.RegisterActivityWithOptions(a.CompleteRollout, activity.RegisterOptions{Name: rollout.ActivityCompleteRollout})
	w.RegisterActivityWithOptions(a.RecordRollout, activity.RegisterOptions{Name: rollout.ActivityRecordRollout})
	w.RegisterActivityWithOptions(a.WithdrawRollout, activity.RegisterOptions{Name: rollout.ActivityWithdrawRollout})
	w.RegisterActivityWithOptions(a.PublishRollout, activity.RegisterOptions{Name: rollout.ActivityPublishRollout})
	w.RegisterActivityWithOptions(a.HoldTraffic, activity.RegisterOptions{Name: rollout.ActivityHoldTraffic})
	w.RegisterActivityWithOptions(a.LeaveTraffic, activity.RegisterOptions{Name: rollout.ActivityLeaveTraffic})
	w.RegisterActivityWithOptions(a.NextOpening, activity.RegisterOptions{Name: window.ActivityNextOpening})
	w.RegisterActivityWithOptions(a.ClaimHolder, activity.RegisterOptions{Name: workloadops.ActivityClaimHolder})
	w.RegisterActivityWithOptions(a.BeginServing, activity.RegisterOptions{Name: serving.ActivityBegin})
	w.RegisterActivityWithOptions(a.NoteServing, activity.RegisterOptions{Name: serving.ActivityNote})
	w.RegisterActivityWithOptions(a.ReleaseServing, activity.RegisterOptions{Name: serving.ActivityRelease})
	w.RegisterActivityWithOptions(a.ObserveServing, activity.RegisterOptions{Name: serving.ActivityObserve})
	w.RegisterActivityWithOptions(a.ObserveServings, activity.RegisterOptions{Name: serving.ActivityObserveMany})
	w.RegisterActivityWithOptions(a.ExpectedServings, activity.RegisterOptions{Name: serving.ActivityExpected})
}

// untilNoConflict changes an object as it is now, and again when somebody else was faster.
func untilNoConflict(object string, change func() error) error {
	if err := failure.UntilNoConflict(object, change); !failure.Is(err, failure.Conflict) {
		return err
	}
	return &failure.Error{Kind: failure.NotReady, RetryAfter: time.Second,
		Message: object + " keeps being changed by others: it is tried again"}
}

// queryTimeout bounds how long a workflow may take to say what became of it.
const queryTimeout = 5 * time.Second

// stateOf asks a workflow for its state, which is too large for history.
func stateOf[S any](ctx context.Context, a *Activities, workflowID, runID string) (state S, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	value, err := a.temporal.QueryWorkflow(ctx, workflowID, runID, workloadops.QueryState)
	if err == nil {
		err = value.Get(&state)
	}
	return state, err
}

// maxSnapshots is how many snapshots are held: the items of a task ask for the same one.
const maxSnapshots = 8

// snapshot reads what a task runs. It never changes, so that it is read once.
func (a *Activities) snapshot(ctx context.Context, task string) (plan.Snapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, ok := a.snapshots[task]; ok {
		return s, nil
	}
	s, err := a.store.Snapshot(ctx, task)
	if err != nil {
		return plan.Snapshot{}, err
	}
	if len(a.snapshots) >= maxSnapshots {
		clear(a.snapshots)
	}
	a.snapshots[task] = s
	return s, nil
}

func (a *Activities) forget(task string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.snapshots, task)
}
