package workload

import (
	"context"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// podList is a workload's pods, and the version from which a watch continues without a gap.
type podList struct {
	pods     []workload.Pod
	selector string
	version  string
}

// pods reads the pods of a workload: those that its selector matches and that it owns. marker is the annotation by
// which the operation recognises its own pods (Request.MarkerName).
func (a *Activities) pods(ctx context.Context, k kind, o *object, marker string) (podList, error) {
	selector, err := selectorOf(o.Unstructured)
	if err != nil {
		return podList{}, err
	}
	out := podList{selector: selector}
	minReady := int32(number(o.Unstructured, "spec", "minReadySeconds"))
	out.version, err = a.cluster.Pods(ctx, o.GetNamespace(), selector, func(pod *corev1.Pod) {
		if k.owns(o.Unstructured, pod) {
			seen := podSeen(pod, minReady, a.options.Now())
			seen.Marker = pod.Annotations[marker]
			out.pods = append(out.pods, seen)
		}
	})
	return out, err
}

// podSeen is what operation.Decide reads of a pod.
func podSeen(pod *corev1.Pod, minReadySeconds int32, now time.Time) workload.Pod {
	seen := workload.Pod{
		Name: pod.Name, UID: string(pod.UID), Version: pod.ResourceVersion,
		Revision:  pod.Labels[appsv1.ControllerRevisionHashLabelKey],
		RolloutID: pod.Labels[rollout.LabelRolloutID], Batch: pod.Labels[rollout.LabelBatchID],
		Ordinal:  -1,
		Deleting: pod.DeletionTimestamp != nil,
		Finished: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Since:    pod.CreationTimestamp.Time,
	}
	if seen.Revision == "" {
		seen.Revision = pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && workload.Of(owner.APIVersion, owner.Kind).Ordinals {
		if n, err := strconv.ParseInt(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:], 10, 32); err == nil {
			seen.Ordinal = int32(n)
		}
	}
	seen.Reason, seen.Message = podstatus.Reason(pod)
	if c := podstatus.Condition(pod, corev1.PodReady); c != nil {
		seen.Ready = c.Status == corev1.ConditionTrue
		settled := c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second)
		seen.Available = seen.Ready && (minReadySeconds == 0 || !now.Before(settled))
		// A crash-looping pod becomes ready again and again: its trouble has lasted since the pod was created.
		if !seen.Ready && seen.Reason != podstatus.CrashLoopBackOff && c.LastTransitionTime.After(seen.Since) {
			seen.Since = c.LastTransitionTime.Time
		}
	}
	if seen.Ready && !seen.Deleting {
		seen.Reason, seen.Message = "", ""
	}
	return seen
}
