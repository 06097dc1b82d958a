// Package worker runs the Temporal workers of one process: which queues it polls, what is registered on them, and with what options.
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
	"go.temporal.io/sdk/worker"
	"go.uber.org/fx"

	"slipway.io/slipway/release/party"
	"slipway.io/slipway/workflows"
)

// Registrar adds activities to a worker.
type Registrar interface {
	Register(w worker.ActivityRegistry)
}

// Queue is one task queue that the process polls.
type Queue struct {
	Name string
	// Workflows says whether the queue carries workflows besides activities.
	Workflows bool
	// Activities are registered on the queue.
	Activities []Registrar
}

// Options say how a fleet runs.
type Options struct {
	// Namespace is the Temporal namespace.
	Namespace string
	// Identity is that of the Temporal client: it names this process among the workers.
	Identity   string
	Versioning Versioning
	// StopTimeout is how long activities that run may go on when the process is asked to end.
	StopTimeout time.Duration
	// Fatal is called when a worker cannot go on; it ends the process.
	Fatal func(error)
	Log   *slog.Logger
}

// Fleet is the workers of one process. It connects by itself: a process that starts before its Temporal server waits for it, and says so
// in Ready.
type Fleet struct {
	temporal client.Client
	queues   []Queue
	options  Options
	builds   *builds

	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	workers []worker.Worker
	trouble error
}

// newFleet polls these queues once it is started.
func newFleet(temporal client.Client, queues []Queue, options Options) *Fleet {
	return &Fleet{temporal: temporal, queues: queues, options: options, builds: newBuilds(temporal, queues, options), done: make(chan struct{}),
		trouble: errors.New("the workers are starting")}
}

// start returns at once; the workers connect in the background and try again until they succeed.
func (f *Fleet) start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go func() {
		defer close(f.done)
		if f.connect(ctx) {
			f.follow(ctx)
		}
	}()
	return nil
}

var errStopped = errors.New("the workers are stopped")

// stop lets running activities end within StopTimeout.
func (f *Fleet) stop(ctx context.Context) error {
	f.cancel()
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.workers) == 0 {
		f.trouble = errStopped
		return nil
	}
	f.builds.leave(ctx)
	var wg sync.WaitGroup
	var dead []party.Worker
	wg.Go(func() { dead = f.builds.awaitOthers(ctx) })
	for _, w := range f.workers {
		wg.Go(w.Stop)
	}
	wg.Wait()
	f.builds.leave(ctx, dead...) // once more: two that end at the same time each saw the other
	f.workers, f.trouble = nil, errStopped
	return nil
}

// Ready is nil while every queue is polled, and says otherwise why not.
func (f *Fleet) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

// connectPause is how long a failed start waits before the next.
const connectPause = 2 * time.Second

// connect is false if the process is asked to end before it succeeds.
func (f *Fleet) connect(ctx context.Context) bool {
	for {
		workers, err := f.startAll(ctx)
		if err == nil {
			f.note(workers, errors.New("the workers poll and wait for Temporal to give them work"))
			for _, q := range f.queues {
				f.options.Log.Info("polling", "queue", q.Name, "build", f.options.Versioning.Build)
			}
			return true
		}
		f.note(nil, err)
		f.options.Log.Warn("the workers cannot start yet", "error", err)
		if !pause(ctx, connectPause) {
			return false
		}
	}
}

func (f *Fleet) note(workers []worker.Worker, trouble error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers, f.trouble = workers, trouble
}

// pause is false if the context ends before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// follow looks for as long as the process lives which build is to get the work.
func (f *Fleet) follow(ctx context.Context) {
	for failures, next := 0, time.Duration(0); ; {
		if err := f.builds.look(ctx); err == nil {
			f.note(f.workers, nil)
			failures, next = 0, lookEvery
		} else {
			failures++
			next = min(time.Duration(failures)*routePause, lookEvery)
			if failures%firstFailures == 0 {
				f.options.Log.Warn("which build of the workers gets the work is not settled", "error", err)
			}
		}
		if !pause(ctx, next) {
			return
		}
	}
}

// firstFailures is how many looks may fail in a row before the log says so: Temporal hears of a new build's workers a moment after they start.
const firstFailures = 8

// startAll starts every worker or none.
func (f *Fleet) startAll(ctx context.Context) ([]worker.Worker, error) {
	if err := ensureSearchAttributes(ctx, f.temporal, f.options.Namespace); err != nil {
		return nil, err
	}
	if err := f.builds.prepare(ctx); err != nil {
		return nil, err
	}
	var started []worker.Worker
	for _, q := range f.queues {
		w := f.build(q)
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

// heartbeatThrottle is how long the SDK may keep a heartbeat back: what an activity says of its pods is shown to people who watch.
const heartbeatThrottle = 2 * time.Second

// pollers is how many ask Temporal for tasks of one kind and queue at once. The SDK's own scaling of them wakes the process ten times a second for each of its
// queues, for ever.
const pollers = 4

// centreAtOnce is how many activities of the centre, which are short, a process has under way at once. The others wait at Temporal, where it costs nothing:
// writes that the home cluster has no time for would be given up when it has worked on them already, and be made again.
const centreAtOnce = 128

func (f *Fleet) build(q Queue) worker.Worker {
	atOnce := 0 // the SDK's own limit
	if q.Workflows {
		atOnce = centreAtOnce
	}
	w := worker.New(f.temporal, q.Name, worker.Options{
		MaxConcurrentActivityExecutionSize:     atOnce,
		DisableWorkflowWorker:                  !q.Workflows,
		DisableRegistrationAliasing:            true,
		DeploymentOptions:                      f.builds.deployment(q.Name),
		PreferredVersionProvider:               workflows.Recording(func() int { return int(f.builds.level.Load()) }),
		Interceptors:                           []interceptor.WorkerInterceptor{workflows.NewInterceptor()},
		WorkerStopTimeout:                      f.options.StopTimeout,
		OnFatalError:                           f.options.Fatal,
		MaxConcurrentWorkflowTaskExecutionSize: maxWorkflowTasks,
		MaxHeartbeatThrottleInterval:           heartbeatThrottle,
		MaxConcurrentActivityTaskPollers:       pollers,
		MaxConcurrentWorkflowTaskPollers:       pollers,
	})
	if q.Workflows {
		registerWorkflows(w)
	}
	for _, a := range q.Activities {
		a.Register(w)
	}
	return w
}

// Module runs a fleet for as long as the process lives. It needs a Temporal client and its handler of metrics, the queues and the options.
var Module = fx.Module("worker",
	fx.Provide(newFleet),
	fx.Invoke(func(lc fx.Lifecycle, fleet *Fleet, metrics client.MetricsHandler) {
		if slices.ContainsFunc(fleet.queues, func(q Queue) bool { return q.Workflows }) {
			showReleases(metrics)
		}
		lc.Append(fx.Hook{OnStart: fleet.start, OnStop: fleet.stop})
	}),
)
