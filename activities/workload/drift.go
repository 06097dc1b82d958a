package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// lookForKinds is how often kinds that the cluster did not have are looked for again, lookSoon how often while not even the built-in ones
// were found: the cluster is out of reach.
const lookForKinds, lookSoon = 5 * time.Minute, time.Second

// DriftDetector notices when somebody else edits, scales or deletes a workload while its rollout rests, and tells the rollout. It hears of
// every change from the watch of claimed workloads, and compares each with what the rollout left on it (rollout.AnnotationRest); at rest it
// sends no request.
type DriftDetector struct {
	activities *Activities
	discovery  discovery.DiscoveryInterface
	teller     *drift.Teller[target]
	temporal   drift.Signaller

	cancel context.CancelFunc
	ending sync.WaitGroup

	mu sync.Mutex
	// gone are those that have left the watch and have not been looked for yet.
	gone map[target]*resting
	// holdings are what rollouts with routings hold, by claim; listener hears of each change.
	holdings map[string]drift.Holding
	listener func(drift.Holding)
}

// NewDriftDetector makes a detector for the cluster of activities. It is to be made before those are called.
func NewDriftDetector(activities *Activities, d discovery.DiscoveryInterface, temporal drift.Signaller) *DriftDetector {
	s := &DriftDetector{activities: activities, discovery: d, temporal: temporal, gone: map[target]*resting{}, holdings: map[string]drift.Holding{},
		listener: func(drift.Holding) {}}
	s.teller = drift.NewTeller(temporal, activities.options.Parties, activities.options.Logger, s.compare)
	activities.notifier.passOn(s.hear)
	return s
}

// Start begins to watch; it returns at once.
func (s *DriftDetector) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.ending.Go(func() { s.watchAll(ctx) })
	s.teller.Start()
	return nil
}

// Stop ends the detector; the watch goes on until Activities.Stop.
func (s *DriftDetector) Stop(context.Context) error {
	s.cancel()
	s.teller.Stop()
	s.ending.Wait()
	return nil
}

// compare is what somebody else has done to a workload, nil when nothing.
func (s *DriftDetector) compare(ctx context.Context, t target) (*drift.Change, error) {
	if r := s.activities.notifier.find(t); r != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.gone, t)
		return r.change(t, r.changed(t)), nil
	}
	s.mu.Lock()
	left := s.gone[t]
	s.mu.Unlock()
	if left == nil {
		return nil, nil
	}
	if left.extra && !s.activities.notifier.rests(t, left.claim) {
		s.forget(t, left) // its rollout deletes it, or is looking at it
		return nil, nil
	}
	o, err := s.find(ctx, t, left)
	if err != nil {
		return nil, err
	}
	if o != nil || left.rest == nil { // it only is not claimed any more; one on which nothing is noted yet is looked for by its Move
		if err := s.markAgain(ctx, t, o); err != nil {
			return nil, err
		}
		s.forget(t, left)
		return nil, nil
	}
	c := left.change(t, &rollout.Observed{What: "deleted", Message: fmt.Sprintf("somebody else has deleted the %s", t)})
	c.Arrived = func() { s.forget(t, left) }
	return c, nil
}

func (s *DriftDetector) forget(t target, left *resting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[t] == left {
		delete(s.gone, t)
	}
}

// resting is what the watch keeps of a claimed workload.
type resting struct {
	metav1.PartialObjectMetadata
	claim string
	// rest is what the rollout left, without its settings (disturbed says which of these are not as it left them); nil while it has not come to rest yet.
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
	// extra says that it is the extra workload of a canary, whose size is the rollout's.
	extra bool
	// disturbed are the borrowed fields that are not as the rest left them, by whom the last.
	disturbed []string
	by        string
	// holding is what its rollout holds; nil when that has no routings.
	holding *drift.Holding
}

// change is what its rollout is to know.
func (r *resting) change(t target, o *rollout.Observed) *drift.Change {
	if o == nil {
		return nil
	}
	o.Object = t.String()
	difference := fmt.Sprintf("%s %s %s %s %d", r.claim, r.GetUID(), o.Message, r.template, r.size)
	if !r.doubt && o.What == rollout.ObservedSettings { // changed again right after it was put back: told again
		difference += fmt.Sprintf(" %d", r.Generation)
	}
	return &drift.Change{Claim: r.claim, Namespace: t.namespace, Difference: difference, Observed: *o, Doubt: r.doubt}
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
	r.DeletionTimestamp, r.Generation = o.GetDeletionTimestamp(), o.GetGeneration()
	r.repairer = o.GetAnnotations()[rollout.AnnotationRepair]
	saved := rollout.SavedOn(o.GetLabels(), o.GetAnnotations())
	r.saved = saved != ""
	var rest rollout.Rest
	if text, there := o.GetAnnotations()[rollout.AnnotationRest]; there && json.Unmarshal([]byte(text), &rest) == nil {
		r.rest = &rest
		r.disturbed = rest.Disturbed(settingsOf(o, slices.Collect(maps.Keys(rest.Settings))))
		if len(r.disturbed) > 0 {
			r.by, _ = fieldmanager.Of(o, r.disturbed...)
		}
		if _, r.extra = o.GetLabels()[strategy.LabelCanaryOf]; r.extra {
			rest.Template = o.GetAnnotations()[rollout.AnnotationWritten]
		}
	}
	if r.saved {
		r.holding = holdingOf(o, r, saved)
	}
	rest.Settings = nil // compared above, and the largest part of what would be kept of a workload that waits for days
	return r
}

// holdingOf is what a rollout holds by what it has saved on its workload; nil when it routes nothing.
func holdingOf(o *unstructured.Unstructured, r *resting, text string) *drift.Holding {
	saved, err := rollout.ParseSaved(text)
	if err != nil || len(saved.Routings) == 0 || r.claim == "" {
		return nil
	}
	ref := catalog.WorkloadRef{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()}
	edited := saved.Style == strategy.StyleCanary && r.rest != nil && r.rest.Template != "" && r.rest.Template != r.template
	moves := r.rest == nil || r.rest.Template == ""
	loose := moves && saved.LetGo(o.GetKind(), r.template, settingsOf(o, slices.Collect(maps.Keys(saved.Settings))))
	return &drift.Holding{Workload: catalog.Workload{Namespace: o.GetNamespace(), WorkloadRef: ref}, Claim: r.claim,
		Routings: saved.Routings, Services: !saved.DisableGenerateCanaryService, Moves: moves,
		Loose: loose || r.rest != nil && r.rest.Loosened(beyondTheGate(o, r.disturbed), edited)}
}

// beyondTheGate are the changed fields but for the one by which the gate holds a template that somebody has declared: that moves no pod.
func beyondTheGate(o *unstructured.Unstructured, disturbed []string) []string {
	gvk := o.GroupVersionKind()
	return slices.DeleteFunc(slices.Clone(disturbed), func(path string) bool {
		return hold.Holds(gvk.Group, gvk.Kind, o.Object, path)
	})
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
	case r.extra && r.size >= r.rest.Replicas:
		return nil
	case r.extra:
		return &rollout.Observed{What: rollout.ObservedSettings,
			Message: fmt.Sprintf("somebody else has scaled the %s from %d to %d", t, r.rest.Replicas, r.size)}
	case r.sized && r.size != r.rest.Replicas:
		return &rollout.Observed{What: "scaled",
			Message: fmt.Sprintf("somebody else has scaled the %s from %d to %d", t, r.rest.Replicas, r.size)}
	case len(r.disturbed) > 0:
		return &rollout.Observed{What: rollout.ObservedSettings, By: r.by,
			Message: fmt.Sprintf("somebody else has changed %s of the %s", fieldNames(r.disturbed), t)}
	}
	return nil
}

// watchAll begins a watch for each kind that the cluster has, and looks for the others now and then.
func (s *DriftDetector) watchAll(ctx context.Context) {
	waiting := map[string]bool{}
	for key := range kinds {
		waiting[key] = true
	}
	again := lookSoon
	for len(waiting) > 0 {
		for key := range waiting {
			if kube.Served(s.discovery, kinds[key].resource) {
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

// Held implements drift.Holdings.
func (s *DriftDetector) Held(claim string) (drift.Holding, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, held := s.holdings[claim]
	ref := h.Workload.WorkloadRef
	h.Here = s.activities.notifier.followed.has(target{pods.Key(ref), h.Workload.Namespace, ref.Name})
	return h, held
}

// OnHolding implements drift.Holdings.
func (s *DriftDetector) OnHolding(f func(drift.Holding)) { s.listener = f }

// note keeps what the rollout of a workload holds, and passes on that it, or the extra workload beside it, has changed.
func (s *DriftDetector) note(r *resting) {
	s.mu.Lock()
	if r.holding != nil {
		s.holdings[r.claim] = *r.holding
	}
	h, held := s.holdings[r.claim]
	s.mu.Unlock()
	if held {
		s.listener(h)
	}
}

// hear takes in the changes of one kind. remember notes about a workload what its annotations do not tell.
func (s *DriftDetector) hear(kind string) cache.ResourceEventHandler {
	add := func(obj any, remember func(r *resting)) {
		if r, ok := obj.(*resting); ok {
			s.mu.Lock()
			remember(r)
			s.mu.Unlock()
			s.note(r)
			s.teller.Look(target{kind, r.Namespace, r.Name})
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			add(obj, func(r *resting) { r.doubt = initial && r.saved && r.rest == nil })
		},
		UpdateFunc: func(was, obj any) {
			add(obj, func(r *resting) {
				r.inherit(was)
				if old, ok := was.(*resting); ok && old.claim != r.claim {
					delete(s.holdings, old.claim)
				}
			})
		},
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
	s.note(r)
	s.mu.Lock()
	if r.holding != nil {
		delete(s.holdings, r.claim)
	}
	if (r.rest != nil || r.saved) && r.claim != "" {
		s.gone[t] = r
	}
	s.mu.Unlock()
	s.teller.Forget(t)
	s.teller.Look(t)
}

// find is a workload that has left the watch, nil when it is not there any more.
func (s *DriftDetector) find(ctx context.Context, t target, r *resting) (*unstructured.Unstructured, error) {
	o, err := s.activities.cluster.Get(ctx, t.ref())
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case o.GetUID() != r.UID:
		return nil, nil
	}
	return o, nil
}

// markAgain gives a workload that a rollout of this engine holds the label back by which it is watched: without it nobody would notice what
// is done to it. The rollout is told, so that it looks at what was done meanwhile.
func (s *DriftDetector) markAgain(ctx context.Context, t target, o *unstructured.Unstructured) error {
	if o == nil || o.GetAnnotations()[workloadops.AnnotationClaimedBy] == "" || o.GetLabels()[workloadops.LabelClaimed] != "" || s.activities.repairer(o) != "" {
		return nil
	}
	claim := o.GetAnnotations()[workloadops.AnnotationClaimedBy]
	taken := rollout.Observed{What: "edited", Claim: claim, Object: t.String(),
		Message: fmt.Sprintf("somebody else has taken the label %s off the %s", workloadops.LabelClaimed, t)}
	if !drift.MayHold(s.activities.options.Parties, claim, t.namespace) || !drift.Ours(ctx, s.temporal, claim, taken) {
		return nil
	}
	test := jsonpatch.Test(jsonpatch.Annotation(workloadops.AnnotationClaimedBy), claim)
	body, err := json.Marshal(append([]jsonpatch.Op{test}, entries("/metadata/labels", o.GetLabels(),
		map[string]string{workloadops.LabelClaimed: workloadops.LabelClaimedValue}, nil)...))
	if err != nil {
		return err
	}
	if _, err = s.activities.cluster.Patch(ctx, t.ref(), body, false); err == nil {
		return nil
	}
	if kind := kube.Classify(err); kind == kube.Missing || kind == kube.Rejected { // it is deleted, or released
		return nil
	}
	return err
}

func (t target) ref() kube.Ref {
	return kube.Ref{Resource: kinds[t.kind].resource, Namespace: t.namespace, Name: t.name}
}
