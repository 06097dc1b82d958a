// Package drift reports to rollouts what other clients do to objects that are being released. The packages that change
// the objects watch them: activities/workload and activities/traffic.
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

const (
	// signalShortest and signalLongest limit the pause before a failed signal is sent again.
	signalShortest, signalLongest = time.Second, 30 * time.Second
	// signalTimeout is how long one signal may take, probeTimeout one on which something urgent waits.
	signalTimeout, probeTimeout = 10 * time.Second, 500 * time.Millisecond
)

// Signaller sends a signal to a workflow, as client.Client does.
type Signaller interface {
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
}

// Change is a change of an object by another client.
type Change struct {
	// Claim names the rollout to report to; Namespace is the object's.
	Claim, Namespace string
	// Fingerprint distinguishes this change from others of the same object: each is reported once.
	Fingerprint string
	Observed    rollout.Observed
	// Uncertain is true when the change was made while no watch ran: mostly it is the engine's own write.
	Uncertain bool
	// Delivered is called when the rollout has the signal, and the object is then forgotten, because it is deleted;
	// nil: no call.
	Delivered func()
}

// Reporter reports changes to rollouts, each of them once, and retries failed signals.
type Reporter[K comparable] struct {
	temporal Signaller
	parties  []string
	log      *slog.Logger
	compare  func(ctx context.Context, key K) (*Change, error)
	queue    watch.Queue[K]

	// reported has, by object, the fingerprint of the change that its rollout has received.
	reported sync.Map
}

// NewReporter makes a reporter for the rollouts of these parties. compare returns what another client has done to an
// object, nil if nothing.
func NewReporter[K comparable](temporal Signaller, parties []string, log *slog.Logger,
	compare func(context.Context, K) (*Change, error)) *Reporter[K] {
	return &Reporter[K]{temporal: temporal, parties: parties, log: log, compare: compare, queue: NewQueue[K]()}
}

// MayHold reports whether a claim can be that of a rollout of one of these parties in a namespace. Every user who may
// edit an object can write a claim onto it, so the rollout that is signalled checks whether the object is its own.
func MayHold(parties []string, claim, namespace string) bool {
	return slices.ContainsFunc(parties, func(party string) bool {
		return strings.HasPrefix(workload.ParseHolder(claim).WorkflowID, rollout.WorkflowID(party, namespace, ""))
	})
}

// NewQueue is a queue of objects to compare; failed ones are retried after a second, with growing pauses.
func NewQueue[K comparable]() watch.Queue[K] { return watch.NewQueue[K](signalShortest, signalLongest) }

// Run reports until the context ends.
func (t *Reporter[K]) Run(ctx context.Context) {
	t.queue.Run(ctx, watch.Work[K]{Do: func(ctx context.Context, key K) (time.Duration, error) {
		return 0, t.report(ctx, key)
	}})
}

// Enqueue schedules a comparison of an object.
func (t *Reporter[K]) Enqueue(key K) { t.queue.Add(key) }

// Forget makes the reporter report the next change of an object even if it was reported before.
func (t *Reporter[K]) Forget(key K) { t.reported.Delete(key) }

// report signals the rollout of an object when there is a change that was not reported yet.
func (t *Reporter[K]) report(ctx context.Context, key K) error {
	c, err := t.compare(ctx, key)
	if err != nil {
		return err
	}
	if c == nil || !MayHold(t.parties, c.Claim, c.Namespace) {
		t.Forget(key)
		return nil
	}
	c.Observed.Claim = c.Claim
	if last, _ := t.reported.Load(key); last == c.Fingerprint {
		return nil
	}
	if err := Signal(ctx, t.temporal, c.Claim, c.Observed); err != nil {
		t.log.WarnContext(ctx, "failed to report a change of a workload to its rollout; it is retried",
			"workflow", workload.ParseHolder(c.Claim).WorkflowID, "change", c.Observed.Message, "error", err)
		return err
	}
	said := "another client has changed an object that is being released"
	if c.Uncertain {
		said = "an object that is being released may have changed before this worker watched it; its rollout checks that"
	}
	t.log.InfoContext(ctx, said, "workflow", workload.ParseHolder(c.Claim).WorkflowID, "change", c.Observed.Message)
	if c.Delivered != nil {
		c.Delivered()
		t.Forget(key)
		return nil
	}
	t.reported.Store(key, c.Fingerprint)
	return nil
}

// Signal sends an observation to a rollout. A rollout that has ended is no error.
func Signal(ctx context.Context, temporal Signaller, claim string, observed rollout.Observed) error {
	err := signal(ctx, temporal, signalTimeout, claim, observed)
	if notRunning(err) {
		return nil
	}
	return err
}

// RunsHere reports whether a claim is that of a rollout that runs in this engine. It finds out by sending the rollout
// what is about to be done for it. It returns true when Temporal does not answer in time.
func RunsHere(ctx context.Context, temporal Signaller, claim string, observed rollout.Observed) bool {
	return !notRunning(signal(ctx, temporal, probeTimeout, claim, observed))
}

func signal(ctx context.Context, temporal Signaller, within time.Duration, claim string,
	observed rollout.Observed) error {
	call, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	// Without a run: the rollout may have continued as new since it took the claim.
	return temporal.SignalWorkflow(call, workload.ParseHolder(claim).WorkflowID, "", rollout.SignalObserved, observed)
}

// notRunning reports whether a workflow does not run: it has ended, or it belongs to another engine.
func notRunning(err error) bool {
	var missing *serviceerror.NotFound
	return errors.As(err, &missing)
}

// Holding is what a rollout holds, as recorded on its workload.
type Holding struct {
	Workload catalog.Workload
	Claim    string
	// Routings are those of its strategy. Services is true when it pins Services and makes canary Services.
	Routings []strategy.Routing
	Services bool
	// Unsettled is true when an edit by another client lets the workload's own controller move pods that should not
	// move.
	Unsettled bool
	// Moving is true when the pods move or the workload is being finalised. ActiveHere is true when an attempt of this
	// process works on the workload; otherwise the deletion of a related object may be another worker's.
	Moving, ActiveHere bool
}

// Holdings finds what the rollouts of a cluster hold.
type Holdings interface {
	// Held returns what the rollout with a claim holds; false when no workload carries that claim.
	Held(claim string) (Holding, bool)
	// OnHolding registers f, which is called when a workload with routings, or its extra workload, has changed. It must
	// be called before the watch starts.
	OnHolding(f func(Holding))
}

// Kind is a kind of object that rollouts borrow or create in addition to the workload.
type Kind struct {
	Name     string
	Resource schema.GroupVersionResource
	// EditedPaths are the fields of an object, as JSON Pointers, that another client has changed since the rollout
	// wrote them.
	EditedPaths func(o *unstructured.Unstructured) []string
	// What is the value of rollout.Observed.What for it.
	What string
}
