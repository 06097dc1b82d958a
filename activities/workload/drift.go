package workload

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// DriftDetector notices when another client edits, scales or deletes a workload while its rollout is paused, and
// reports it to the rollout. It receives every change from the watch of claimed workloads, and compares it with what
// the rollout recorded on the workload (rollout.AnnotationSettled); while nothing changes it sends no request.
type DriftDetector struct {
	watch.Background
	activities *Activities
	kinds      *watch.Kinds
	reporter   *drift.Reporter[target]
	temporal   drift.Temporal

	mu sync.Mutex
	// missing are workloads that have left the watch and have not been read yet.
	missing map[target]*claimedWorkload
	// holdings are what rollouts with routings hold, by claim. listener is called for each change of one.
	holdings map[string]heldWorkload
	listener func(drift.Holding)
}

// NewDriftDetector makes a detector for the cluster of activities. It must be made before the activities are called.
func NewDriftDetector(activities *Activities, d discovery.DiscoveryInterface, temporal drift.Temporal) *DriftDetector {
	s := &DriftDetector{activities: activities, temporal: temporal,
		kinds:   watch.NewKinds(func(r schema.GroupVersionResource) bool { return watch.Served(d, r) }),
		missing: map[target]*claimedWorkload{}, holdings: map[string]heldWorkload{}, listener: func(drift.Holding) {}}
	s.reporter = drift.NewReporter(temporal, activities.options.Parties, activities.options.Logger, s.compare)
	for key, w := range activities.notifier.watches {
		w.Handle(s.handler(key))
		s.kinds.Add(workload.ByKey(key).Resource, func(context.Context) { activities.notifier.begin(key) })
	}
	return s
}

// Start starts a watch for each kind that the cluster has, and returns at once. Stop ends the detector; the watches
// continue until Activities.Stop.
func (s *DriftDetector) Start(context.Context) error {
	s.Begin(s.kinds.Run, s.reporter.Run)
	return nil
}

// compare is what another client has done to a workload, nil if nothing.
func (s *DriftDetector) compare(ctx context.Context, t target) (*drift.Change, error) {
	if r := s.activities.notifier.watches[t.kind].Get(t.namespace, t.name); r != nil {
		if taken, err := s.takeOffCopy(ctx, t, r); taken || err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.missing, t)
		return r.change(t, r.detect(t)), nil
	}
	s.mu.Lock()
	left := s.missing[t]
	s.mu.Unlock()
	if left == nil {
		return nil, nil
	}
	if left.extra && !s.activities.notifier.mainPaused(t, left.claim) {
		s.forget(t, left) // its rollout deletes it, or checks it anyway
		return nil, nil
	}
	o, err := s.activities.cluster.Get(ctx, t.ref())
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err != nil || o.GetUID() != left.UID {
		o = nil // that workload does not exist any more
	}
	// it is only no longer claimed; a workload without a recorded state is checked by its Move
	if o != nil || left.rest == nil {
		if err := s.restoreLabel(ctx, t, o); err != nil {
			return nil, err
		}
		s.forget(t, left)
		return nil, nil
	}
	c := left.change(t, &rollout.Observed{What: "deleted",
		Message: fmt.Sprintf("another client has deleted the %s", t)})
	c.Delivered = func() { s.forget(t, left) }
	return c, nil
}

func (s *DriftDetector) forget(t target, left *claimedWorkload) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing[t] == left {
		delete(s.missing, t)
	}
}

// claimedWorkload is what the watch keeps of a claimed workload.
type claimedWorkload struct {
	metav1.PartialObjectMetadata
	claim string
	// rest is the state that the rollout recorded, without its settings (changedFields lists those that differ); nil
	// before the first pause.
	rest *rollout.SettledState
	// saved is true when a rollout holds it; uncertain when the watch started and found no recorded state, so that the
	// state before is unknown.
	saved, uncertain bool
	// template is the digest of the pod template, size the desired size; sized is false for a DaemonSet, which has no
	// desired size.
	template string
	size     int32
	sized    bool
	// repairer is the user who has taken it over for repair, "" for none.
	repairer string
	// extra is true for the extra workload of a canary, whose size the rollout sets.
	extra bool
	// changedFields are the borrowed fields that differ from the recorded state; by is the field manager of the last
	// change.
	changedFields []string
	by            string
	// holding is what its rollout holds; nil without routings.
	holding *drift.Holding
	// copied is true if the claim is another workload's, of which this one is a copy; brought, if another client wrote
	// it.
	copied, brought bool
}

// change is the report to its rollout.
func (r *claimedWorkload) change(t target, o *rollout.Observed) *drift.Change {
	if o == nil {
		return nil
	}
	o.Object = t.String()
	difference := fmt.Sprintf("%s %s %s %s %d", r.claim, r.GetUID(), o.Message, r.template, r.size)
	if !r.uncertain && o.What == rollout.ObservedSettings { // changed again right after it was restored: reported again
		difference += fmt.Sprintf(" %d", r.Generation)
	}
	return &drift.Change{Claim: r.claim, Namespace: t.namespace, Fingerprint: difference, Observed: *o,
		Uncertain: r.uncertain}
}

// String names a workload: "Deployment shop/order".
func (t target) String() string {
	return fmt.Sprintf("%s %s/%s", t.kind[strings.LastIndexByte(t.kind, '/')+1:], t.namespace, t.name)
}

// newClaimedWorkload reads what is compared. The extra workload of a canary has more than the new version in its
// template: the digest of that is on it as rollout.AnnotationWritten.
func newClaimedWorkload(o *unstructured.Unstructured) *claimedWorkload {
	r := &claimedWorkload{claim: o.GetAnnotations()[workload.AnnotationClaimedBy], template: pods.Digest(templateOf(o))}
	size, sized, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	r.size, r.sized = int32(size), sized
	r.Namespace, r.Name, r.UID, r.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
	r.DeletionTimestamp, r.Generation = o.GetDeletionTimestamp(), o.GetGeneration()
	r.repairer = o.GetAnnotations()[rollout.AnnotationRepair]
	if r.copied = rollout.IsCopy(o); r.copied {
		return r
	}
	r.brought = drift.Brought(o, workload.AnnotationClaimedBy)
	saved := rollout.SavedOn(o.GetLabels(), o.GetAnnotations())
	r.saved = saved != ""
	if r.rest = rollout.SettledOn(o.GetAnnotations()); r.rest == nil {
		r.holding = holdingOf(o, r, saved)
		return r
	}
	r.changedFields = r.rest.ChangedFields(settingsOf(o, slices.Collect(maps.Keys(r.rest.Settings))))
	if len(r.changedFields) > 0 {
		r.by, _ = fieldmanager.LastOther(o, r.changedFields...)
	}
	if _, r.extra = o.GetLabels()[strategy.LabelCanaryOf]; r.extra {
		r.rest.Template = o.GetAnnotations()[rollout.AnnotationWritten]
	}
	r.holding = holdingOf(o, r, saved)
	r.rest.Settings = nil // compared above, and the largest part of what would be kept for a workload that waits for days
	return r
}

// holdingOf is what a rollout holds, by the state that it saved on its workload; nil when it routes nothing.
func holdingOf(o *unstructured.Unstructured, r *claimedWorkload, text string) *drift.Holding {
	saved, err := rollout.ParseSaved(text)
	if err != nil || len(saved.Routings) == 0 || r.claim == "" {
		return nil
	}
	ref := catalog.WorkloadRef{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()}
	edited := saved.Style == strategy.StyleCanary && r.rest != nil && r.rest.Template != "" &&
		r.rest.Template != r.template
	moves := r.rest == nil || r.rest.Template == ""
	loose := moves && saved.LeftToController(ref.Lookup().Means, r.template,
		settingsOf(o, slices.Collect(maps.Keys(saved.Settings))))
	return &drift.Holding{Workload: catalog.Workload{Namespace: o.GetNamespace(), WorkloadRef: ref}, Claim: r.claim,
		Routings: saved.Routings, Services: !saved.DisableGenerateCanaryService, Moving: moves,
		Unsettled: loose || r.rest != nil && r.rest.UnblocksController(withoutGateField(o, r.changedFields), edited)}
}

// withoutGateField are the changed fields except the one by which the gate holds a newly declared template: that moves
// no pod.
func withoutGateField(o *unstructured.Unstructured, disturbed []string) []string {
	gvk := o.GroupVersionKind()
	return slices.DeleteFunc(slices.Clone(disturbed), func(path string) bool {
		return hold.Holds(gvk.Group, gvk.Kind, o.Object, path)
	})
}

// detect is the change by another client, nil if none. A recorded state without a size is that of an object whose size
// is not compared.
func (r *claimedWorkload) detect(t target) *rollout.Observed {
	seen := func(what, by, format string, args ...any) *rollout.Observed {
		return &rollout.Observed{What: what, By: by, Message: fmt.Sprintf(format, args...)}
	}
	const scaled = "another client has scaled the %s from %d to %d"
	switch {
	case r.claim != "" && r.uncertain:
		return seen("edited", "", "the %s may have been edited while no worker watched it", t)
	case r.rest == nil || r.claim == "" || r.rest.Template == "":
		return nil
	case r.DeletionTimestamp != nil:
		return seen("deleted", "", "another client is deleting the %s", t)
	case r.repairer != "":
		return seen("edited", r.repairer, "%s has taken the %s over", r.repairer, t)
	case r.template != r.rest.Template:
		return seen("edited", "", "another client has edited the pod template of the %s", t)
	case r.extra && r.size < r.rest.Replicas:
		return seen(rollout.ObservedSettings, "", scaled, t, r.rest.Replicas, r.size)
	case !r.extra && r.sized && r.size != r.rest.Replicas:
		return seen("scaled", "", scaled, t, r.rest.Replicas, r.size)
	case !r.extra && len(r.changedFields) > 0:
		return seen(rollout.ObservedSettings, r.by, "another client has changed %s of the %s",
			fieldNames(r.changedFields), t)
	}
	return nil
}

// Held implements drift.Holdings.
func (s *DriftDetector) Held(claim string) (drift.Holding, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, is := s.holdings[claim]
	_, h.ActiveHere = s.activities.notifier.followed.get(h.target)
	return h.Holding, is
}

// heldWorkload is what a rollout holds, and its workload.
type heldWorkload struct {
	drift.Holding
	target
}

// OnHolding implements drift.Holdings.
func (s *DriftDetector) OnHolding(f func(drift.Holding)) { s.listener = f }

// publishHolding calls the listener because a workload, or its extra workload, has changed.
func (s *DriftDetector) publishHolding(r *claimedWorkload) {
	if r.holding != nil {
		s.listener(*r.holding)
	} else if h, held := s.Held(r.claim); held {
		s.listener(h)
	}
}

// handler receives the changes of one kind. remember sets on a workload what its annotations do not contain.
func (s *DriftDetector) handler(kind string) watch.Handler[*claimedWorkload] {
	add := func(r *claimedWorkload, remember func()) {
		s.mu.Lock()
		if remember(); r.holding != nil {
			s.holdings[r.claim] = heldWorkload{*r.holding, target{kind, r.Namespace, r.Name}}
		}
		s.mu.Unlock()
		s.publishHolding(r)
		s.reporter.Enqueue(target{kind, r.Namespace, r.Name})
	}
	return watch.Handler[*claimedWorkload]{
		Added: func(r *claimedWorkload, initial bool) {
			add(r, func() { r.uncertain = initial && r.saved && r.rest == nil })
		},
		Updated: func(was, r *claimedWorkload) {
			add(r, func() {
				if r.inherit(was); was.claim != r.claim {
					delete(s.holdings, was.claim)
				}
			})
		},
		Deleted: func(r *claimedWorkload) { s.onRemoved(kind, r) },
	}
}

// inherit keeps the recorded state when it has suddenly disappeared: kubectl rollout undo replaces a Deployment's
// annotations by those of an old ReplicaSet. A rollout never removes the state itself while it holds the workload.
func (r *claimedWorkload) inherit(was *claimedWorkload) {
	if was.claim != r.claim || was.UID != r.UID {
		return
	}
	r.holding = cmp.Or(r.holding, was.holding)
	if r.rest == nil {
		r.rest, r.uncertain = was.rest, was.uncertain
	}
}

// onRemoved notes a workload that the watch no longer shows: it was deleted, or is no longer claimed.
func (s *DriftDetector) onRemoved(kind string, r *claimedWorkload) {
	t := target{kind, r.Namespace, r.Name}
	s.publishHolding(r)
	s.mu.Lock()
	if r.holding != nil {
		delete(s.holdings, r.claim)
	}
	if (r.rest != nil || r.saved) && r.claim != "" {
		s.missing[t] = r
	}
	s.mu.Unlock()
	s.reporter.Forget(t)
	s.reporter.Enqueue(t)
}

// restoreLabel sets the label by which workloads are watched again on a workload that a rollout of this engine holds:
// without it no later change would be noticed. It reports to the rollout, so that the rollout checks what was changed
// meanwhile.
func (s *DriftDetector) restoreLabel(ctx context.Context, t target, o *unstructured.Unstructured) error {
	if o == nil || o.GetAnnotations()[workload.AnnotationClaimedBy] == "" ||
		o.GetLabels()[workload.LabelClaimed] != "" || s.activities.repairer(o) != "" {
		return nil
	}
	claim := o.GetAnnotations()[workload.AnnotationClaimedBy]
	taken := rollout.Observed{What: "edited", Claim: claim, Object: t.String(),
		Message: fmt.Sprintf("another client has removed the label %s from the %s", workload.LabelClaimed, t)}
	if !drift.MayHold(s.activities.options.Parties, claim, t.namespace) ||
		!drift.RunsHere(ctx, s.temporal, claim, taken) {
		return nil
	}
	test := jsonpatch.Test(jsonpatch.Annotation(workload.AnnotationClaimedBy), claim)
	_, err := s.activities.cluster.Patch(ctx, t.ref(), jsonpatch.Encode(append([]jsonpatch.Op{test},
		entries("/metadata/labels", o.GetLabels(), claimedLabel, nil)...)), false)
	if kube.IsAny(err, kube.Missing, kube.Rejected) { // it was deleted or released
		return nil
	}
	return err
}

func (t target) ref() kube.Ref {
	return kube.Ref{Resource: workload.ByKey(t.kind).Resource, Namespace: t.namespace, Name: t.name}
}

// fieldNames formats fields for users: "spec.paused, spec.strategy".
func fieldNames(pointers []string) string {
	names := slices.Clone(pointers)
	for i, p := range names {
		names[i] = strings.ReplaceAll(strings.TrimPrefix(p, "/"), "/", ".")
	}
	return strings.Join(names, ", ")
}
