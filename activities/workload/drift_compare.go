package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

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
	var rest rollout.Rest
	if text, there := o.GetAnnotations()[rollout.AnnotationRest]; there && json.Unmarshal([]byte(text), &rest) == nil {
		r.rest = &rest
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
	case r.rest == nil || r.claim == "" || *r.rest == rollout.Rest{}:
		return nil
	case r.DeletionTimestamp != nil:
		return &rollout.Observed{What: "deleted", Message: fmt.Sprintf("somebody else is deleting the %s", t)}
	case r.template != r.rest.Template:
		return &rollout.Observed{What: "edited", Message: fmt.Sprintf("somebody else has edited the pod template of the %s", t)}
	case r.sized && r.rest.Replicas > 0 && r.size != r.rest.Replicas:
		return &rollout.Observed{What: "scaled",
			Message: fmt.Sprintf("somebody else has scaled the %s from %d to %d", t, r.rest.Replicas, r.size)}
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

// hear takes in the changes of one kind.
func (s *DriftDetector) hear(kind string) cache.ResourceEventHandler {
	add := func(obj any) {
		if r, ok := obj.(*resting); ok {
			s.queue.Add(target{kind, r.Namespace, r.Name})
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			s.remember(obj, func(r *resting) { r.doubt = initial && r.saved && r.rest == nil })
			add(obj)
		},
		UpdateFunc: func(was, obj any) {
			s.remember(obj, func(r *resting) { r.inherit(was) })
			add(obj)
		},
		DeleteFunc: func(obj any) { s.left(kind, obj) },
	}
}

// remember notes something about a workload that its annotations do not tell.
func (s *DriftDetector) remember(obj any, note func(r *resting)) {
	if r, ok := obj.(*resting); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		note(r)
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
