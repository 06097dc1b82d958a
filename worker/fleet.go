// Package worker runs the Temporal workers of one process: their queues, registrations and options.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/fx"

	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/temporal/presence"
	"slipway.io/slipway/workflows"
)

// Registrar adds activities to a worker.
type Registrar interface {
	Register(w worker.ActivityRegistry)
}

// Queue is one task queue that the process polls.
type Queue struct {
	Name string
	// Workflows is true if the queue carries workflows in addition to activities.
	Workflows bool
	// Activities are the activities registered on the queue.
	Activities []Registrar
	// Policy describes the party's policy for pod templates, which the workers report; "": they report none.
	Policy string
	// Account finds out, before the workers of a party's queue start, which account they report; nil: they report none.
	Account func(ctx context.Context) party.Account
}

// Options configure a Fleet.
type Options struct {
	// Namespace is the Temporal namespace.
	Namespace string
	// Identity is the Temporal client's identity, which names this process among the workers.
	Identity string
	// Build is the build ID of the workers in Temporal; upgrade.Unversioned: none.
	Build string
	// StopTimeout is how long running activities may continue when the process shuts down.
	StopTimeout time.Duration
	// Fatal is called on a fatal worker error; it ends the process.
	Fatal func(error)
	Log   *slog.Logger
}

// Fleet is the set of workers of one process. It connects in the background: a process that starts before its Temporal
// server waits for it, and Ready reports that.
type Fleet struct {
	temporal client.Client
	queues   []Queue
	options  Options
	builds   *buildRouter

	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	workers []worker.Worker
	trouble error
}

// newFleet returns a fleet that polls these queues once started.
func newFleet(temporal client.Client, queues []Queue, options Options) *Fleet {
	return &Fleet{temporal: temporal, queues: queues, options: options, builds: newBuildRouter(temporal, queues,
		options), done: make(chan struct{}), trouble: errors.New("the workers are starting")}
}

// start returns at once; the workers connect in the background and retry until they succeed.
func (f *Fleet) start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() {
		defer close(f.done)
		if f.connect(ctx) {
			f.followBuilds(ctx)
		}
	}()
	return nil
}

var errStopped = errors.New("the workers are stopped")

// stop lets running activities finish within StopTimeout.
func (f *Fleet) stop(ctx context.Context) error {
	f.cancel()
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.workers) == 0 {
		f.trouble = errStopped
		return nil
	}
	f.builds.handOver(ctx)
	var wg sync.WaitGroup
	var dead []party.Worker
	wg.Go(func() { dead = f.builds.awaitDeadWorkers(ctx) })
	for _, w := range f.workers {
		wg.Go(w.Stop)
	}
	wg.Wait()
	f.builds.handOver(ctx, dead...) // again: of two processes that end at the same time, each saw the other
	f.workers, f.trouble = nil, errStopped
	return nil
}

// Ready returns nil while every queue is polled, otherwise the reason.
func (f *Fleet) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

// connectPause is the pause after a failed start.
const connectPause = 2 * time.Second

// connect starts the workers. It returns false if the process is stopped before that succeeds.
func (f *Fleet) connect(ctx context.Context) bool {
	for {
		workers, err := f.startAll(ctx)
		if err == nil {
			f.setState(workers, errors.New("the workers poll and wait for Temporal to give them work"))
			for _, q := range f.queues {
				f.options.Log.Info("polling", "queue", q.Name, "build", f.options.Build)
			}
			return true
		}
		f.setState(nil, err)
		f.options.Log.Warn("the workers cannot start yet", "error", err)
		if pause.For(ctx, connectPause) != nil {
			return false
		}
	}
}

func (f *Fleet) setState(workers []worker.Worker, trouble error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers, f.trouble = workers, trouble
}

// followBuilds checks regularly, for the life of the process, which build gets the work.
func (f *Fleet) followBuilds(ctx context.Context) {
	for failures, next := 0, time.Duration(0); ; {
		if err := f.builds.check(ctx); err == nil {
			f.setState(f.workers, nil)
			failures, next = 0, checkInterval
		} else {
			failures++
			next = min(time.Duration(failures)*routePause, checkInterval)
			if failures%failuresBeforeLog == 0 {
				f.options.Log.Warn("could not determine which build gets the work", "error", err)
			}
		}
		if pause.For(ctx, next) != nil {
			return
		}
	}
}

// failuresBeforeLog is how many checks may fail in a row before that is logged: Temporal sees a new build's workers a
// moment after they start.
const failuresBeforeLog = 8

// startAll starts all workers or none.
func (f *Fleet) startAll(ctx context.Context) ([]worker.Worker, error) {
	if err := ensureSearchAttributes(ctx, f.temporal, f.options.Namespace); err != nil {
		return nil, err
	}
	if err := f.refuseFormerReleases(ctx); err != nil {
		return nil, err
	}
	var started []worker.Worker
	for _, q := range f.queues {
		w := f.build(ctx, q)
		if err := w.Start(); err != nil {
			for _, s := range started {
				s.Stop()
			}
			return nil, fmt.Errorf("queue %s: %w", q.Name, err)
		}
		started = append(started, w)
	}
	return started, nil
}

// heartbeatThrottle is how long the SDK may delay a heartbeat: users watch the pod progress in it.
const heartbeatThrottle = 2 * time.Second

// pollers is the number of pollers per queue and kind of task. The SDK's poller autoscaling would wake the process ten
// times a second per queue.
const pollers = 4

// maxCentreActivities is how many activities of the centre, which are short, a process executes at once. The others
// wait at Temporal at no cost. With more, an overloaded home cluster would process writes that have already timed out
// and will be repeated.
const maxCentreActivities = 128

func (f *Fleet) build(ctx context.Context, q Queue) worker.Worker {
	atOnce := 0 // the SDK's own limit
	if q.Workflows {
		atOnce = maxCentreActivities
	}
	w := worker.New(f.temporal, q.Name, worker.Options{
		MaxConcurrentActivityExecutionSize:     atOnce,
		DisableWorkflowWorker:                  !q.Workflows,
		DisableRegistrationAliasing:            true,
		DeploymentOptions:                      f.builds.deployment(q.Name),
		Interceptors:                           []interceptor.WorkerInterceptor{workflows.NewInterceptor()},
		WorkerStopTimeout:                      f.options.StopTimeout,
		OnFatalError:                           f.options.Fatal,
		MaxConcurrentWorkflowTaskExecutionSize: maxWorkflowTasks,
		MaxHeartbeatThrottleInterval:           heartbeatThrottle,
		MaxConcurrentActivityTaskPollers:       pollers,
		MaxConcurrentWorkflowTaskPollers:       pollers,
		Plugins:                                f.plugins(ctx, q),
	})
	if q.Workflows {
		registerWorkflows(w)
	}
	for _, a := range q.Activities {
		a.Register(w)
	}
	return w
}

// plugins returns the plugins by which the workers of a party's queue report the party's policy and their account; they
// do nothing else.
func (f *Fleet) plugins(ctx context.Context, q Queue) (plugins []worker.Plugin) {
	var names []string
	if q.Policy != "" {
		names = append(names, presence.PolicyPlugin(q.Policy))
	}
	if q.Account != nil {
		names = append(names, presence.AccountPlugin(q.Account(ctx)))
	}
	for _, name := range names {
		if plugin, err := temporal.NewSimplePlugin(temporal.SimplePluginOptions{Name: name}); err == nil {
			plugins = append(plugins, plugin)
		}
	}
	return plugins
}

// Module runs a fleet for the life of the process. It needs a Temporal client and its metrics handler, the queues and
// the options.
var Module = fx.Module("worker",
	fx.Provide(newFleet),
	fx.Invoke(func(lc fx.Lifecycle, fleet *Fleet, metrics client.MetricsHandler) {
		if slices.ContainsFunc(fleet.queues, func(q Queue) bool { return q.Workflows }) {
			exportReleaseSeries(metrics)
		}
		exportSeries(metrics, workload.MetricBlocked)
		lc.Append(fx.Hook{OnStart: fleet.start, OnStop: fleet.stop})
	}),
)

// maxWorkflowTasks bounds the workflow tasks that one process executes at once; they are short and CPU-bound.
const maxWorkflowTasks = 100

// registerWorkflows registers every workflow type under an explicit name: histories contain the names.
func registerWorkflows(w worker.WorkflowRegistry) {
	for name, run := range map[string]any{
		workflows.TypeDeployPlan: workflows.DeployPlan, workflows.TypeServiceRelease: workflows.ServiceRelease,
		workflows.TypePreflight: workflows.Preflight, workflows.TypeRollout: workflows.Rollout,
		workflows.TypeServing: workflows.Serving, workflows.TypeServingStatuses: workflows.ServingStatuses,
		workflows.TypePackageSweep: workflows.PackageSweep, workflows.TypeServingCheck: workflows.ServingCheck,
	} {
		w.RegisterWorkflowWithOptions(run, workflow.RegisterOptions{Name: name})
	}
}

// maxCachedWorkflows is how many workflows a process keeps in memory between their tasks, about 100 KiB each. Releases
// wait for users for days: the least recently used one is replayed from its history when needed.
const maxCachedWorkflows = 200

// The size is per process, and has to be set before the first worker starts.
func init() { worker.SetStickyWorkflowCacheSize(cacheSize()) }
