package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

const (
	// lookForKinds is how often kinds that the cluster did not have are looked for again.
	lookForKinds = 5 * time.Minute
	// signalShortest and signalLongest limit the pause before a signal that did not arrive is sent again.
	signalShortest, signalLongest = time.Second, 30 * time.Second
	// signalTimeout is how long one signal may take.
	signalTimeout = 10 * time.Second
)

// signaller sends a signal to a workflow, as client.Client does.
type signaller interface {
	SignalWorkflow(ctx context.Context, workflowID, runID, signalName string, arg any) error
}

// DriftDetector notices when somebody else edits, scales or deletes a workload while its rollout rests, and tells the rollout. It hears of
// every change from the watch of claimed workloads, and compares each with what the rollout left on it (rollout.AnnotationRest); at rest it
// sends no request.
type DriftDetector struct {
	activities *Activities
	discovery  discovery.DiscoveryInterface
	temporal   signaller

	cancel context.CancelFunc
	ending sync.WaitGroup
	queue  workqueue.TypedRateLimitingInterface[target]

	mu sync.Mutex
	// told is the difference of each workload that its rollout knows of; gone are those that have left the watch and have not been looked
	// for yet.
	told map[target]string
	gone map[target]*resting
}

// NewDriftDetector makes a detector for the cluster of activities. It is to be made before those are called.
func NewDriftDetector(activities *Activities, d discovery.DiscoveryInterface, temporal signaller) *DriftDetector {
	s := &DriftDetector{
		activities: activities, discovery: d, temporal: temporal,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[target](signalShortest, signalLongest)),
		told: map[target]string{}, gone: map[target]*resting{},
	}
	activities.notifier.passOn(s.hear)
	return s
}

// Start begins to watch; it returns at once.
func (s *DriftDetector) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.ending.Go(func() { s.watchAll(ctx) })
	s.ending.Go(func() { kube.Work(ctx, s.queue, s.tell) })
	return nil
}

// Stop ends the detector; the watch goes on until Activities.Stop.
func (s *DriftDetector) Stop(context.Context) error {
	s.cancel()
	s.queue.ShutDown()
	s.ending.Wait()
	return nil
}

// tell signals the rollout of a workload when there is a difference that it does not know of yet.
func (s *DriftDetector) tell(ctx context.Context, t target) error {
	r, observed, err := s.compare(ctx, t)
	if err != nil {
		return err
	}
	s.mu.Lock()
	difference := ""
	if observed != nil {
		difference = fmt.Sprintf("%s %s %s %s %d", r.claim, r.GetUID(), observed.What, r.template, r.size)
	}
	known := s.told[t] == difference
	if difference == "" {
		delete(s.told, t)
	}
	s.mu.Unlock()
	if known || observed == nil {
		return nil
	}
	holder := workloadops.ParseHolder(r.claim)
	call, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	// Without a run: the rollout may have continued as new since it took the claim.
	err = s.temporal.SignalWorkflow(call, holder.WorkflowID, "", rollout.SignalObserved, *observed)
	var over *serviceerror.NotFound
	if err != nil && !errors.As(err, &over) {
		s.activities.options.Logger.WarnContext(ctx, "a rollout could not be told yet of a change of its workload",
			"workflow", holder.WorkflowID, "change", observed.Message, "error", err)
		return err
	}
	said := "somebody else has changed a workload that is being released"
	if r.doubt { // after a restart: mostly the write is our own
		said = "a workload that is being released may have changed before this worker watched it; its rollout checks that"
	}
	s.activities.options.Logger.InfoContext(ctx, said,
		"workflow", holder.WorkflowID, "change", observed.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[t] = difference
	if s.gone[t] == r {
		delete(s.gone, t)
		delete(s.told, t)
	}
	return nil
}

// compare is what somebody else has done to a workload, nil when nothing.
func (s *DriftDetector) compare(ctx context.Context, t target) (*resting, *rollout.Observed, error) {
	r := s.activities.notifier.find(t)
	s.mu.Lock()
	left := s.gone[t]
	if r != nil {
		delete(s.gone, t)
		defer s.mu.Unlock()
		return r, r.changed(t), nil
	}
	s.mu.Unlock()
	if left == nil {
		return nil, nil, nil
	}
	there, err := s.exists(ctx, t, left)
	if err != nil {
		return nil, nil, err
	}
	if there {
		// It only is not claimed any more.
		s.mu.Lock()
		delete(s.gone, t)
		s.mu.Unlock()
		return nil, nil, nil
	}
	return left, &rollout.Observed{What: "deleted", Message: fmt.Sprintf("somebody else has deleted the %s", t)}, nil
}
