// Package drift tells rollouts what others do to objects that are being released. Who watches the objects is said by the packages that
// change them: activities/workload and activities/traffic.
package drift

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

const (
	// signalShortest and signalLongest limit the pause before a signal that did not arrive is sent again.
	signalShortest, signalLongest = time.Second, 30 * time.Second
	// signalTimeout is how long one signal may take, probeTimeout one that something urgent waits for.
	signalTimeout, probeTimeout = 10 * time.Second, 500 * time.Millisecond
)

// Signaller sends a signal to a workflow, as client.Client does.
type Signaller interface {
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
}

// Change is something that somebody else has done to an object.
type Change struct {
	// Claim names the rollout that is to know, Namespace is the object's.
	Claim, Namespace string
	// Difference tells this change from others of the same object: each is told once.
	Difference string
	Observed   rollout.Observed
	// Doubt says that nobody watched: mostly the write is our own.
	Doubt bool
	// Arrived is called when the rollout knows; nil: nobody has to. What has arrived is forgotten then, as the object is gone.
	Arrived func()
}

// Teller tells rollouts of changes, each of them once, and repeats what does not arrive.
type Teller[K comparable] struct {
	temporal Signaller
	parties  []string
	log      *slog.Logger
	compare  func(ctx context.Context, key K) (*Change, error)
	queue    workqueue.TypedRateLimitingInterface[K]
	ending   sync.WaitGroup
	cancel   context.CancelFunc

	mu sync.Mutex
	// told is the difference of each object that its rollout knows of.
	told map[K]string
}

// NewTeller makes a teller for the rollouts of these parties. compare says what somebody else has done to an object, nil when nothing.
func NewTeller[K comparable](temporal Signaller, parties []string, log *slog.Logger,
	compare func(context.Context, K) (*Change, error)) *Teller[K] {
	return &Teller[K]{temporal: temporal, parties: parties, log: log, compare: compare, queue: NewQueue[K](), told: map[K]string{}}
}

// MayHold says whether a claim can be that of a rollout of one of these parties in a namespace: anybody who may edit an object can write a
// claim onto it. The rollout that is told looks whether the object is its own.
func MayHold(parties []string, claim, namespace string) bool {
	return slices.ContainsFunc(parties, func(party string) bool {
		return strings.HasPrefix(workloadops.ParseHolder(claim).WorkflowID, rollout.WorkflowID(party, namespace, ""))
	})
}

// NewQueue is a queue of objects to look at, for kube.Work; what failed comes again after a second, and later and later.
func NewQueue[K comparable]() workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[K](signalShortest, signalLongest))
}

// Start begins to tell; it returns at once.
func (t *Teller[K]) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	t.ending.Go(func() { kube.Work(ctx, t.queue, t.tell) })
}

// Stop ends the teller.
func (t *Teller[K]) Stop() {
	t.cancel()
	t.queue.ShutDown()
	t.ending.Wait()
}

// Look has an object compared.
func (t *Teller[K]) Look(key K) { t.queue.Add(key) }

// Forget has the next difference of an object told, whatever was told before.
func (t *Teller[K]) Forget(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.told, key)
}

// tell signals the rollout of an object when there is a difference that it does not know of yet.
func (t *Teller[K]) tell(ctx context.Context, key K) error {
	c, err := t.compare(ctx, key)
	if err != nil {
		return err
	}
	if c == nil || !MayHold(t.parties, c.Claim, c.Namespace) {
		t.Forget(key)
		return nil
	}
	c.Observed.Claim = c.Claim
	t.mu.Lock()
	known := t.told[key] == c.Difference
	t.mu.Unlock()
	if known {
		return nil
	}
	if err := Signal(ctx, t.temporal, c.Claim, c.Observed); err != nil {
		t.log.WarnContext(ctx, "a rollout could not be told yet of a change of its workload",
			"workflow", workloadops.ParseHolder(c.Claim).WorkflowID, "change", c.Observed.Message, "error", err)
		return err
	}
	said := "somebody else has changed an object that is being released"
	if c.Doubt {
		said = "an object that is being released may have changed before this worker watched it; its rollout checks that"
	}
	t.log.InfoContext(ctx, said, "workflow", workloadops.ParseHolder(c.Claim).WorkflowID, "change", c.Observed.Message)
	if c.Arrived != nil {
		c.Arrived()
		t.Forget(key)
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told[key] = c.Difference
	return nil
}

// Signal tells a rollout what was observed. One that is over need not know.
func Signal(ctx context.Context, temporal Signaller, claim string, observed rollout.Observed) error {
	err := signal(ctx, temporal, signalTimeout, claim, observed)
	if over(err) {
		return nil
	}
	return err
}

// Ours says whether a claim is that of a rollout which runs in this engine, by telling it what is about to be done for it. While nobody
// answers in time it may be.
func Ours(ctx context.Context, temporal Signaller, claim string, observed rollout.Observed) bool {
	return !over(signal(ctx, temporal, probeTimeout, claim, observed))
}

func signal(ctx context.Context, temporal Signaller, within time.Duration, claim string, observed rollout.Observed) error {
	call, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// Without a run: the rollout may have continued as new since it took the claim.
	return temporal.SignalWorkflow(call, workloadops.ParseHolder(claim).WorkflowID, "", rollout.SignalObserved, observed)
}

// over says that a workflow does not run: it has ended, or it is another engine's.
func over(err error) bool {
	var gone *serviceerror.NotFound
	return errors.As(err, &gone)
}
