package observer

import (
	"cmp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	kinds "slipway.io/slipway/release/workload"
)

// world holds all objects at one moment of a replay, by key.
type world map[string]runtime.Object

// replay calls show with the world at its beginning and after every change, in the order of resourceVersion. A change
// without an object is a mark.
func replay(first []runtime.Object, changes []change, show func(version uint64, what string, w world)) {
	w := world{}
	for _, obj := range first {
		w[key(obj)] = obj
	}
	show(0, "begin", w)
	sorted := slices.Clone(changes)
	slices.SortStableFunc(sorted, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	for _, c := range sorted {
		switch {
		case c.object == nil:
			show(c.version, "a mark of the test", w)
			continue
		case c.kind == watch.Deleted:
			delete(w, key(c.object))
		default:
			w[key(c.object)] = c.object
		}
		show(c.version, string(c.kind)+" "+key(c.object), w)
	}
}

// workload returns a workload by name, nil if it does not exist.
func (w world) workload(name Name) runtime.Object { return w[name.Kind+"/"+name.Name] }

// podsOf returns the pods of a workload that have not completed.
func (w world) podsOf(name Name) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, obj := range w {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if owner, ok := ownerOf(pod); ok && owner == name {
			pods = append(pods, pod)
		}
	}
	return pods
}

// revisionOf returns a pod's revision: the value of the label that its kind of workload sets.
func revisionOf(pod *corev1.Pod, owner Name) string {
	kind, group, _ := strings.Cut(owner.Kind, ".")
	return pod.Labels[kinds.Of(cmp.Or(group, "apps"), kind).RevisionLabel]
}

// Count is the number of pods of a workload by version.
type Count struct {
	// Stable and New count the pods of the previous version and of any other; StableReady and NewReady the ready ones
	// among them. Pods that are being deleted do not count.
	Stable, StableReady, New, NewReady int32
}

// All returns the number of pods of both versions.
func (c Count) All() int32 { return c.Stable + c.New }

// Ready returns the number of ready pods of both versions.
func (c Count) Ready() int32 { return c.StableReady + c.NewReady }

func (w world) count(name Name, stable string) Count {
	var c Count
	for _, pod := range w.podsOf(name) {
		if pod.DeletionTimestamp != nil {
			continue
		}
		one := int32(0)
		if ready(pod) {
			one = 1
		}
		if revisionOf(pod, name) == stable {
			c.Stable, c.StableReady = c.Stable+1, c.StableReady+one
		} else {
			c.New, c.NewReady = c.New+1, c.NewReady+one
		}
	}
	return c
}

// surplusPods returns the number of a Deployment's pods beyond the sizes of their ReplicaSets. The Deployment's own
// controller shrinks one ReplicaSet and grows another in one pass, and the order in which their pods are deleted and
// created is up to the ReplicaSet controller: for milliseconds there may be one pod more than surge allows, without a
// decision of a release.
func (w world) surplusPods(name Name) int32 {
	running := map[string]int32{}
	for _, pod := range w.podsOf(name) {
		if owner := metav1.GetControllerOf(pod); pod.DeletionTimestamp == nil && owner != nil &&
			owner.Kind == "ReplicaSet" {
			running[owner.Name]++
		}
	}
	dismissed := int32(0)
	for replicaSet, pods := range running {
		if rs, ok := w["ReplicaSet/"+replicaSet].(*appsv1.ReplicaSet); ok && rs.Spec.Replicas != nil {
			dismissed += max(0, pods-*rs.Spec.Replicas)
		}
	}
	return dismissed
}

// revisionsOf returns how many revisions the pods of a workload are of.
func (w world) revisionsOf(name Name) int {
	revisions := map[string]bool{}
	for _, pod := range w.podsOf(name) {
		if pod.DeletionTimestamp == nil {
			revisions[revisionOf(pod, name)] = true
		}
	}
	return len(revisions)
}

// serves reports whether a request to a Service reaches a pod: one of the Service's endpoints is ready, and so is one
// of the pods that it selects.
//
// The native controller updates endpoints within milliseconds, so that a deleted pod may remain in them for a moment.
// Every rolling update has that, and one such endpoint among live ones is no failure of a release. A Service fails when
// no endpoint of it is ready, or when no pod of it is (even if endpoints still claim so).
func (w world) serves(service string) bool {
	svc, ok := w["Service/"+service].(*corev1.Service)
	if !ok {
		return false
	}
	return w.hasReadyEndpoint(service) && w.hasReadyPod(svc.Spec.Selector)
}

func (w world) hasReadyEndpoint(service string) bool {
	for _, obj := range w {
		slice, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || slice.Labels[discoveryv1.LabelServiceName] != service {
			continue
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return true
			}
		}
	}
	return false
}

func (w world) hasReadyPod(selector map[string]string) bool {
	selects := labels.SelectorFromSet(selector)
	for _, obj := range w {
		if pod, ok := obj.(*corev1.Pod); ok && pod.DeletionTimestamp == nil && ready(pod) &&
			selects.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}
