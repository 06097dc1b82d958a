package observer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"slipway.io/slipway/release/workload"
)

// Name is the name of a workload in the observed namespace.
type Name struct{ Kind, Name string }

func (n Name) String() string { return n.Kind + " " + n.Name }

// Workload is the state of one workload at a moment.
type Workload struct {
	Name
	// Asked is the desired size; for a DaemonSet the number of nodes that should run it.
	Asked int32
	// Serving is the number of its pods that are ready and not being deleted; Left that of all pods that have not
	// completed.
	Serving int32
	Left    int32
	// Claim is the holder of the claim.
	Claim      string
	Generation int64
	Object     runtime.Object
}

// UnavailablePods returns the number of desired pods that do not serve.
func (w Workload) UnavailablePods() int32 { return max(0, w.Asked-w.Serving) }

// Moment is the state of the namespace after one change.
type Moment struct {
	Version uint64
	// What describes the change: "MODIFIED Pod order-0".
	What      string
	Workloads map[Name]Workload
}

// Timeline is everything that has happened, in order.
type Timeline struct {
	Moments []Moment
	// Created are the pods that were created since the observer began, by workload and in order, except those that the
	// node deleted.
	Created map[Name][]Pod
}

// Pod is one pod, by name and identity.
type Pod struct{ Name, UID string }

// state holds the objects at a moment of the replay.
type state struct {
	pods      map[string]*corev1.Pod
	workloads map[Name]runtime.Object
	// deletedGracefully are the UIDs of pods whose deletion was requested with a grace period.
	deletedGracefully map[string]bool
}

func newTimeline(first []runtime.Object, changes []change) (*Timeline, error) {
	s := state{pods: map[string]*corev1.Pod{}, workloads: map[Name]runtime.Object{},
		deletedGracefully: map[string]bool{}}
	known := map[string]bool{}
	for _, obj := range first {
		s.put(obj)
		if pod, ok := obj.(*corev1.Pod); ok {
			known[string(pod.UID)] = true
		}
	}
	tl := &Timeline{Moments: []Moment{s.moment(0, "begin")}, Created: map[Name][]Pod{}}
	sorted := slices.Clone(changes)
	slices.SortStableFunc(sorted, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	for _, c := range sorted {
		if c.kind == watch.Deleted {
			if pod, ok := c.object.(*corev1.Pod); ok && s.deletedByNode(pod) {
				tl.dropPod(pod)
			}
			s.drop(c.object)
		} else {
			s.put(c.object)
		}
		if pod, ok := c.object.(*corev1.Pod); ok && !known[string(pod.UID)] {
			known[string(pod.UID)] = true
			owner, ok := ownerOf(pod)
			if !ok {
				return nil, fmt.Errorf("pod %s belongs to no workload", pod.Name)
			}
			tl.Created[owner] = append(tl.Created[owner], Pod{pod.Name, string(pod.UID)})
		}
		tl.Moments = append(tl.Moments, s.moment(c.version, string(c.kind)+" "+key(c.object)))
	}
	return tl, nil
}

// deletedByNode reports whether a pod was deleted without a graceful deletion request. Every controller, and Slipway,
// gives a pod its grace period. Only KWOK's simulated node deletes without one, by name, and under load it may delete
// the successor of a pod that it deletes twice. That is not a restart by a client. (The API server also marks a pod
// with a grace period of 0 before it deletes it.)
func (s *state) deletedByNode(pod *corev1.Pod) bool {
	grace := pod.Spec.TerminationGracePeriodSeconds
	return !s.deletedGracefully[string(pod.UID)] && grace != nil && *grace > 0
}

// dropPod removes a pod that the node deleted from the created ones.
func (tl *Timeline) dropPod(pod *corev1.Pod) {
	if owner, ok := ownerOf(pod); ok {
		tl.Created[owner] = slices.DeleteFunc(tl.Created[owner], func(p Pod) bool { return p.UID == string(pod.UID) })
	}
}

func (s *state) put(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		s.pods[o.Name] = o
		if grace := o.DeletionGracePeriodSeconds; o.DeletionTimestamp != nil && grace != nil && *grace > 0 {
			s.deletedGracefully[string(o.UID)] = true
		}
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		s.workloads[nameOf(obj)] = obj
	}
}

func (s *state) drop(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		delete(s.pods, o.Name)
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet:
		delete(s.workloads, nameOf(obj))
	}
}

func (s *state) moment(version uint64, what string) Moment {
	m := Moment{Version: version, What: what, Workloads: map[Name]Workload{}}
	for name, obj := range s.workloads {
		m.Workloads[name] = workloadState(name, obj)
	}
	for _, pod := range s.pods {
		owner, ok := ownerOf(pod)
		w, there := m.Workloads[owner]
		if !ok || !there || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		w.Left++
		if pod.DeletionTimestamp == nil && ready(pod) {
			w.Serving++
		}
		m.Workloads[owner] = w
	}
	return m
}

func nameOf(obj runtime.Object) Name {
	m, _ := obj.(metav1.Object)
	return Name{kindOf(obj), m.GetName()}
}

func workloadState(name Name, obj runtime.Object) Workload {
	m, _ := obj.(metav1.Object)
	w := Workload{Name: name, Claim: m.GetAnnotations()[workload.AnnotationClaimedBy], Generation: m.GetGeneration(),
		Object: obj}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		w.Asked = *o.Spec.Replicas
	case *appsv1.StatefulSet:
		w.Asked = *o.Spec.Replicas
	case *appsv1.DaemonSet:
		w.Asked = o.Status.DesiredNumberScheduled
	}
	return w
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ownerOf returns the workload of a pod. For a Deployment it is derived from the name of the ReplicaSet.
func ownerOf(pod *corev1.Pod) (Name, bool) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return Name{}, false
	}
	if owner.Kind != "ReplicaSet" {
		group, _, _ := strings.Cut(owner.APIVersion, "/")
		return Name{kindIn(group, owner.Kind), owner.Name}, true
	}
	suffix := "-" + pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	return Name{"Deployment", owner.Name[:len(owner.Name)-len(suffix)]}, true
}

// MostUnavailable returns the largest number of pods of a service that were unavailable at once while a release claimed
// one of its workloads, and that moment.
func (tl *Timeline) MostUnavailable(service ...Name) (most int32, at Moment) {
	for _, m := range tl.Moments {
		held, out := false, int32(0)
		for _, name := range service {
			w := m.Workloads[name]
			held = held || w.Claim != ""
			out += w.UnavailablePods()
		}
		if held && out > most {
			most, at = out, m
		}
	}
	return most, at
}

// Generations returns the generations of a workload in order, one for each change of its spec.
func (tl *Timeline) Generations(name Name) []int64 {
	var out []int64
	for _, m := range tl.Moments {
		if w, there := m.Workloads[name]; there && (len(out) == 0 || out[len(out)-1] != w.Generation) {
			out = append(out, w.Generation)
		}
	}
	return out
}

// Claimed returns the workloads in the order in which they were first claimed.
func (tl *Timeline) Claimed() []Name {
	var out []Name
	for _, m := range tl.Moments {
		for _, name := range slices.SortedFunc(maps.Keys(m.Workloads), func(a, b Name) int {
			return cmp.Compare(a.String(), b.String())
		}) {
			if m.Workloads[name].Claim != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// String returns one line for each moment at which a workload's numbers changed, to be printed when a test fails.
func (tl *Timeline) String() string {
	var text string
	last := map[Name]string{}
	for _, m := range tl.Moments {
		for _, name := range slices.SortedFunc(maps.Keys(m.Workloads), func(a, b Name) int {
			return cmp.Compare(a.String(), b.String())
		}) {
			w := m.Workloads[name]
			line := fmt.Sprintf("%s: asked %d, serving %d, left %d, generation %d, claim %q", name, w.Asked, w.Serving,
				w.Left, w.Generation, w.Claim)
			if line != last[name] {
				last[name] = line
				text += fmt.Sprintf("%d %s → %s\n", m.Version, m.What, line)
			}
		}
	}
	return text
}
