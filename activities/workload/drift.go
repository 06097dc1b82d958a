package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
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
		difference = fmt.Sprintf("%s %s %s %s %d", r.claim, r.GetUID(), observed.Message, r.template, r.size)
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
	if !s.mayHold(holder, t) {
		return nil
	}
	observed.Claim, observed.Object = r.claim, t.String()
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
	s.activities.options.Logger.InfoContext(ctx, said, "workflow", holder.WorkflowID, "change", observed.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told[t] = difference
	if s.gone[t] == r {
		delete(s.gone, t)
		delete(s.told, t)
	}
	return nil
}

// mayHold says whether a claim can be a rollout's of that workload: anybody who may edit an object can write a claim onto it. The rollout
// that is told looks whether the object is its own.
func (s *DriftDetector) mayHold(holder workloadops.Holder, t target) bool {
	return slices.ContainsFunc(s.activities.options.Parties, func(party string) bool {
		return strings.HasPrefix(holder.WorkflowID, rollout.WorkflowID(party, t.namespace, ""))
	})
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

// resting is what the watch keeps of a claimed workload.
type resting struct {
	metav1.PartialObjectMetadata
	claim string
	// rest is what the rollout left; nil while it has not come to rest yet.
	rest *rollout.Rest
	// saved says that a rollout holds it; doubt that it was found without a rest when the watch began, so that nobody knows what it was
	// left like.
	saved, doubt bool
	// template is the digest of the pod template, size the size asked for; sized says that somebody asks for one, as nobody does of a
	// DaemonSet.
	template string
	size     int32
	sized    bool
	// repairer is who has taken it into their own hands, "" for nobody.
	repairer string
	// disturbed are the borrowed fields that are not as the rest left them, by whom the last.
	disturbed []string
	by        string
}

// String names a workload: "Deployment shop/order".
func (t target) String() string {
	return fmt.Sprintf("%s %s/%s", t.kind[strings.LastIndexByte(t.kind, '/')+1:], t.namespace, t.name)
}

// newResting reads what is compared. The extra workload of a canary carries more than the new version: what it carries is noted on it
// (rollout.AnnotationWritten).
func newResting(o *unstructured.Unstructured) *resting {
	r := &resting{claim: o.GetAnnotations()[workloadops.AnnotationClaimedBy], template: pods.Digest(templateOf(o))}
	size, sized, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	r.size, r.sized = int32(size), sized
	r.Namespace, r.Name, r.UID, r.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
	r.DeletionTimestamp = o.GetDeletionTimestamp()
	_, r.saved = o.GetAnnotations()[rollout.AnnotationSaved]
	r.repairer = o.GetAnnotations()[rollout.AnnotationRepair]
	var rest rollout.Rest
	if text, there := o.GetAnnotations()[rollout.AnnotationRest]; there && json.Unmarshal([]byte(text), &rest) == nil {
		r.rest = &rest
		r.disturbed = rest.Disturbed(settingsOf(o, slices.Collect(maps.Keys(rest.Settings))))
		if len(r.disturbed) > 0 {
			r.by, _ = managerOf(o, r.disturbed[0])
		}
		if _, extra := o.GetLabels()[strategy.LabelCanaryOf]; extra {
			rest.Template = o.GetAnnotations()[rollout.AnnotationWritten]
		}
	}
	return r
}

// changed is what somebody else has done to it, nil when nothing. A rest without a size is that of an object whose size is not compared.
func (r *resting) changed(t target) *rollout.Observed {
	switch {
	case r.claim != "" && r.doubt:
		return &rollout.Observed{What: "edited", Message: fmt.Sprintf("the %s may have been edited while nobody watched", t)}
	case r.rest == nil || r.claim == "" || r.rest.Template == "":
		return nil
	case r.DeletionTimestamp != nil:
		return &rollout.Observed{What: "deleted", Message: fmt.Sprintf("somebody else is deleting the %s", t)}
	case r.repairer != "":
		return &rollout.Observed{What: "edited", By: r.repairer, Message: fmt.Sprintf("%s has taken the %s over", r.repairer, t)}
	case r.template != r.rest.Template:
		return &rollout.Observed{What: "edited", Message: fmt.Sprintf("somebody else has edited the pod template of the %s", t)}
	case r.sized && r.rest.Replicas > 0 && r.size != r.rest.Replicas:
		return &rollout.Observed{What: "scaled",
			Message: fmt.Sprintf("somebody else has scaled the %s from %d to %d", t, r.rest.Replicas, r.size)}
	case len(r.disturbed) > 0:
		fields := strings.ReplaceAll(strings.TrimPrefix(strings.Join(r.disturbed, ", "), "/"), ", /", ", ")
		return &rollout.Observed{What: rollout.ObservedSettings, By: r.by,
			Message: fmt.Sprintf("somebody else has changed %s of the %s", strings.ReplaceAll(fields, "/", "."), t)}
	}
	return nil
}

// watchAll begins a watch for each kind that the cluster has, and looks for the others now and then.
func (s *DriftDetector) watchAll(ctx context.Context) {
	waiting := map[string]bool{}
	for key := range kinds {
		waiting[key] = true
	}
	again := signalShortest // not even the built-in kinds were found: the cluster is out of reach
	for len(waiting) > 0 {
		for key := range waiting {
			if s.has(kinds[key]) {
				delete(waiting, key)
				s.activities.notifier.observe(key)
				again = lookForKinds
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

// has says whether the cluster serves a kind. One whose cluster does not answer counts as absent for now.
func (s *DriftDetector) has(k kind) bool {
	list, err := s.discovery.ServerResourcesForGroupVersion(k.resource.GroupVersion().String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == k.resource.Resource })
}

// hear takes in the changes of one kind. remember notes about a workload what its annotations do not tell.
func (s *DriftDetector) hear(kind string) cache.ResourceEventHandler {
	add := func(obj any, remember func(r *resting)) {
		if r, ok := obj.(*resting); ok {
			s.mu.Lock()
			remember(r)
			s.mu.Unlock()
			s.queue.Add(target{kind, r.Namespace, r.Name})
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			add(obj, func(r *resting) { r.doubt = initial && r.saved && r.rest == nil })
		},
		UpdateFunc: func(was, obj any) { add(obj, func(r *resting) { r.inherit(was) }) },
		DeleteFunc: func(obj any) { s.left(kind, obj) },
	}
}

// inherit keeps what was known when the rest is suddenly not there: kubectl rollout undo puts the annotations of an old ReplicaSet in the
// place of a Deployment's own. A rollout itself never takes the rest away while it holds the workload.
func (r *resting) inherit(was any) {
	old, ok := was.(*resting)
	if !ok || r.rest != nil || old.claim != r.claim || old.UID != r.UID {
		return
	}
	r.rest, r.doubt = old.rest, old.doubt
}

// left notes a workload that the watch shows no more: it was deleted, or is not claimed any more.
func (s *DriftDetector) left(kind string, obj any) {
	r := restingOf(obj)
	if r == nil {
		return
	}
	t := target{kind, r.Namespace, r.Name}
	s.mu.Lock()
	delete(s.told, t)
	if r.rest != nil && r.claim != "" {
		s.gone[t] = r
	}
	s.mu.Unlock()
	s.queue.Add(t)
}

// exists says whether a workload that has left the watch is still there.
func (s *DriftDetector) exists(ctx context.Context, t target, r *resting) (bool, error) {
	o, err := s.activities.cluster.Get(ctx, kube.Ref{Resource: kinds[t.kind].resource, Namespace: t.namespace, Name: t.name})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return o.GetUID() == r.UID, nil
}
