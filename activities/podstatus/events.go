package podstatus

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/workload"
)

// Explain is Reason, with what the pod's events say if it does not start and its status does not say why.
func Explain(ctx context.Context, client kube.Typed, pod *corev1.Pod, now time.Time) (reason, message string) {
	reason, message = Reason(pod)
	if !(workload.Pod{Reason: reason, Since: pod.CreationTimestamp.Time}).Silent(now) {
		return reason, message
	}
	w, err := kube.NewestWarning(ctx, client, pod.Namespace, pod.UID, workload.StartReasons)
	switch {
	case w.Reason != "":
		return w.Reason, kube.Line(w.Message)
	case kube.IsAny(err, kube.Forbidden):
		return reason, workload.EventsUnreadable
	}
	return reason, message
}
