package serving

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/kube"
)

// mostPods is how many pods are asked why they do not serve.
const mostPods = 50

// podTrouble is the word of the newest pod that does not serve, or why there is none; "" when all do.
func (a *Activities) podTrouble(ctx context.Context, d *appsv1.Deployment) (reason, message string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return "", "", err
	}
	call, cancel := a.call(ctx)
	defer cancel()
	pods, err := a.client.CoreV1().Pods(d.Namespace).List(call, metav1.ListOptions{LabelSelector: selector.String(), Limit: mostPods})
	if err != nil {
		return "", "", err
	}
	var newest *corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if podstatus.Ready(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			newest = pod
		}
	}
	if newest == nil {
		reason, message = uncreated(d)
		return reason, message, nil
	}
	reason, message = podstatus.Reason(newest)
	return reason, strings.TrimSpace("pod " + newest.Name + ": " + message), nil
}

// uncreated is why pods of a Deployment cannot be made.
func uncreated(d *appsv1.Deployment) (reason, message string) {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return c.Reason, kube.Line(c.Message)
		}
	}
	return "", ""
}
