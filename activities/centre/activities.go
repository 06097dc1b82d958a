// Package centre contains the activities on the home cluster: they read and write records there, and query other
// workflows in Temporal.
package centre

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"k8s.io/utils/lru"

	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise/v1beta1"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
)

// Activities read and write records in the home cluster, and query other workflows in Temporal.
type Activities struct {
	store       *store.Store
	temporal    client.Client
	recordLimit int
	versions    inputs
	// foreign is foreignInput; tests of what follows replace it.
	foreign func(ctx context.Context, kd *kuscia.KusciaDeployment, in serving.NoteRequest) (string, error)
	// authors and requireGate are those of CheckAuthors.
	authors     func(ctx context.Context, o author.Object) (unchecked string, err error)
	requireGate bool

	mu sync.Mutex
	// snapshots are what tasks execute; mu makes several items of one task read it once.
	snapshots *lru.Cache
	// published are Rollouts as this process last wrote them, by UID.
	published writeCache[*v1beta1.Rollout]
	// servings are servings as this process last wrote them, by ID.
	servings writeCache[*kuscia.KusciaDeployment]
}

// inputs reads the inputs of serving operations; versions.Reader implements it.
type inputs interface {
	Input(ctx context.Context, source serving.Source) (serving.Input, error)
	Packed(ctx context.Context, source serving.Source) (packed []byte, digest string, err error)
}

// NewActivities returns the activities of the centre's queue. reader reads the inputs of serving operations;
// recordLimit is how many records are kept per subject.
func NewActivities(store *store.Store, temporal client.Client, reader inputs, recordLimit int) *Activities {
	a := &Activities{store: store, temporal: temporal, versions: reader, recordLimit: recordLimit,
		snapshots: lru.New(maxSnapshots), published: newWriteCache[*v1beta1.Rollout](maxPublished),
		servings: newWriteCache[*kuscia.KusciaDeployment](maxServings)}
	a.foreign = a.foreignInput
	return a
}

// CheckAuthors has the TrafficRoutings that rollouts hold judged: whether anything proves that their authors may change
// what these refer to. If it is required, no rollout can hold one without the proof; otherwise its status warns.
// Without this call no TrafficRouting is judged.
func (a *Activities) CheckAuthors(unchecked func(ctx context.Context, o author.Object) (why string, err error),
	required bool) {
	a.authors, a.requireGate = unchecked, required
}

// Register registers the activities with a worker of the centre's queue.
func (a *Activities) Register(w worker.ActivityRegistry) {
	for name, do := range map[string]any{
		operation.ActivityLoadItem: a.LoadItem, operation.ActivityBeginTask: a.BeginTask,
		operation.ActivityCompleteRecord: a.CompleteRecord, workload.ActivityClaimHolder: a.ClaimHolder,
		source.ActivityUnrecorded: a.UnrecordedPackages, window.ActivityNextOpening: a.NextOpening,
		rollout.ActivityCompleteRollout: a.CompleteRollout, rollout.ActivityRecordRollout: a.RecordRollout,
		rollout.ActivityLastHealthy:     a.LastHealthy,
		rollout.ActivityWithdrawRollout: a.WithdrawRollout, rollout.ActivityPublishRollout: a.PublishRollout,
		rollout.ActivityHoldTraffic: a.HoldTraffic, rollout.ActivityLeaveTraffic: a.LeaveTraffic,
		serving.ActivityBegin: a.BeginServing, serving.ActivityNote: a.NoteServing,
		serving.ActivityRelease: a.ReleaseServing, serving.ActivityObserveMany: a.ObserveServings,
		serving.ActivityExpected: a.ExpectedServings, origin.ActivityCheck: a.CheckOrigin,
	} {
		w.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
	}
}

// retryConflicts changes an object, and repeats the change when another client wrote the object first. If it keeps
// failing, the error is NotReady.
func retryConflicts(object string, change func() error) error {
	if err := failure.RetryOnConflict(object, change); !failure.Is(err, failure.Conflict) {
		return err
	}
	return &failure.Error{Kind: failure.NotReady, RetryAfter: time.Second,
		Message: object + " keeps being changed by other clients: retrying"}
}

// queryTimeout limits how long a workflow may take to answer a query for its state.
const queryTimeout = 5 * time.Second

// stateOf queries a workflow for its state, which is too large for the history.
func stateOf[S any](ctx context.Context, a *Activities, workflowID, runID string) (state S, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	value, err := a.temporal.QueryWorkflow(ctx, workflowID, runID, workload.QueryState)
	if err == nil {
		err = value.Get(&state)
	}
	return state, err
}

// maxSnapshots is how many snapshots are cached: all items of a task use the same one.
const maxSnapshots = 8

// snapshot reads what a task executes. It never changes, so it is cached.
func (a *Activities) snapshot(ctx context.Context, task string) (plan.Snapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s, known := a.snapshots.Get(task); known {
		return s.(plan.Snapshot), nil
	}
	s, err := a.store.Snapshot(ctx, task)
	if err == nil {
		a.snapshots.Add(task, s)
	}
	return s, err
}

// writeCache keeps objects as this process last wrote them. An object can be taken once: a write onto it is refused if
// another client has changed the object since, and then it is read again.
type writeCache[T any] struct{ objects *lru.Cache }

func newWriteCache[T any](most int) writeCache[T] { return writeCache[T]{lru.New(most)} }

func (r writeCache[T]) keep(key string, object T) { r.objects.Add(key, object) }

// take removes and returns an object; false if it is not cached.
func (r writeCache[T]) take(key string) (object T, known bool) {
	found, known := r.objects.Get(key)
	if !known {
		return object, false
	}
	r.objects.Remove(key)
	return found.(T), true
}
