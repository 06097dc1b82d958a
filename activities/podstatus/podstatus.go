// Package podstatus determines from a pod's status why it does not serve, in the cluster's own terms.
package podstatus

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/kube"
)

// CrashLoopBackOff is the reason of a container that keeps crashing.
const CrashLoopBackOff = "CrashLoopBackOff"

// Reason returns why a pod does not serve: the reason and message of the first part of its status that is not as
// expected, in the order in which a pod starts.
func Reason(pod *corev1.Pod) (reason, message string) {
	if pod.DeletionTimestamp != nil {
		return "Terminating", fmt.Sprintf("it should be deleted by %s, after a grace period of %d s",
			pod.DeletionTimestamp.UTC().Format(time.TimeOnly), ptr.Deref(pod.DeletionGracePeriodSeconds, 0))
	}
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Reason, "Failed"), kube.Line(pod.Status.Message)
	}
	if c := Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return cmp.Or(c.Reason, "Unschedulable"), kube.Line(c.Message)
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		if reason, message = containerReason(list); reason != "" {
			return reason, message
		}
	}
	if c := Condition(pod, corev1.PodReady); c != nil && c.Status != corev1.ConditionTrue {
		// the generic reason ContainersNotReady only repeats that the pod is not ready
		return cmp.Or(strings.TrimPrefix(c.Reason, "ContainersNotReady"), "NotReady"), kube.Line(c.Message)
	}
	return "Pending", "its node has not reported on it yet"
}

// containerReason returns the reason of the first container with a problem; a container that is only being created
// counts last.
func containerReason(list []corev1.ContainerStatus) (reason, message string) {
	for _, c := range list {
		switch s := c.State; {
		case s.Waiting != nil && (s.Waiting.Reason == "ContainerCreating" || s.Waiting.Reason == "PodInitializing" ||
			s.Waiting.Reason == ""):
			if reason == "" {
				reason, message = cmp.Or(s.Waiting.Reason, "Waiting"), kube.Line(s.Waiting.Message)
			}
		case s.Waiting != nil:
			return s.Waiting.Reason, kube.Line(s.Waiting.Message + lastExit(c.LastTerminationState.Terminated))
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			ended := fmt.Sprintf("container %s ended with exit code %d%s", c.Name, s.Terminated.ExitCode,
				colonClause(s.Terminated.Message))
			return cmp.Or(s.Terminated.Reason, "Error"), kube.Line(ended)
		}
	}
	return reason, message
}

func lastExit(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" (last exit code %d%s)", t.ExitCode, colonClause(t.Message))
}

func colonClause(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// Condition returns a pod's condition of that type; nil if it has none.
func Condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Ready reports whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	c := Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}
