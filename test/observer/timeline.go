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

	"slipway.io/slipway/release/workloadops"
)

// Name names a workload of the namespace that is observed.
type Name struct{ Kind, Name string }

func (n Name) String() string { return n.Kind + " " + n.Name }

// Workload is what a moment knows of one workload.
type Workload struct {
	Name
	// Asked is the size that is asked for; of a DaemonSet the number of nodes that should run it.
	Asked int32
	// Serving is the number of its pods that are ready and not on their way out; Left that of all that have not run to their end.
	Serving int32
	Left    int32
	// Claim is who holds it.
	Claim      string
	Generation int64
	Object     runtime.Object
}

// Out is the number of pods that are asked for and do not serve.
func (w Workload) Out() int32 { return max(0, w.Asked-w.Serving) }

// Moment is the state of the namespace after one change.
type Moment struct {
	Version uint64
	// What says what changed: "MODIFIED Pod order-0".
	What      string
	Workloads map[Name]Workload
}

// Timeline is everything that happened, in order.
type Timeline struct {
	Moments []Moment
	// Made are the pods that were made since the observer began, of each workload, in order, but for those that the node struck down.
	Made map[Name][]Pod
}

// Pod is one pod, by name and identity.
type Pod struct{ Name, UID string }

// state is what is there while a timeline is replayed.
type state struct {
	pods      map[string]*corev1.Pod
	workloads map[Name]runtime.Object
	// asked are the pods, by UID, that somebody asked to go with a grace period.
	asked map[string]bool
}

func newTimeline(first []runtime.Object, changes []change) (*Timeline, error) {
	s := state{pods: map[string]*corev1.Pod{}, workloads: map[Name]runtime.Object{}, asked: map[string]bool{}}
	known := map[string]bool{}
	for _, obj := range first {
		s.put(obj)
		if pod, ok := obj.(*corev1.Pod); ok {
			known[string(pod.UID)] = true
		}
	}
	tl := &Timeline{Moments: []Moment{s.moment(0, "begin")}, Made: map[Name][]Pod{}}
	sorted := slices.Clone(changes)
	slices.SortStableFunc(sorted, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	for _, c := range sorted {
		if c.kind == watch.Deleted {
			if pod, ok := c.object.(*corev1.Pod); ok && s.struck(pod) {
				tl.strike(pod)
			}
			s.drop(c.object)
		} else {
			s.put(c.object)
		}
		if pod, ok := c.object.(*corev1.Pod); ok && !known[string(pod.UID)] {
			known[string(pod.UID)] = true
			owner, ok := ownerOf(pod)
			if !ok {
				return nil, fmt.Errorf("pod %s is of no workload", pod.Name)
			}
			tl.Made[owner] = append(tl.Made[owner], Pod{pod.Name, string(pod.UID)})
		}
		tl.Moments = append(tl.Moments, s.moment(c.version, string(c.kind)+" "+key(c.object)))
	}
	return tl, nil
}

// struck says whether a pod went that nobody had asked to go: every controller, and Slipway, leaves a pod its grace period. Only the node
// that KWOK plays deletes without one, by name, and under load it may hit the successor of a pod that it deletes twice. That is no restart of
// anybody's. (The API server marks a pod with a grace period of 0 as well before it takes it away.)
func (s *state) struck(gone *corev1.Pod) bool {
	grace := gone.Spec.TerminationGracePeriodSeconds
	return !s.asked[string(gone.UID)] && grace != nil && *grace > 0
}

// strike takes a pod that was struck off the list of those that were made.
func (tl *Timeline) strike(pod *corev1.Pod) {
	if owner, ok := ownerOf(pod); ok {
		tl.Made[owner] = slices.DeleteFunc(tl.Made[owner], func(p Pod) bool { return p.UID == string(pod.UID) })
	}
}

func (s *state) put(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		s.pods[o.Name] = o
		if grace := o.DeletionGracePeriodSeconds; o.DeletionTimestamp != nil && grace != nil && *grace > 0 {
			s.asked[string(o.UID)] = true
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
		m.Workloads[name] = workload(name, obj)
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

func workload(name Name, obj runtime.Object) Workload {
	m, _ := obj.(metav1.Object)
	w := Workload{Name: name, Claim: m.GetAnnotations()[workloadops.AnnotationClaimedBy], Generation: m.GetGeneration(), Object: obj}
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

// ownerOf is the workload of a pod. A Deployment's is read off the name of the ReplicaSet between them.
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

// MostOut is the largest number of pods of a service that were out at once while one of its workloads was held by a release, and the moment of it.
func (tl *Timeline) MostOut(service ...Name) (most int32, at Moment) {
	for _, m := range tl.Moments {
		held, out := false, int32(0)
		for _, name := range service {
			w := m.Workloads[name]
			held = held || w.Claim != ""
			out += w.Out()
		}
		if held && out > most {
			most, at = out, m
		}
	}
	return most, at
}

// Generations are the different generations that a workload went through, in order: how often its spec was changed.
func (tl *Timeline) Generations(name Name) []int64 {
	var out []int64
	for _, m := range tl.Moments {
		if w, there := m.Workloads[name]; there && (len(out) == 0 || out[len(out)-1] != w.Generation) {
			out = append(out, w.Generation)
		}
	}
	return out
}

// Claimed are the workloads in the order in which they were first held.
func (tl *Timeline) Claimed() []Name {
	var out []Name
	for _, m := range tl.Moments {
		for _, name := range slices.SortedFunc(maps.Keys(m.Workloads), func(a, b Name) int { return cmp.Compare(a.String(), b.String()) }) {
			if m.Workloads[name].Claim != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// String draws the moments at which a workload's numbers changed, one line each, to be printed when a test fails.
func (tl *Timeline) String() string {
	var text string
	last := map[Name]string{}
	for _, m := range tl.Moments {
		for _, name := range slices.SortedFunc(maps.Keys(m.Workloads), func(a, b Name) int { return cmp.Compare(a.String(), b.String()) }) {
			w := m.Workloads[name]
			line := fmt.Sprintf("%s: asked %d, serving %d, left %d, generation %d, claim %q", name, w.Asked, w.Serving, w.Left, w.Generation, w.Claim)
			if line != last[name] {
				last[name] = line
				text += fmt.Sprintf("%d %s → %s\n", m.Version, m.What, line)
			}
		}
	}
	return text
}
