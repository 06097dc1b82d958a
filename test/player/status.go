package player

import (
	"fmt"
	"hash/fnv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status is the status of a pod as a kubelet would report it.
type status struct {
	pod     *corev1.Pod
	ip      string
	started metav1.Time
	changed chan struct{}
	// writeMu is held during a write, so that no older status overwrites a newer one.
	writeMu sync.Mutex

	mu           sync.Mutex
	inits, mains []corev1.ContainerStatus
	conditions   map[corev1.PodConditionType]condition
}

// condition is a pod condition. Empty reasons and messages are written too, so that previous ones are removed.
type condition struct {
	Type    corev1.PodConditionType `json:"type"`
	Status  corev1.ConditionStatus  `json:"status"`
	Reason  string                  `json:"reason"`
	Message string                  `json:"message"`
	Since   metav1.Time             `json:"lastTransitionTime"`
}

func newStatus(pod *corev1.Pod) *status {
	creating := "ContainerCreating"
	if len(pod.Spec.InitContainers) > 0 {
		creating = "PodInitializing"
	}
	return &status{pod: pod, ip: address(pod), started: metav1.Now(), changed: make(chan struct{}, 1),
		conditions: map[corev1.PodConditionType]condition{},
		inits:      waiting(pod.Spec.InitContainers, creating), mains: waiting(pod.Spec.Containers, creating)}
}

func waiting(containers []corev1.Container, reason string) []corev1.ContainerStatus {
	statuses := make([]corev1.ContainerStatus, len(containers))
	for i, c := range containers {
		statuses[i] = corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image, Started: new(bool),
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	}
	return statuses
}

// address returns an IP that KWOK does not assign to its pods. Nothing listens there: the processes use the machine's
// network.
func address(pod *corev1.Pod) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(pod.UID))
	n := sum.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", 128+n>>16&63, n>>8&255, 1+n&255%254)
}

// change changes the status of one container.
func (s *status) change(of []corev1.ContainerStatus, i int, by func(*corev1.ContainerStatus)) {
	s.mu.Lock()
	by(&of[i])
	s.mu.Unlock()
	s.notify()
}

// setWaitingMessage shows what the pod waits for before it can start.
func (s *status) setWaitingMessage(why string) {
	s.mu.Lock()
	defer s.notify()
	defer s.mu.Unlock()
	for _, of := range [][]corev1.ContainerStatus{s.inits, s.mains} {
		for i := range of {
			of[i].State.Waiting = &corev1.ContainerStateWaiting{Reason: of[i].State.Waiting.Reason, Message: why}
		}
	}
}

func (s *status) notify() {
	select {
	case s.changed <- struct{}{}:
	default: // a write is pending already
	}
}

// document returns the status to write. PodScheduled and conditions of other writers stay.
func (s *status) document() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	phase := phaseOf(s.inits, s.mains)
	var conditions []condition
	for _, c := range conditionsOf(phase, s.pod.Spec.ReadinessGates, s.inits, s.mains) {
		c.Since = metav1.Now()
		if was := s.conditions[c.Type]; was.Status == c.Status {
			c.Since = was.Since
		}
		s.conditions[c.Type] = c
		conditions = append(conditions, c)
	}
	document := map[string]any{"phase": phase, "startTime": s.started, "podIP": s.ip,
		"podIPs": []corev1.PodIP{{IP: s.ip}}, "conditions": conditions,
		"containerStatuses": clone(s.mains)}
	if len(s.inits) > 0 {
		document["initContainerStatuses"] = clone(s.inits)
	}
	return document
}

func clone(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	out := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		out[i] = *statuses[i].DeepCopy()
	}
	return out
}

// phaseOf returns the phase of a pod. A container that will run again is waiting, never terminated.
func phaseOf(inits, mains []corev1.ContainerStatus) corev1.PodPhase {
	for _, c := range inits {
		switch {
		case c.State.Terminated == nil:
			return corev1.PodPending
		case c.State.Terminated.ExitCode != 0:
			return corev1.PodFailed
		}
	}
	var running, notStarted, failed bool
	for _, c := range mains {
		switch {
		case c.State.Terminated != nil:
			failed = failed || c.State.Terminated.ExitCode != 0
		case c.State.Running != nil || c.LastTerminationState.Terminated != nil:
			running = true
		default:
			notStarted = true
		}
	}
	switch {
	case notStarted:
		return corev1.PodPending
	case running:
		return corev1.PodRunning
	case failed:
		return corev1.PodFailed
	default:
		return corev1.PodSucceeded
	}
}

// conditionsOf returns the conditions of a kubelet, and the readiness gates, which become True with the containers as
// elsewhere on the stack.
func conditionsOf(phase corev1.PodPhase, gates []corev1.PodReadinessGate, inits,
	mains []corev1.ContainerStatus) []condition {
	initialized := allReady(corev1.PodInitialized, inits, "ContainersNotInitialized",
		"containers with incomplete status")
	ready := allReady(corev1.PodReady, mains, "ContainersNotReady", "containers with unready status")
	switch phase {
	case corev1.PodSucceeded:
		initialized.Reason = "PodCompleted"
		ready = condition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted"}
	case corev1.PodFailed:
		ready = condition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodFailed"}
	}
	containers := ready
	containers.Type = corev1.ContainersReady
	conditions := []condition{initialized, ready, containers}
	for _, gate := range gates {
		conditions = append(conditions, condition{Type: gate.ConditionType, Status: ready.Status})
	}
	return conditions
}

func allReady(kind corev1.PodConditionType, of []corev1.ContainerStatus, reason, message string) condition {
	var names []string
	for _, c := range of {
		if !c.Ready {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return condition{Type: kind, Status: corev1.ConditionTrue}
	}
	return condition{Type: kind, Status: corev1.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("%s: [%s]", message, strings.Join(names, " "))}
}
