package workload

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/operation"
)

// podPage is how many pods one request reads.
const podPage = 500

// podList is a workload's pods, and where a watch that misses nothing goes on from.
type podList struct {
	pods     []operation.Pod
	selector string
	version  string
}

// pods reads the pods of a workload: those that its selector matches and that it owns.
func (a *Activities) pods(ctx context.Context, k kind, o *object) (podList, error) {
	selector, err := metav1.LabelSelectorAsSelector(o.selector)
	if err != nil {
		return podList{}, err
	}
	out := podList{selector: selector.String()}
	options := metav1.ListOptions{LabelSelector: out.selector, Limit: podPage}
	for {
		call, cancel := a.call(ctx)
		page, err := a.client.CoreV1().Pods(o.meta.Namespace).List(call, options)
		cancel()
		if err != nil {
			return podList{}, err
		}
		for i := range page.Items {
			if pod := &page.Items[i]; k.owns(o, pod) {
				out.pods = append(out.pods, podSeen(pod, o.minReadySeconds, a.options.Now()))
			}
		}
		out.version = page.ResourceVersion
		if page.Continue == "" {
			return out, nil
		}
		options.Continue = page.Continue
	}
}

// podSeen is what Decide has to know of a pod.
func podSeen(pod *corev1.Pod, minReadySeconds int32, now time.Time) operation.Pod {
	seen := operation.Pod{
		Name: pod.Name, UID: string(pod.UID), Version: pod.ResourceVersion,
		Marker:   pod.Annotations[operation.AnnotationRestartedBy],
		Revision: pod.Labels[appsv1.ControllerRevisionHashLabelKey],
		Ordinal:  -1,
		Deleting: pod.DeletionTimestamp != nil,
		Finished: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Since:    pod.CreationTimestamp.Time,
	}
	if seen.Revision == "" {
		seen.Revision = pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == operation.KindStatefulSet {
		if n, err := strconv.ParseInt(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:], 10, 32); err == nil {
			seen.Ordinal = int32(n)
		}
	}
	seen.Reason, seen.Message = podReason(pod)
	if c := condition(pod, corev1.PodReady); c != nil {
		seen.Ready = c.Status == corev1.ConditionTrue
		settled := c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second)
		seen.Available = seen.Ready && (minReadySeconds == 0 || !now.Before(settled))
		// A crash loop passes through readiness again and again: it has lasted since the pod was made.
		if !seen.Ready && seen.Reason != reasonCrashLoop && c.LastTransitionTime.After(seen.Since) {
			seen.Since = c.LastTransitionTime.Time
		}
	}
	if seen.Ready && !seen.Deleting {
		seen.Reason, seen.Message = "", ""
	}
	return seen
}

const reasonCrashLoop = "CrashLoopBackOff"

// podReason is the pod's own word on why it does not serve: of the first of its parts, in the order in which a pod comes up, that is not as it should be.
func podReason(pod *corev1.Pod) (reason, message string) {
	if pod.DeletionTimestamp != nil {
		grace := int64(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = *pod.DeletionGracePeriodSeconds
		}
		return "Terminating", fmt.Sprintf("it should be gone by %s, after %d s of grace", pod.DeletionTimestamp.UTC().Format(time.TimeOnly), grace)
	}
	if pod.Status.Phase == corev1.PodFailed {
		return orElse(pod.Status.Reason, "Failed"), oneLine(pod.Status.Message)
	}
	if c := condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return orElse(c.Reason, "Unschedulable"), oneLine(c.Message)
	}
	if reason, message = containerReason(pod.Status.InitContainerStatuses); reason != "" {
		return reason, message
	}
	if reason, message = containerReason(pod.Status.ContainerStatuses); reason != "" {
		return reason, message
	}
	if c := condition(pod, corev1.PodReady); c != nil && c.Status != corev1.ConditionTrue {
		return orElse(notReadyReason(c.Reason), "NotReady"), oneLine(c.Message)
	}
	return "Pending", "its node has not reported on it yet"
}

// notReadyReason leaves out the reason that says no more than that the pod is not ready.
func notReadyReason(reason string) string {
	if reason == "ContainersNotReady" {
		return ""
	}
	return reason
}

// containerReason is the trouble of the first container that has one; a container that is merely being made counts last.
func containerReason(list []corev1.ContainerStatus) (reason, message string) {
	for _, c := range list {
		switch s := c.State; {
		case s.Waiting != nil && (s.Waiting.Reason == "ContainerCreating" || s.Waiting.Reason == "PodInitializing" || s.Waiting.Reason == ""):
			if reason == "" {
				reason, message = orElse(s.Waiting.Reason, "Waiting"), oneLine(s.Waiting.Message)
			}
		case s.Waiting != nil:
			return s.Waiting.Reason, oneLine(s.Waiting.Message + lastExit(c.LastTerminationState.Terminated))
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			return orElse(s.Terminated.Reason, "Error"), oneLine(fmt.Sprintf("container %s ended with exit code %d%s", c.Name, s.Terminated.ExitCode, after(s.Terminated.Message)))
		}
	}
	return reason, message
}

func lastExit(t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" (last exit code %d%s)", t.ExitCode, after(t.Message))
}

func after(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// lineLimit is the longest text, in bytes, that is taken over from the cluster into a message.
const lineLimit = 500

// oneLine makes a text of the cluster fit into a sentence.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > lineLimit {
		text = strings.ToValidUTF8(text[:lineLimit], "") + " …"
	}
	return text
}
